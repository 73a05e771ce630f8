//! A naive index for comparison: a map with f64 loops.

use std::collections::BTreeMap;

use gallerist_retrieval::index::{Among, Item, ItemFilter, Items};
use gallerist_retrieval::search::Metric;

/// Items by id; every search scans all items.
#[derive(Clone, Default)]
pub struct NaiveIndex {
    items: BTreeMap<u64, Item>,
}

impl NaiveIndex {
    /// Adds or replaces items.
    pub fn upsert(&mut self, items: &Items) {
        for row in 0..items.len() {
            self.items.insert(items.ids()[row], items.item(row));
        }
    }

    /// Removes items and returns the number of removed ones.
    pub fn remove(&mut self, ids: &[u64]) -> usize {
        ids.iter().filter(|id| self.items.remove(id).is_some()).count()
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item with this id.
    pub fn get(&self, id: u64) -> Option<&Item> {
        self.items.get(&id)
    }

    /// All ids in ascending order.
    pub fn ids(&self) -> Vec<u64> {
        self.items.keys().copied().collect()
    }

    /// All items that pass the filter with their scores (similarities or distances), best first; equal
    /// scores are ordered by id.
    pub fn ranking(&self, query: &[f32], metric: Metric, filter: &ItemFilter) -> Vec<(u64, f64)> {
        let mut list: Vec<(u64, f64)> = self
            .items
            .values()
            .filter(|item| admits(item, filter))
            .map(|item| (item.id, score(metric, query, &item.embedding)))
            .collect();
        let sign = if metric == Metric::Euclidean { 1.0 } else { -1.0 };
        list.sort_by(|a, b| (sign * a.1).partial_cmp(&(sign * b.1)).expect("finite").then(a.0.cmp(&b.0)));
        list
    }
}

fn admits(item: &Item, filter: &ItemFilter) -> bool {
    fn text(value: &Option<String>, among: &Option<Among<String>>) -> bool {
        match (among, value) {
            (None, _) => true,
            (Some(Among::In(list)), Some(value)) => list.contains(value),
            (Some(Among::In(_)), None) => false,
            (Some(Among::NotIn(list)), Some(value)) => !list.contains(value),
            (Some(Among::NotIn(_)), None) => true,
        }
    }
    let by_id = match &filter.id {
        None => true,
        Some(Among::In(list)) => list.contains(&item.id),
        Some(Among::NotIn(list)) => !list.contains(&item.id),
    };
    by_id
        && text(&item.label, &filter.label)
        && text(&item.camera, &filter.camera)
        && text(&item.path, &filter.path)
}

/// A similarity, or for [`Metric::Euclidean`] a distance, in f64.
pub fn score(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    match metric {
        Metric::InnerProduct => dot(a, b),
        Metric::Cosine => {
            let lengths = (dot(a, a) * dot(b, b)).sqrt();
            if lengths == 0.0 { 0.0 } else { dot(a, b) / lengths }
        }
        Metric::Euclidean => {
            a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>().sqrt()
        }
    }
}
