//! A set from the batches of a table.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, FieldRef, Fields, Schema};
use serde::{Deserialize, Serialize};

use super::TableColumns;
use super::cells::{CellKind, append_f32, is_vector, kind_of, numbers, texts, type_name};
use crate::Matrix;
use crate::columns::{Column, ColumnKind, Columns, RESERVED};
use crate::eval::MatchRule;
use crate::file::shape::check_values;
use crate::file::unread_column::Unread;
use crate::file::{EmbeddingSet, Source, Sources, npy};
use crate::search::Metric;

/// The metadata of the schema that describes the set, as JSON.
pub(super) const DESCRIPTION: &str = "gallerist";
/// The metadata of a field: the kind of the column.
pub(super) const KIND: &str = "gallerist.kind";
/// The column with the name of each row's source.
pub(super) const SOURCE: &str = "gallerist.source";

/// What is known about a set as a whole.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Description {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metric: Option<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threshold: Option<MatchRule>,
}

/// What is wrong with a table, and what to do.
pub(super) type Fault = (String, Option<String>);

/// The columns of a table that are read, by their numbers.
pub(super) struct Selection {
    embedding: usize,
    label: Option<usize>,
    path: Option<usize>,
    camera: Option<usize>,
    source: Option<usize>,
    further: Vec<(usize, CellKind)>,
    unread: Vec<Unread>,
}

impl Selection {
    pub(super) fn of(schema: &Schema, wanted: &TableColumns) -> Result<Self, Fault> {
        let fields = schema.fields();
        let find = |name: &str| fields.iter().position(|field| field.name() == name);
        let vectors: Vec<usize> = (0..fields.len()).filter(|&i| is_vector(fields[i].data_type())).collect();
        let embedding = match &wanted.embedding {
            Some(name) => {
                let of_name = find(name).ok_or_else(|| {
                    (
                        format!("there is no column `{name}`"),
                        Some(format!("the columns are {}", listed(fields))),
                    )
                })?;
                if !is_vector(fields[of_name].data_type()) {
                    let found = format!("the column `{name}` is of type {}", fields[of_name].data_type());
                    return Err((format!("wanted lists of floats, {found}"), None));
                }
                of_name
            }
            None => {
                let usual = ["embedding", "embeddings", "vector"].into_iter().filter_map(find);
                let mut usual = usual.filter(|i| vectors.contains(i));
                match (usual.next(), &vectors[..]) {
                    (Some(column), _) | (None, &[column]) => column,
                    (None, found) => {
                        let found = listed(found.iter().map(|&i| &fields[i]));
                        let problem = format!("wanted one column with lists of floats, found {found}");
                        let hint = "name it: gallerist convert FILE --column NAME --out FILE.safetensors";
                        return Err((problem, Some(hint.to_owned())));
                    }
                }
            }
        };
        let list = |wanted: &Option<String>, what: &str| list_column(fields, wanted.as_deref(), what);
        let label = list(&wanted.label, "label")?;
        let path = list(&wanted.path, "path")?;
        let camera = list(&wanted.camera, "camera")?;
        let source = find(SOURCE).filter(|&i| kind_of(fields[i].data_type()) == Some(CellKind::Text));
        let taken = [Some(embedding), label, path, camera, source];
        let mut further = Vec::new();
        let mut unread = Vec::new();
        for i in (0..fields.len()).filter(|&i| !taken.contains(&Some(i))) {
            let (name, kind) = (fields[i].name(), fields[i].data_type());
            // Labels, where another column was named as such, have a name that no further column has.
            let is_free = !RESERVED.contains(&name.as_str());
            match kind_of(kind) {
                // The index of a pandas table, and a column without values.
                _ if name.starts_with("__index_level_") || *kind == DataType::Null => {}
                Some(kind) if is_free => further.push((i, kind)),
                // Another embedding than the one that was asked for.
                _ if is_vector(kind) && wanted.embedding.is_some() => {}
                _ => unread.push(Unread { name: name.clone(), kind: type_name(kind) }),
            }
        }
        Ok(Self { embedding, label, path, camera, source, further, unread })
    }

    /// The columns that are not read.
    pub(super) fn into_unread(self) -> Vec<Unread> {
        self.unread
    }

    /// The numbers of all columns that are read, rising.
    pub(super) fn columns(&self) -> Vec<usize> {
        let lists = [Some(self.embedding), self.label, self.path, self.camera, self.source];
        let mut all: Vec<usize> =
            lists.into_iter().flatten().chain(self.further.iter().map(|&(i, _)| i)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The names of columns, for a message.
fn listed<'a>(names: impl IntoIterator<Item = &'a FieldRef>) -> String {
    let names: Vec<String> = names.into_iter().map(|field| format!("`{}`", field.name())).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The column of labels, paths or cameras: the one that is `wanted`, else the one that is called `what` or the plural of it.
fn list_column(fields: &Fields, wanted: Option<&str>, what: &str) -> Result<Option<usize>, Fault> {
    let find = |name: &str| fields.iter().position(|field| field.name() == name);
    let is_text = |i: usize| kind_of(fields[i].data_type()).is_some();
    let unfit = |i: usize, hint: Option<String>| {
        let (name, kind) = (fields[i].name(), type_name(fields[i].data_type()));
        Err((format!("wanted text or integers, the column `{name}` is of type {kind}"), hint))
    };
    if let Some(name) = wanted {
        return match find(name) {
            Some(column) if is_text(column) => Ok(Some(column)),
            Some(column) => unfit(column, None),
            None => {
                let hint = format!("the columns are {}", listed(fields));
                Err((format!("there is no column `{name}`"), Some(hint)))
            }
        };
    }
    let plural = format!("{what}s");
    let is_usual = |i: usize| match fields[i].name() {
        name if name == what => true,
        // A further column of a set, which may have this name.
        name => *name == plural && !fields[i].metadata().contains_key(KIND),
    };
    let has_values = |i: usize| *fields[i].data_type() != DataType::Null;
    let usual = [what, &plural].into_iter().filter_map(find).filter(|&i| is_usual(i) && has_values(i));
    let usual: Vec<usize> = usual.collect();
    match (usual.iter().find(|&&i| is_text(i)), usual.first()) {
        (None, Some(&first)) => {
            let hint = format!(
                "write it as text, rename it, or name another column: gallerist convert FILE --{what}-column NAME --out FILE.safetensors"
            );
            unfit(first, Some(hint))
        }
        (found, _) => Ok(found.copied()),
    }
}

/// The cells of a further column.
enum Cells {
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
}

/// The rows that were read so far.
pub(super) struct Builder {
    schema: Schema,
    selection: Selection,
    dimensions: Option<usize>,
    values: Vec<f32>,
    rows: usize,
    /// Labels, paths, cameras, sources.
    lists: [Vec<Option<String>>; 4],
    further: Vec<Cells>,
    /// The most bytes of embeddings and texts.
    limit: usize,
    bytes: usize,
}

impl Builder {
    /// `limit`: the most bytes of embeddings and texts.
    pub(super) fn new(schema: Schema, selection: Selection, limit: usize) -> Self {
        let cells = |&(_, kind): &(usize, CellKind)| match kind {
            CellKind::Floats => Cells::Numbers(Vec::new()),
            _ => Cells::Texts(Vec::new()),
        };
        let further = selection.further.iter().map(cells).collect();
        Self {
            schema,
            selection,
            dimensions: None,
            values: Vec::new(),
            rows: 0,
            lists: Default::default(),
            further,
            limit,
            bytes: 0,
        }
    }

    /// Takes the rows of a batch, whose column `i` is column `places[i]` of the schema.
    pub(super) fn take(&mut self, batch: &RecordBatch, places: &[usize]) -> Result<(), Fault> {
        let array = |column: usize| {
            let place = places.iter().position(|&place| place == column);
            place.filter(|&place| place < batch.num_columns()).map(|place| batch.column(place))
        };
        let missing = || ("a batch has other columns than the schema".to_owned(), None);
        self.take_embeddings(array(self.selection.embedding).ok_or_else(missing)?)?;
        let Selection { label, path, camera, source, .. } = self.selection;
        let mut bytes = 0;
        for (list, column) in self.lists.iter_mut().zip([label, path, camera, source]) {
            let Some(column) = column else { continue };
            let texts = texts_of(array(column).ok_or_else(missing)?, (&self.schema, column), self.rows)?;
            bytes += size(&texts);
            list.extend(texts);
        }
        for (cells, &(column, _)) in self.further.iter_mut().zip(&self.selection.further) {
            let array = array(column).ok_or_else(missing)?;
            match cells {
                Cells::Numbers(all) => all.extend(numbers(array)),
                Cells::Texts(all) => {
                    let texts = texts_of(array, (&self.schema, column), self.rows)?;
                    bytes += size(&texts);
                    all.extend(texts);
                }
            }
        }
        self.rows += batch.num_rows();
        self.count(bytes)
    }

    fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            let problem = format!("its rows take more than {} MiB, far more than the file", self.limit >> 20);
            return Err((problem, Some("write it without compression".to_owned())));
        }
        Ok(())
    }

    fn take_embeddings(&mut self, array: &ArrayRef) -> Result<(), Fault> {
        let row = self.rows;
        let rows: Vec<ArrayRef> = match array.data_type() {
            DataType::FixedSizeList(..) => {
                let lists = array.as_fixed_size_list();
                (0..lists.len()).filter(|&i| !lists.is_null(i)).map(|i| lists.value(i)).collect()
            }
            DataType::List(_) => array.as_list::<i32>().iter().flatten().collect(),
            DataType::LargeList(_) => array.as_list::<i64>().iter().flatten().collect(),
            _ => Vec::new(),
        };
        if rows.len() != array.len() {
            let first = row + (0..array.len()).find(|&i| array.is_null(i)).unwrap_or(0);
            let hint = "leave out the rows without an embedding".to_owned();
            return Err((format!("row {first} has no embedding"), Some(hint)));
        }
        for (i, values) in rows.iter().enumerate() {
            let dimensions = *self.dimensions.get_or_insert(values.len());
            let at = row + i;
            if values.len() != dimensions {
                let found = values.len();
                return Err((format!("row {at} has {found} values, the rows before it {dimensions}"), None));
            }
            if values.null_count() > 0 {
                return Err((format!("a value of the embedding of row {at} is missing"), None));
            }
            self.count(dimensions * size_of::<f32>())?;
            let hint = || Some(npy::OUT_OF_RANGE_OF_F32.to_owned());
            append_f32(values, at, &mut self.values).map_err(|problem| (problem, hint()))?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<EmbeddingSet, Fault> {
        let fault = |error: crate::Error| (error.to_string(), error.hint());
        let Self { schema, selection, dimensions, values, rows, lists, further, .. } = self;
        let dimensions = dimensions.unwrap_or(match schema.field(selection.embedding).data_type() {
            DataType::FixedSizeList(_, size) => usize::try_from(*size).unwrap_or(0),
            _ => 0,
        });
        check_values(rows, dimensions).map_err(fault)?;
        let description = describe(schema.metadata().get(DESCRIPTION))?;
        let [labels, paths, cameras, of_sources] = lists;
        let list = |column: Option<usize>, list: Vec<Option<String>>| {
            column.map(|_| list.into_iter().map(Option::unwrap_or_default).collect::<Vec<String>>())
        };
        let sources =
            sources(description.sources, selection.source.map(|_| of_sources), rows).map_err(fault)?;
        let mut columns = Vec::with_capacity(further.len());
        for (&(i, kind), cells) in selection.further.iter().zip(further) {
            let field = schema.field(i);
            let declared = field.metadata().get(KIND).and_then(|kind| {
                serde_json::from_value::<ColumnKind>(serde_json::Value::from(kind.as_str())).ok()
            });
            columns.push(column(field.name(), kind, declared, cells).map_err(fault)?);
        }
        Ok(EmbeddingSet {
            embeddings: Matrix::new(rows, dimensions, values).map_err(fault)?,
            labels: list(selection.label, labels),
            paths: list(selection.path, paths),
            cameras: list(selection.camera, cameras),
            columns: Columns::new(columns).map_err(fault)?,
            model: description.model,
            source: description.source,
            sources,
            run: description.run,
            metric: description.metric,
            protocol: description.protocol,
            threshold: description.threshold,
        })
    }
}

/// The texts of a column in a batch whose first row is row `first` of the table.
fn texts_of(
    array: &ArrayRef,
    (schema, column): (&Schema, usize),
    first: usize,
) -> Result<Vec<Option<String>>, Fault> {
    texts(array).map_err(|(row, unfit)| {
        let (name, found) = (schema.field(column).name(), unfit.problem());
        let problem = format!("row {} of the column `{name}` has {found}", first + row);
        (problem, Some(unfit.hint().to_owned()))
    })
}

fn size(texts: &[Option<String>]) -> usize {
    texts.iter().map(|text| size_of::<Option<String>>() + text.as_ref().map_or(0, String::len)).sum()
}

fn describe(text: Option<&String>) -> Result<Description, Fault> {
    let Some(text) = text else { return Ok(Description::default()) };
    serde_json::from_str(text).map_err(|error| (format!("its metadata `{DESCRIPTION}`: {error}"), None))
}

fn sources(
    list: Vec<Source>,
    rows: Option<Vec<Option<String>>>,
    count: usize,
) -> crate::Result<Option<Sources>> {
    let Some(rows) = rows else {
        return Ok(match <[Source; 1]>::try_from(list) {
            Ok([source]) => Some(Sources::one(source, count)),
            Err(_) => None,
        });
    };
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut all = list;
    places.extend(all.iter().enumerate().map(|(i, source)| (source.name.clone(), i)));
    let mut of_rows = Vec::with_capacity(rows.len());
    for name in rows {
        of_rows.push(name.map(|name| {
            *places.entry(name).or_insert_with_key(|name| {
                all.push(Source { name: name.clone(), images: None });
                all.len() - 1
            })
        }));
    }
    Ok(Sources::new(all, of_rows)?.or_none())
}

fn column(name: &str, kind: CellKind, declared: Option<ColumnKind>, cells: Cells) -> crate::Result<Column> {
    let texts = match cells {
        Cells::Numbers(numbers) => return Column::numbers(name, numbers),
        Cells::Texts(texts) => texts,
    };
    let filled = |texts: &[Option<String>]| -> Vec<String> {
        texts.iter().map(|text| text.clone().unwrap_or_default()).collect()
    };
    match (declared, kind) {
        (Some(declared), _) => Column::parse(name, declared, texts),
        // A code, such as 2^53 and more, makes the column text.
        (None, CellKind::Exact) => Column::infer(name, filled(&texts)),
        (None, CellKind::Dates) => Column::parse(name, ColumnKind::Date, texts),
        (None, CellKind::Tags) => Column::parse(name, ColumnKind::Tags, texts),
        (None, CellKind::Text | CellKind::Floats) => {
            let inferred = Column::infer(name, filled(&texts))?;
            match inferred.kind() {
                // Text that looks like numbers is text: its type says so.
                ColumnKind::Number => Column::parse(name, ColumnKind::Text, texts),
                _ => Ok(inferred),
            }
        }
    }
}
