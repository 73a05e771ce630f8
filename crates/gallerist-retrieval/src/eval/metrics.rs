//! Values of metrics by name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Values by name, in the order of the request. In JSON, one flat object.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics<T = f64>(Vec<(String, T)>);

impl<T> Default for Metrics<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Metrics<T> {
    /// The value called `name`.
    pub fn get(&self, name: &str) -> Option<T> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// True when there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a value; one of the same name is replaced.
    pub fn push(&mut self, name: impl Into<String>, value: T) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}

impl<T> Index<&str> for Metrics<T> {
    type Output = T;

    /// # Panics
    /// When no value has that name.
    fn index(&self, name: &str) -> &T {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, value)) => value,
            None => panic!("no metric is called `{name}`"),
        }
    }
}

impl<T: Copy + Serialize> Serialize for Metrics<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, T: Copy + Deserialize<'de>> Deserialize<'de> for Metrics<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);
        impl<'de, T: Copy + Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = Metrics<T>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of values by name")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Metrics<T>, M::Error> {
                let mut values: Vec<(String, T)> = Vec::new();
                let mut places: HashMap<String, usize> = HashMap::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    match places.entry(name) {
                        Entry::Occupied(place) => values[*place.get()].1 = value,
                        Entry::Vacant(place) => {
                            values.push((place.key().clone(), value));
                            place.insert(values.len() - 1);
                        }
                    }
                }
                Ok(Metrics(values))
            }
        }
        deserializer.deserialize_map(Values(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_values_of_a_name_the_last_counts_in_the_place_of_the_first() {
        let metrics: Metrics =
            serde_json::from_str(r#"{"map@r": 1.0, "recall@1": 2.0, "map@r": 3.0}"#).unwrap();
        assert_eq!(metrics.iter().collect::<Vec<_>>(), [("map@r", 3.0), ("recall@1", 2.0)]);
    }
}
