//! Rows that belong together because a column has the same value.

use std::collections::HashMap;

use super::field::{Field, RowTexts, Table, field};
use crate::columns::{ColumnKind, MISSING};
use crate::{Error, Result};

/// A group for each row of a set: rows with the same value of the column have the same number. Groups are numbered from 0
/// in the order of their first row. A row without a value is a group of its own.
///
/// The column is one of the [columns](Table::columns), or `label`, `camera` or `path`.
///
/// ```
/// use gallerist_retrieval::columns::{Column, Columns};
/// use gallerist_retrieval::condition::groups_of;
/// use gallerist_retrieval::{EmbeddingSet, Matrix};
///
/// let columns = Columns::new(vec![Column::infer("product", ["7", "9", "", "7", ""])?])?;
/// let set = EmbeddingSet { columns, ..Matrix::new(5, 1, vec![0.0; 5])?.into() };
/// assert_eq!(groups_of(&set, "product")?, [0, 1, 2, 0, 3]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Column`] for a column that the set does not have, and for tags: a row may have several.
pub fn groups_of(set: &dyn Table, column: &str) -> Result<Vec<u32>> {
    let refuse = |problem: String, hint| Error::Column { name: column.to_owned(), problem, hint };
    let (kind, values) = field(set, column).map_err(|(problem, hint)| refuse(problem, hint))?;
    if kind == ColumnKind::Tags {
        let hint = "group by a column with one value a row".to_owned();
        return Err(refuse("it has tags, and a row may have several".to_owned(), Some(hint)));
    }
    crate::search::check_count(set.rows(), "gallery")?;
    Ok(match values {
        // Zero has two signs.
        Field::Numbers(numbers) => {
            number(numbers.iter().map(|&n| (!n.is_nan()).then_some((n + 0.0).to_bits())))
        }
        Field::Texts(RowTexts::Distinct(_, places)) => {
            number(places.iter().map(|&place| (place != MISSING).then_some(place)))
        }
        Field::Texts(RowTexts::Each(list)) => {
            number(list.iter().map(|text| (!text.is_empty()).then_some(text)))
        }
    })
}

fn number<K: Eq + std::hash::Hash>(keys: impl Iterator<Item = Option<K>>) -> Vec<u32> {
    let (mut known, mut next) = (HashMap::new(), 0);
    let mut new = || {
        next += 1;
        next - 1
    };
    keys.map(|key| match key {
        None => new(),
        Some(key) => *known.entry(key).or_insert_with(&mut new),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Column, Columns};
    use crate::{EmbeddingSet, Matrix};

    #[test]
    fn numbers_texts_and_labels_group_and_tags_do_not() {
        let columns = vec![
            Column::infer("number", ["0", "-0", "", "1"]).unwrap(),
            Column::infer("tags", ["a|b", "", "", "a"]).unwrap(),
        ];
        let set = EmbeddingSet {
            labels: Some(["x", "y", "x", "x"].map(str::to_owned).to_vec()),
            columns: Columns::new(columns).unwrap(),
            ..Matrix::new(4, 1, vec![0.0; 4]).unwrap().into()
        };
        assert_eq!(groups_of(&set, "number").unwrap(), [0, 0, 1, 2]);
        assert_eq!(groups_of(&set, "label").unwrap(), [0, 1, 0, 0]);
        let message = |column| groups_of(&set, column).unwrap_err();
        assert_eq!(message("tags").to_string(), "column `tags`: it has tags, and a row may have several");
        assert_eq!(message("numbr").to_string(), "column `numbr`: there is no column `numbr`");
        assert_eq!(message("numbr").hint().unwrap(), "did you mean `number`?");
    }
}
