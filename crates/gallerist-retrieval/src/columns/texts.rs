//! Texts of rows, each distinct one kept once.

use std::collections::{HashMap, HashSet};

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

    /// The texts of rows by their places in `distinct`, or [`MISSING`]. They are not copied if they are what
    /// [`new`](Self::new) makes: not empty, each once, in the order of their first row, and none without a row.
    ///
    /// # Panics
    /// When there is no such place.
    pub(super) fn of_places(distinct: Vec<String>, places: Vec<u32>) -> Self {
        let mut used = 0;
        let in_order = places.iter().filter(|&&place| place != MISSING).all(|&place| {
            used += u32::from(place == used);
            place < used
        });
        let mut known = HashSet::with_capacity(distinct.len());
        if in_order
            && used as usize == distinct.len()
            && distinct.iter().all(|text| !text.is_empty() && known.insert(text.as_str()))
        {
            return Self { distinct, places };
        }
        Self::new(places.iter().map(|&place| (place != MISSING).then(|| &distinct[place as usize])))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_any_list_of_texts_make_the_texts_of_the_rows() {
        let lists: [&[&str]; 6] =
            [&["a", "b"], &["b", "a"], &["a", "a"], &["a", ""], &["a", "b", "c"], &["a"]];
        let rows: [&[u32]; 5] = [&[0, 1, 0, MISSING], &[1, 0], &[0], &[MISSING], &[]];
        for distinct in lists {
            for places in rows
                .iter()
                .filter(|places| places.iter().all(|&p| p == MISSING || (p as usize) < distinct.len()))
            {
                let texts = places.iter().map(|&place| distinct.get(place as usize));
                let owned = distinct.iter().map(|text| (*text).to_owned()).collect();
                assert_eq!(
                    Texts::of_places(owned, places.to_vec()),
                    Texts::new(texts),
                    "{distinct:?} {places:?}"
                );
            }
        }
    }
}
