//! Texts of rows, each distinct one kept once.

use std::collections::HashMap;

/// The place of a row without a text.
pub(crate) const MISSING: u32 = u32::MAX;

/// One text per row, or none. The distinct texts are in the order of their first row, so that equal rows make equal
/// values of this type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Texts {
    distinct: Vec<String>,
    /// For each row the place of its text in `distinct`, or [`MISSING`].
    places: Vec<u32>,
}

impl Texts {
    /// An empty text is missing.
    pub(super) fn new<S: AsRef<str>>(rows: impl IntoIterator<Item = Option<S>>) -> Self {
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut texts = Self::default();
        for row in rows {
            let place = match row.as_ref().map(AsRef::as_ref).filter(|text| !text.is_empty()) {
                None => MISSING,
                Some(text) => match known.get(text) {
                    Some(&place) => place,
                    None => {
                        let place =
                            u32::try_from(texts.distinct.len()).expect("a set has fewer than 2^32 rows");
                        known.insert(text.to_owned(), place);
                        texts.distinct.push(text.to_owned());
                        place
                    }
                },
            };
            texts.places.push(place);
        }
        texts
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn distinct(&self) -> &[String] {
        &self.distinct
    }

    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    pub(super) fn get(&self, row: usize) -> Option<&str> {
        Some(&self.distinct.get(self.places[row] as usize)?[..])
    }

    pub(super) fn select(&self, rows: &[usize]) -> Self {
        Self::new(rows.iter().map(|&row| self.get(row)))
    }

    /// Adds `count` rows without a text at the end.
    pub(super) fn extend_missing(&mut self, count: usize) {
        self.places.resize(self.places.len() + count, MISSING);
    }

    /// Adds the rows of `others` at the end. The texts that are here are compared with those of `others`, and not copied.
    pub(super) fn extend(&mut self, others: &Self) {
        let mut known: HashMap<&str, usize> =
            others.distinct.iter().enumerate().map(|(at, text)| (text.as_str(), at)).collect();
        let mut places = vec![MISSING; others.distinct.len()];
        for (place, text) in self.distinct.iter().enumerate() {
            if known.is_empty() {
                break;
            }
            if let Some(at) = known.remove(text.as_str()) {
                places[at] = place as u32;
            }
        }
        for (text, place) in others.distinct.iter().zip(&mut places).filter(|(_, place)| **place == MISSING) {
            *place = u32::try_from(self.distinct.len()).expect("a set has fewer than 2^32 rows");
            self.distinct.push(text.clone());
        }
        let place = |&place: &u32| places.get(place as usize).copied().unwrap_or(MISSING);
        self.places.extend(others.places.iter().map(place));
    }

    /// Every text changed by `change`.
    pub(super) fn map(&self, change: impl Fn(&str) -> String) -> Self {
        let changed: Vec<String> = self.distinct.iter().map(|text| change(text)).collect();
        Self::new(self.places.iter().map(|&place| changed.get(place as usize)))
    }
}
