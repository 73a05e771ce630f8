//! What an evaluation reports.

use std::fmt;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::search::Metric;

/// The numbers of one evaluation, and what is needed to judge them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// What was a query and what it was compared with.
    pub protocol: String,
    /// How rows were compared.
    pub metric: Metric,
    /// `recall@1`, `map@r`, … by name; each the mean over its queries, from 0 to 1.
    pub metrics: Metrics,
    /// Number of queries.
    pub queries: usize,
    /// Number of gallery items.
    pub gallery: usize,
    /// Queries to which no gallery item is relevant.
    pub queries_without_match: usize,
    /// Queries for which an irrelevant item is exactly as close as a relevant one.
    pub ties: usize,
    /// Embeddings that are all zero; their cosine with everything is 0.
    pub zero_rows: usize,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
}

/// Values by name, in the order in which they were asked for. In JSON, one flat object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// The value called `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Adds a value; one of the same name is replaced.
    pub fn push(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}

impl Index<&str> for Metrics {
    type Output = f64;

    /// # Panics
    /// When no value has that name.
    fn index(&self, name: &str) -> &f64 {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, value)) => value,
            None => panic!("no metric is called `{name}`"),
        }
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = Metrics;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Metrics, M::Error> {
                let mut metrics = Metrics::default();
                while let Some((name, value)) = map.next_entry::<String, f64>()? {
                    metrics.push(name, value);
                }
                Ok(metrics)
            }
        }
        deserializer.deserialize_map(Values)
    }
}
