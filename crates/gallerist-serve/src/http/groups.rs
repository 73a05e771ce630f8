//! One result for all items with the same value of a column.

use gallerist_retrieval::condition::groups_of;
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::{Answer, Refusal};
use crate::gallery::Catalog;

/// The distance of a group.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GroupScore {
    /// That of its nearest item.
    #[default]
    Best,
    /// The mean over its items.
    Mean,
}

impl GroupScore {
    pub(super) fn parse(text: &str) -> Answer<Self> {
        match text {
            "best" => Ok(Self::Best),
            "mean" => Ok(Self::Mean),
            _ => Err(Refusal::bad(format!("group_score must be best or mean, not `{text}`"))),
        }
    }
}

/// An item that was found: its row, its distance, and what else is known of it.
pub(super) type Row<T> = (usize, f32, T);

/// The group of each row; an error for a column that does not exist, or that has tags.
pub(super) fn groups(catalog: &Catalog, column: &str) -> Answer<Vec<u32>> {
    groups_of(catalog, column).map_err(|error| Refusal::bad(error.to_string()).hint_of(error.hint()))
}

/// The groups of `found`, all items in the order of their distances: the nearest item of each with the distance of the
/// group, and the number of its items. Groups of equal distances are in the order of their nearest items.
pub(super) fn grouped<T>(groups: &[u32], score: GroupScore, found: Vec<Row<T>>) -> Vec<(Row<T>, usize)> {
    let mut places = std::collections::HashMap::new();
    let mut all: Vec<(Row<T>, usize, f64)> = Vec::new();
    for item in found {
        let place = *places.entry(groups[item.0]).or_insert(all.len());
        let distance = f64::from(item.1);
        match all.get_mut(place) {
            Some((_, count, sum)) => {
                *count += 1;
                *sum += distance;
            }
            None => all.push((item, 1, distance)),
        }
    }
    if score == GroupScore::Mean {
        for ((_, distance, _), count, sum) in &mut all {
            *distance = (*sum / *count as f64) as f32;
        }
        all.sort_by(|a, b| a.0.1.total_cmp(&b.0.1));
    }
    all.into_iter().map(|(item, count, _)| (item, count)).collect()
}
