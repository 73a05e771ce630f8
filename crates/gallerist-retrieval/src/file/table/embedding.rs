//! The column of embeddings.

use arrow_schema::{DataType, Fields};

use super::cells::{CellKind, is_vector, kind_of, type_name};
use super::fault::{Fault, listed};

/// As many columns of numbers may be one embedding each.
const WIDE: usize = 16;

/// The column of embeddings: the one that is `wanted`, else the one with a usual name, else the only one.
pub(super) fn embedding_column(fields: &Fields, wanted: Option<&str>) -> Result<usize, Fault> {
    let find = |name: &str| fields.iter().position(|field| field.name() == name);
    let vectors: Vec<usize> = (0..fields.len()).filter(|&i| is_vector(fields[i].data_type())).collect();
    if let Some(name) = wanted {
        let column = find(name).ok_or_else(|| {
            (format!("there is no column `{name}`"), Some(format!("the columns are {}", listed(fields))))
        })?;
        return if vectors.contains(&column) { Ok(column) } else { Err(unfit(fields, column)) };
    }
    let usual = ["embedding", "embeddings", "vector"];
    let found = usual.into_iter().filter_map(find).find(|i| vectors.contains(i));
    match (found, &vectors[..]) {
        (Some(column), _) | (None, &[column]) => return Ok(column),
        (None, []) => {}
        (None, several) => {
            let found = listed(several.iter().map(|&i| &fields[i]));
            let problem = format!("wanted one column with lists of floats, found {found}");
            let hint = "name it: gallerist convert FILE --column NAME --out FILE.safetensors";
            return Err((problem, Some(hint.to_owned())));
        }
    }
    let holds_rows = |&i: &usize| is_list(fields[i].data_type()) || is_binary(fields[i].data_type());
    let named = usual.into_iter().filter_map(find).find(holds_rows);
    let is_list_of_numbers = |&i: &usize| item(fields[i].data_type()).is_some_and(is_number);
    if let Some(column) = named.or_else(|| (0..fields.len()).find(is_list_of_numbers)) {
        return Err(unfit(fields, column));
    }
    let numbers = (0..fields.len()).filter(|&i| is_number(fields[i].data_type()));
    let numbers: Vec<&str> = numbers.map(|i| fields[i].name().as_str()).collect();
    match &numbers[..] {
        [first, .., last] if numbers.len() >= WIDE => Err((
            format!(
                "wanted one column with lists of floats, found {} columns of numbers, `{first}` to `{last}`",
                numbers.len()
            ),
            Some(
                "write the numbers of a row as one list, in pandas: frame[\"embedding\"] = list(frame[NAMES].to_numpy(\"float32\")); \
                 frame.drop(columns=NAMES).to_parquet(FILE)"
                    .to_owned(),
            ),
        )),
        _ => Err((
            "wanted a column with lists of floats, found none".to_owned(),
            Some(format!("the columns are {}", listed(fields))),
        )),
    }
}

/// What is wrong with the type of a column that may hold embeddings, and how to convert it.
fn unfit(fields: &Fields, column: usize) -> Fault {
    let (name, kind) = (fields[column].name(), fields[column].data_type());
    let problem = format!("wanted lists of floats, the column `{name}` is of type {}", type_name(kind));
    let hint = match item(kind) {
        Some(item) if item.is_integer() => {
            "multiply the integers by their scale if there is one, and write floats, in pandas: frame[NAME] = \
             [scale * numpy.asarray(row, \"float32\") for row in frame[NAME]]"
        }
        Some(item) if is_number(item) => {
            "write floats, in pandas: frame[NAME] = [numpy.asarray(row, \"float32\") for row in frame[NAME]]"
        }
        Some(item) if is_list(item) => {
            "write one list per row, in pandas: frame[NAME] = [numpy.concatenate(row) for row in frame[NAME]]"
        }
        None if is_binary(kind) => {
            "write lists of floats, in pandas, with the dtype of the bytes: frame[NAME] = \
             [numpy.frombuffer(row, \"float32\") for row in frame[NAME]]"
        }
        _ => return (problem, None),
    };
    (problem, Some(hint.to_owned()))
}

/// The type of the values of a list.
fn item(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item.data_type()),
        _ => None,
    }
}

fn is_list(kind: &DataType) -> bool {
    item(kind).is_some()
}

fn is_binary(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    )
}

fn is_number(kind: &DataType) -> bool {
    matches!(kind_of(kind), Some(CellKind::Floats | CellKind::Exact))
}
