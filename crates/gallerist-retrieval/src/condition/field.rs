//! The columns that conditions and groups name: those of the set, its labels, cameras and paths.

use gallerist_util::text::nearest;

use crate::columns::{ColumnKind, Columns, RESERVED};
use crate::file::EmbeddingSet;
use crate::labels::SEPARATOR;

/// Rows with labels, cameras, paths and further columns, to which conditions and groups apply.
pub trait Table {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// The further columns.
    fn columns(&self) -> &Columns;

    /// The texts of `label`, `camera` or `path`; `None` where the rows have none.
    fn texts(&self, name: &str) -> Option<RowTexts<'_>>;
}

/// A text for each row.
pub enum RowTexts<'a> {
    /// One per row; an empty one is missing.
    Each(Vec<&'a str>),
    /// Distinct texts, and the place of each row's among them; `u32::MAX` where it is missing.
    Distinct(&'a [String], &'a [u32]),
}

impl Table for EmbeddingSet {
    fn rows(&self) -> usize {
        self.embeddings.rows()
    }

    fn columns(&self) -> &Columns {
        &self.columns
    }

    fn texts(&self, name: &str) -> Option<RowTexts<'_>> {
        let list = match name {
            "label" => &self.labels,
            "camera" => &self.cameras,
            "path" => &self.paths,
            _ => &None,
        };
        Some(RowTexts::Each(list.as_ref()?.iter().map(String::as_str).collect()))
    }
}

/// The values of a column, of whatever list.
pub(super) enum Field<'a> {
    /// NaN where a value is missing.
    Numbers(&'a [f64]),
    /// Of dates, text or tags.
    Texts(RowTexts<'a>),
}

impl Field<'_> {
    /// Number of rows.
    fn len(&self) -> usize {
        match self {
            Field::Numbers(numbers) => numbers.len(),
            Field::Texts(RowTexts::Distinct(_, places)) => places.len(),
            Field::Texts(RowTexts::Each(list)) => list.len(),
        }
    }
}

/// What is wrong with a name, and what to do.
pub(super) type Unknown = (String, Option<String>);

/// The kind and the values of the column of this name, one for each row.
pub(super) fn field<'a>(table: &'a dyn Table, name: &str) -> Result<(ColumnKind, Field<'a>), Unknown> {
    let (kind, values) = column(table, name)?;
    let (rows, length) = (table.rows(), values.len());
    if length != rows {
        // The fields of an embedding set are public.
        let hint = "each column, and each list of labels, cameras and paths, must have a value for every row";
        return Err((format!("`{name}` has {length} values for {rows} rows"), Some(hint.to_owned())));
    }
    Ok((kind, values))
}

fn column<'a>(table: &'a dyn Table, name: &str) -> Result<(ColumnKind, Field<'a>), Unknown> {
    if RESERVED.contains(&name) {
        let Some(texts) = table.texts(name) else {
            return Err((format!("the rows have no {name}s"), Some(known(table))));
        };
        let is_set = |text: &str| text.contains(SEPARATOR);
        let sets = name == "label"
            && match &texts {
                RowTexts::Each(list) => list.iter().any(|text| is_set(text)),
                RowTexts::Distinct(distinct, _) => distinct.iter().any(|text| is_set(text)),
            };
        return Ok((if sets { ColumnKind::Tags } else { ColumnKind::Text }, Field::Texts(texts)));
    }
    let Some(column) = table.columns().get(name) else {
        let names: Vec<&str> = table.columns().names().chain(RESERVED).collect();
        let same = names.iter().copied().find(|known| known.to_lowercase() == name.to_lowercase());
        let hint = same
            .or_else(|| nearest(name, &names))
            .map_or_else(|| known(table), |name| format!("did you mean `{name}`?"));
        return Err((format!("there is no column `{name}`"), Some(hint)));
    };
    let values = match (column.as_numbers(), column.as_texts()) {
        (Some(numbers), _) => Field::Numbers(numbers),
        (None, Some((distinct, places))) => Field::Texts(RowTexts::Distinct(distinct, places)),
        (None, None) => unreachable!("a column has numbers or texts"),
    };
    Ok((column.kind(), values))
}

/// The columns that there are.
fn known(table: &dyn Table) -> String {
    const SHOWN: usize = 20;
    let of_lists = RESERVED.into_iter().filter(|name| table.texts(name).is_some());
    let names: Vec<String> =
        table.columns().names().chain(of_lists).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "the rows have neither labels nor other columns".to_owned(),
        count if count > SHOWN => format!("the columns are {}, …", names[..SHOWN].join(", ")),
        _ => format!("the columns are {}", names.join(", ")),
    }
}
