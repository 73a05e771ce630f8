//! The columns that conditions and groups name: those of the set, its labels, cameras and paths.

use gallerist_util::text::nearest;

use crate::columns::{ColumnKind, RESERVED};
use crate::file::EmbeddingSet;
use crate::labels::are_sets;

/// The values of a column, of whatever list.
pub(super) enum Field<'a> {
    /// NaN where a value is missing.
    Numbers(&'a [f64]),
    /// Distinct texts, and the place of each row's among them.
    Texts(&'a [String], &'a [u32]),
    /// A text per row; an empty one is missing.
    List(&'a [String]),
}

/// What is wrong with a name, and what to do.
pub(super) type Unknown = (String, Option<String>);

/// The kind and the values of the column of this name.
pub(super) fn field<'a>(set: &'a EmbeddingSet, name: &str) -> Result<(ColumnKind, Field<'a>), Unknown> {
    if let Some((_, list)) = lists(set).into_iter().find(|(known, _)| *known == name) {
        let Some(list) = list else { return Err((format!("the rows have no {name}s"), Some(known(set)))) };
        let tags = name == "label" && are_sets(list);
        return Ok((if tags { ColumnKind::Tags } else { ColumnKind::Text }, Field::List(list)));
    }
    let Some(column) = set.columns.get(name) else {
        let names: Vec<&str> = set.columns.names().chain(RESERVED).collect();
        let hint = nearest(name, &names).map_or_else(|| known(set), |name| format!("did you mean `{name}`?"));
        return Err((format!("there is no column `{name}`"), Some(hint)));
    };
    let values = match (column.as_numbers(), column.as_texts()) {
        (Some(numbers), _) => Field::Numbers(numbers),
        (None, Some((distinct, places))) => Field::Texts(distinct, places),
        (None, None) => unreachable!("a column has numbers or texts"),
    };
    Ok((column.kind(), values))
}

fn lists(set: &EmbeddingSet) -> [(&'static str, Option<&[String]>); 3] {
    [("label", set.labels.as_deref()), ("camera", set.cameras.as_deref()), ("path", set.paths.as_deref())]
}

/// The columns that there are.
fn known(set: &EmbeddingSet) -> String {
    const SHOWN: usize = 20;
    let of_lists = lists(set).into_iter().filter(|(_, list)| list.is_some()).map(|(name, _)| name);
    let names: Vec<String> = set.columns.names().chain(of_lists).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "the rows have neither labels nor other columns".to_owned(),
        count if count > SHOWN => format!("the columns are {}, …", names[..SHOWN].join(", ")),
        _ => format!("the columns are {}", names.join(", ")),
    }
}
