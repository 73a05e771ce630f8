//! The metadata of the items of a gallery: ids, labels, paths, cameras, sources.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;

use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::condition::{RowTexts, Table};
use gallerist_retrieval::index::{Among, Item, ItemFilter};
use gallerist_retrieval::labels::{SEPARATOR, split};

/// The code of a row without a value.
const NONE: u32 = u32::MAX;

/// One optional text per row. Each distinct value is stored once.
#[derive(Clone, Default)]
pub(crate) struct Column {
    codes: Vec<u32>,
    names: Vec<String>,
    counts: Vec<usize>,
    known: HashMap<String, u32>,
}

impl Column {
    fn push(&mut self, value: Option<&str>) {
        self.codes.push(NONE);
        self.set(self.codes.len() - 1, value);
    }

    fn set(&mut self, row: usize, value: Option<&str>) {
        let code = match value.filter(|value| !value.is_empty()) {
            Some(value) => self.code_of(value),
            None => NONE,
        };
        let before = std::mem::replace(&mut self.codes[row], code);
        self.discount(before);
        if code != NONE {
            self.counts[code as usize] += 1;
        }
    }

    fn code_of(&mut self, value: &str) -> u32 {
        if let Some(&code) = self.known.get(value) {
            return code;
        }
        let code = self.names.len() as u32;
        self.names.push(value.to_owned());
        self.counts.push(0);
        self.known.insert(value.to_owned(), code);
        code
    }

    fn remove(&mut self, row: usize) {
        let code = self.codes.remove(row);
        self.discount(code);
    }

    /// A row does not have this code any more.
    fn discount(&mut self, code: u32) {
        if code != NONE {
            self.counts[code as usize] -= 1;
        }
    }

    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        self.names.get(self.codes[row] as usize).map(String::as_str)
    }

    /// The values in use, with the number of rows of each.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        let names = self.names.iter().map(String::as_str);
        names.zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// The number of rows with this value.
    pub(crate) fn count(&self, value: &str) -> usize {
        self.known.get(value).map_or(0, |&code| self.counts[code as usize])
    }

    /// The labels `wanted`, and the sets of labels in use with one of them: `heron|wading` for `heron`.
    pub(crate) fn with_label<'a>(&'a self, wanted: &'a [String]) -> BTreeSet<&'a str> {
        let is_wanted = |label: &str| wanted.iter().any(|other| other == label);
        let has = |value: &str| value.contains(SEPARATOR) && split(value).any(is_wanted);
        let sets = self.counts().map(|(value, _)| value).filter(|value| has(value));
        // A label that no item has may be that of an item that another program has added to a database.
        wanted.iter().map(String::as_str).chain(sets).collect()
    }

    /// The number of rows whose label names the same class as `label`.
    pub(crate) fn count_of_class(&self, label: &str) -> usize {
        self.counts().filter(|(value, _)| same_class(value, label)).map(|(_, count)| count).sum()
    }

    /// The number of rows with `value` in this column and `that` in `other`.
    fn count_with(&self, value: &str, other: &Self, that: &str) -> usize {
        let (Some(&own), Some(&code)) = (self.known.get(value), other.known.get(that)) else { return 0 };
        self.codes.iter().zip(&other.codes).filter(|&(&a, &b)| a == own && b == code).count()
    }

    /// For each code whether it passes; the last entry is for rows without a value.
    fn passes(&self, among: &Among<String>) -> Vec<bool> {
        let wanted = among.wanted();
        let mut passes = vec![!wanted; self.names.len() + 1];
        for code in among.values().iter().filter_map(|value| self.known.get(value)) {
            passes[*code as usize] = wanted;
        }
        passes
    }
}

/// The metadata of an item.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry<'a> {
    pub(crate) label: Option<&'a str>,
    pub(crate) path: Option<&'a str>,
    pub(crate) camera: Option<&'a str>,
    /// The name of its source.
    pub(crate) source: Option<&'a str>,
}

impl<'a> From<&'a Item> for Entry<'a> {
    fn from(item: &'a Item) -> Self {
        Self {
            label: item.label.as_deref(),
            path: item.path.as_deref(),
            camera: item.camera.as_deref(),
            source: item.source.as_deref(),
        }
    }
}

/// Ids, labels, paths, cameras and sources of the rows of a gallery, in its order.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    ids: Vec<u64>,
    rows: HashMap<u64, u32>,
    pub(crate) labels: Column,
    pub(crate) cameras: Column,
    /// The names of the sources.
    pub(crate) sources: Column,
    /// Further columns.
    columns: Columns,
    paths: Vec<Option<Box<str>>>,
    /// The paths of several rows, once they were asked for.
    shared_paths: OnceLock<HashSet<Box<str>>>,
}

impl Table for Catalog {
    fn rows(&self) -> usize {
        self.len()
    }

    fn columns(&self) -> &Columns {
        &self.columns
    }

    fn texts(&self, name: &str) -> Option<RowTexts<'_>> {
        let column = match name {
            "label" => &self.labels,
            "camera" => &self.cameras,
            _ => {
                let paths = || self.paths.iter().map(|path| path.as_deref().unwrap_or_default());
                return paths().any(|path| !path.is_empty()).then(|| RowTexts::Each(paths().collect()));
            }
        };
        (column.counts().next().is_some()).then_some(RowTexts::Distinct(&column.names, &column.codes))
    }
}

impl Catalog {
    /// Adds a row at the end, without further columns. Its id must be new.
    pub(crate) fn push(&mut self, id: u64, entry: Entry<'_>) {
        self.shared_paths.take();
        self.rows.insert(id, self.ids.len() as u32);
        self.ids.push(id);
        self.labels.push(entry.label);
        self.cameras.push(entry.camera);
        self.sources.push(entry.source);
        self.paths.push(boxed(entry.path));
    }

    /// Adds the further columns of the rows.
    pub(crate) fn with_columns(self, columns: Columns) -> Self {
        Self { columns, ..self }
    }

    /// Puts items in the place of those with their ids, and new ones at the end.
    pub(crate) fn put(&mut self, items: &[&Item]) {
        self.shared_paths.take();
        let before = self.len();
        // The places of all columns in a list of those before, followed by those of the items.
        let mut places: Vec<usize> = (0..before).collect();
        for (&item, place) in items.iter().zip(before..) {
            let entry = Entry::from(item);
            let Some(row) = self.row(item.id) else {
                self.push(item.id, entry);
                places.push(place);
                continue;
            };
            self.labels.set(row, entry.label);
            self.cameras.set(row, entry.camera);
            self.sources.set(row, entry.source);
            self.paths[row] = boxed(entry.path);
            places[row] = place;
        }
        if !self.columns.is_empty() || items.iter().any(|item| !item.columns.is_empty()) {
            if places.iter().enumerate().all(|(at, &place)| at == place) {
                for (item, before) in items.iter().zip(before..) {
                    self.columns.append(before, &item.columns, 1);
                }
            } else {
                let own = std::iter::once((&self.columns, before));
                let all = own.chain(items.iter().map(|item| (&item.columns, 1)));
                self.columns = Columns::concat(all).select(&places);
            }
        }
    }

    /// Whether it has this item, with the same label, path, camera, source and columns.
    pub(crate) fn has(&self, item: &Item) -> bool {
        let Some(row) = self.row(item.id) else { return false };
        let Entry { label, path, camera, source } = Entry::from(item);
        let texts = [label, path, camera, source].map(|text| text.filter(|text| !text.is_empty()));
        let own = [self.labels.get(row), self.path(row), self.cameras.get(row), self.sources.get(row)];
        // As text: the column of all rows may have another kind than that of this one.
        let value = |columns: &Columns, name: &str, row| Some(columns.get(name)?.value(row)?.to_string());
        let mut names = self.columns.names().chain(item.columns.names());
        own == texts && names.all(|name| value(&self.columns, name, row) == value(&item.columns, name, 0))
    }

    /// Removes the row of `id`; false when there is none.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let Some(row) = self.rows.remove(&id) else { return false };
        self.shared_paths.take();
        let row = row as usize;
        if !self.columns.is_empty() {
            let others: Vec<usize> = (0..self.len()).filter(|&other| other != row).collect();
            self.columns = self.columns.select(&others);
        }
        self.ids.remove(row);
        self.labels.remove(row);
        self.cameras.remove(row);
        self.sources.remove(row);
        self.paths.remove(row);
        for at in self.rows.values_mut() {
            *at -= u32::from(*at as usize > row);
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn ids(&self) -> &[u64] {
        &self.ids
    }

    pub(crate) fn row(&self, id: u64) -> Option<usize> {
        self.rows.get(&id).map(|&row| row as usize)
    }

    pub(crate) fn path(&self, row: usize) -> Option<&str> {
        self.paths[row].as_deref()
    }

    /// Whether at most one row has this path.
    pub(crate) fn is_only_path(&self, path: &str) -> bool {
        let shared = self.shared_paths.get_or_init(|| {
            let (mut known, mut shared) = (HashSet::new(), HashSet::new());
            for path in self.paths.iter().flatten() {
                if !known.insert(&**path) {
                    shared.insert(path.clone());
                }
            }
            shared
        });
        !shared.contains(path)
    }

    /// The number of rows with this label from this camera.
    pub(crate) fn seen_by(&self, label: &str, camera: &str) -> usize {
        self.labels.count_with(label, &self.cameras, camera)
    }

    /// The source of all items, if they have only one.
    pub(crate) fn only_source(&self) -> Option<&str> {
        let (source, count) = self.sources.counts().next()?;
        (count == self.len()).then_some(source)
    }

    /// `filter` prepared for queries by row. Its conditions on ids and paths are ignored: no caller sets them.
    pub(crate) fn admission(&self, filter: &ItemFilter) -> Admission<'_> {
        Admission {
            labels: filter.label.as_ref().map(|among| (&self.labels, self.labels.passes(among))),
            cameras: filter.camera.as_ref().map(|among| (&self.cameras, self.cameras.passes(among))),
        }
    }
}

fn boxed(path: Option<&str>) -> Option<Box<str>> {
    path.filter(|path| !path.is_empty()).map(Box::from)
}

/// The conditions of an [`ItemFilter`] on labels and cameras, over the rows of a catalog.
pub(crate) struct Admission<'a> {
    labels: Option<(&'a Column, Vec<bool>)>,
    cameras: Option<(&'a Column, Vec<bool>)>,
}

impl Admission<'_> {
    pub(crate) fn admits(&self, row: usize) -> bool {
        [&self.labels, &self.cameras]
            .into_iter()
            .flatten()
            .all(|(column, passes)| passes[(column.codes[row] as usize).min(passes.len() - 1)])
    }
}

/// Whether two labels name the same class: equal, or sets (`heron|wading`) that share one.
pub(crate) fn same_class(a: &str, b: &str) -> bool {
    a == b || (a.contains(SEPARATOR) || b.contains(SEPARATOR)) && split(a).any(|a| split(b).any(|b| a == b))
}

#[cfg(test)]
mod tests {
    use gallerist_retrieval::columns::{Column, Value};

    use super::*;

    fn price(values: &[&str]) -> Columns {
        Columns::new(vec![Column::infer("price", values).unwrap()]).unwrap()
    }

    fn item(id: u64, label: Option<&str>, prices: &[&str]) -> Item {
        Item {
            id,
            embedding: Vec::new(),
            label: label.map(str::to_owned),
            path: Some(format!("{id}.png")),
            camera: None,
            source: Some("birds".to_owned()),
            columns: if prices.is_empty() { Columns::default() } else { price(prices) },
        }
    }

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        let mut push = |id, label, path, camera| {
            catalog.push(id, Entry { label, path, camera, source: Some("birds") });
        };
        push(10, Some("heron"), Some("a.png"), Some("c1"));
        push(20, Some("wren"), None, None);
        push(30, None, Some(""), Some("c2"));
        push(40, Some("heron"), Some("d.png"), Some("c2"));
        catalog
    }

    #[test]
    fn the_only_source_is_that_of_every_item() {
        let mut catalog = catalog();
        assert_eq!(catalog.only_source(), Some("birds"));
        catalog.push(50, Entry::default());
        assert_eq!(catalog.only_source(), None);
        catalog.remove(50);
        catalog.push(50, Entry { source: Some("fish"), ..Entry::default() });
        assert_eq!(catalog.only_source(), None);
    }

    #[test]
    fn a_removed_row_leaves_the_others_where_they_are_found() {
        let mut catalog = catalog();
        assert!(catalog.remove(20) && !catalog.remove(20));
        assert_eq!(catalog.ids(), [10, 30, 40]);
        assert_eq!([10, 20, 30, 40].map(|id| catalog.row(id)), [Some(0), None, Some(1), Some(2)]);
        assert_eq!(catalog.labels.get(2), Some("heron"));
        assert_eq!(catalog.path(2), Some("d.png"));
        assert_eq!(catalog.labels.counts().collect::<Vec<_>>(), [("heron", 2)]);
        catalog.push(20, Entry { label: Some("wren"), ..Entry::default() });
        assert_eq!((catalog.row(20), catalog.labels.count("wren")), (Some(3), 1));
    }

    #[test]
    fn columns_stay_with_their_rows() {
        let mut catalog = catalog().with_columns(price(&["1", "2", "", "4"]));
        catalog.remove(10);
        catalog.put(&[&item(50, None, &["5"]), &item(60, None, &[])]);
        let values: Vec<_> = (0..5).map(|row| catalog.columns.get("price").unwrap().value(row)).collect();
        let number = |number| Some(Value::Number(number));
        assert_eq!(values, [number(2.0), None, number(4.0), number(5.0), None]);
    }

    #[test]
    fn an_item_takes_the_place_of_the_one_with_its_id() {
        let mut catalog = catalog().with_columns(price(&["1", "2", "", "4"]));
        let changed =
            [item(20, Some("heron"), &["7"]), item(50, Some("owl"), &["8"]), item(40, None, &["cheap"])];
        assert!(changed.iter().all(|item| !catalog.has(item)));
        catalog.put(&changed.each_ref());
        assert!(changed.iter().all(|item| catalog.has(item)));
        assert_eq!(catalog.ids(), [10, 20, 30, 40, 50]);
        let texts = |row| (catalog.labels.get(row), catalog.path(row), catalog.cameras.get(row));
        assert_eq!(texts(0), (Some("heron"), Some("a.png"), Some("c1")));
        assert_eq!(texts(1), (Some("heron"), Some("20.png"), None));
        assert_eq!(texts(3), (None, Some("40.png"), None));
        assert_eq!(catalog.labels.counts().collect::<Vec<_>>(), [("heron", 2), ("owl", 1)]);
        // One price is a text now, and so is the column.
        let prices: Vec<String> = (0..5)
            .map(|row| catalog.columns.get("price").unwrap().value(row))
            .map(|value| value.map_or_else(String::new, |value| value.to_string()))
            .collect();
        assert_eq!(prices, ["1", "7", "", "cheap", "8"]);
        // An item that was put twice is as it was the second time.
        catalog.put(&[&item(60, Some("owl"), &["1"]), &item(60, Some("wren"), &[])]);
        assert!(catalog.has(&item(60, Some("wren"), &[])) && !catalog.has(&item(60, Some("wren"), &["1"])));
        assert_eq!(catalog.len(), 6);
    }

    #[test]
    fn a_filter_admits_what_passes_every_condition() {
        let catalog = catalog();
        let admitted = |filter: ItemFilter| {
            let admission = catalog.admission(&filter);
            (0..4).filter(|&row| admission.admits(row)).collect::<Vec<_>>()
        };
        assert_eq!(admitted(ItemFilter::default()), [0, 1, 2, 3]);
        assert_eq!(admitted(ItemFilter::default().label_in(["heron", "swan"])), [0, 3]);
        assert_eq!(admitted(ItemFilter::default().label_not_in(["heron"])), [1, 2]);
        assert_eq!(admitted(ItemFilter::default().label_in(["heron"]).camera_in(["c2"])), [3]);
        assert!(admitted(ItemFilter::default().label_in(Vec::<String>::new())).is_empty());
    }

    #[test]
    fn label_sets_are_of_a_class_when_they_share_a_label() {
        assert!(same_class("a|b", "b | c") && same_class("a", "a|b") && same_class("a b", "a b"));
        assert!(!same_class("a|b", "c|d") && !same_class("ab", "a") && !same_class("a|", "b|"));
    }
}
