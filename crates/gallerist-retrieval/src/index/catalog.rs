//! What is known about the rows of an embedded index.

use std::collections::{HashMap, HashSet};

use super::filter::{Among, ItemFilter};
use super::items::{Item, Items};
use crate::Result;
use crate::columns::Columns;
use crate::condition::{RowTexts, Table};
use crate::file::{NO_SOURCE, Source, Sources};

/// One value per row, each distinct one kept once.
#[derive(Clone, Default)]
struct Column {
    codes: Vec<u32>,
    names: Vec<String>,
    known: HashMap<String, u32>,
}

/// The code of a row without a value.
const NONE: u32 = NO_SOURCE;

impl Column {
    fn code(&mut self, value: Option<&str>) -> u32 {
        let Some(value) = value else { return NONE };
        if let Some(&code) = self.known.get(value) {
            return code;
        }
        // Rows are fewer than 2^32 - 1, and so are their values.
        let code = self.names.len() as u32;
        self.known.insert(value.to_owned(), code);
        self.names.push(value.to_owned());
        code
    }

    fn get(&self, row: usize) -> Option<&str> {
        self.names.get(self.codes[row] as usize).map(String::as_str)
    }
}

/// One entry per row, some of them missing; `None` when all are.
pub(super) type List = Option<Vec<Option<String>>>;

/// Label, path and camera of a row of `items`.
fn entries(items: &Items, row: usize) -> [Option<&str>; 3] {
    let set = items.set();
    [&set.labels, &set.paths, &set.cameras].map(|list| list.as_ref().map(|list| list[row].as_str()))
}

/// Ids, labels, paths, cameras, sources and further columns of rows that are added at the end or replaced.
#[derive(Clone, Default)]
pub(super) struct Catalog {
    ids: Vec<u64>,
    labels: Column,
    cameras: Column,
    /// The names of the sources.
    sources: Column,
    /// Where the images of a source are, by its name.
    images: HashMap<String, String>,
    paths: Vec<Option<Box<str>>>,
    /// Further columns, one value per row each.
    columns: Columns,
}

impl Catalog {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Row `row` with its embedding.
    pub(super) fn item(&self, row: usize, embedding: &[f32]) -> Item {
        Item {
            id: self.ids[row],
            embedding: embedding.to_vec(),
            label: self.labels.get(row).map(str::to_owned),
            path: self.paths[row].as_deref().map(str::to_owned),
            camera: self.cameras.get(row).map(str::to_owned),
            source: self.sources.get(row).map(str::to_owned),
            columns: self.columns.of_row(row),
        }
    }

    /// The further columns.
    pub(super) fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Adds row `from` of `items` at the end, without its [columns](Self::append_columns).
    pub(super) fn push(&mut self, items: &Items, from: usize) {
        let source = items.set().sources.as_ref().and_then(|sources| sources.get(from));
        self.push_row(items.ids()[from], entries(items, from), source);
    }

    fn push_row(&mut self, id: u64, [label, path, camera]: [Option<&str>; 3], source: Option<&Source>) {
        self.ids.push(id);
        let (label, camera, source) =
            (self.labels.code(label), self.cameras.code(camera), self.source_code(source));
        self.labels.codes.push(label);
        self.cameras.codes.push(camera);
        self.sources.codes.push(source);
        self.paths.push(path.map(Box::from));
    }

    /// The code of a source; where its images are is noted when it is known for the first time.
    fn source_code(&mut self, source: Option<&Source>) -> u32 {
        if let Some(Source { name, images: Some(images) }) = source
            && !self.images.contains_key(name)
        {
            self.images.insert(name.clone(), images.clone());
        }
        self.sources.code(source.map(|source| source.name.as_str()))
    }

    /// The source of each row, where any has one.
    pub(super) fn sources(&self) -> Option<Sources> {
        let list = self
            .sources
            .names
            .iter()
            .map(|name| Source { name: name.clone(), images: self.images.get(name).cloned() });
        let rows = self.sources.codes.iter().map(|&code| (code != NONE).then_some(code as usize));
        Sources::new(list.collect(), rows).expect("every code names a source").or_none()
    }

    /// Replaces the information about `row` by that of row `from` of `items`, without its [columns](Self::join_columns).
    pub(super) fn replace(&mut self, row: usize, items: &Items, from: usize) {
        let [label, path, camera] = entries(items, from);
        self.labels.codes[row] = self.labels.code(label);
        self.cameras.codes[row] = self.cameras.code(camera);
        let source = items.set().sources.as_ref().and_then(|sources| sources.get(from));
        self.sources.codes[row] = self.source_code(source);
        self.paths[row] = path.map(Box::from);
    }

    /// Takes the columns of rows that were added at the end, after `before` rows.
    pub(super) fn append_columns(&mut self, items: &Items, before: usize) {
        self.columns.append(before, &items.set().columns, items.len());
    }

    /// Takes the columns of rows that were added or replaced. Each row has the values of its place in the list of the
    /// `before` rows before and those of `items` after them.
    pub(super) fn join_columns(&mut self, items: &Items, before: usize, places: &[usize]) {
        self.append_columns(items, before);
        // Rows that were only added are in their places.
        if !places.iter().copied().eq(0..before + items.len()) {
            self.columns = self.columns.select(places);
        }
    }

    /// A catalog of its lists, each of one entry per id.
    pub(super) fn from_lists(
        ids: Vec<u64>,
        lists: [List; 3],
        sources: Option<&Sources>,
        columns: Columns,
    ) -> Self {
        let mut catalog = Self { columns, ..Self::default() };
        let entry = |list: &'_ List, row: usize| list.as_ref().and_then(|list| list[row].clone());
        for (row, id) in ids.into_iter().enumerate() {
            let [label, path, camera] = lists.each_ref().map(|list| entry(list, row));
            let source = sources.and_then(|sources| sources.get(row));
            catalog.push_row(id, [label.as_deref(), path.as_deref(), camera.as_deref()], source);
        }
        catalog
    }

    /// The lists that [`from_lists`](Self::from_lists) takes, with their names.
    pub(super) fn lists(&self) -> [(&'static str, Vec<Option<&str>>); 3] {
        let rows = || 0..self.len();
        [
            ("labels", rows().map(|row| self.labels.get(row)).collect()),
            ("paths", rows().map(|row| self.paths[row].as_deref()).collect()),
            ("cameras", rows().map(|row| self.cameras.get(row)).collect()),
        ]
    }

    /// The rows named, in that order.
    pub(super) fn select(&self, rows: &[usize]) -> Self {
        let column = |column: &Column| Column {
            codes: rows.iter().map(|&row| column.codes[row]).collect(),
            ..column.clone()
        };
        Self {
            ids: rows.iter().map(|&row| self.ids[row]).collect(),
            labels: column(&self.labels),
            cameras: column(&self.cameras),
            sources: column(&self.sources),
            images: self.images.clone(),
            paths: rows.iter().map(|&row| self.paths[row].clone()).collect(),
            columns: self.columns.select(rows),
        }
    }

    /// Ids and rows of the rows that exist and that `filter` admits, in the order of ids.
    ///
    /// # Errors
    /// As [`admission`](Self::admission).
    pub(super) fn admitted(
        &self,
        filter: &ItemFilter,
        exists: impl Fn(usize) -> bool,
    ) -> Result<Vec<(u64, usize)>> {
        let admission = self.admission(filter, &exists)?;
        let rows = (0..self.len()).filter(|&row| exists(row) && admission.admits(row));
        let mut found: Vec<_> = rows.map(|row| (self.ids[row], row)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Ids with the labels of their rows.
    pub(super) fn labelled(&self, rows: Vec<(u64, usize)>) -> Vec<(u64, Option<String>)> {
        rows.into_iter().map(|(id, row)| (id, self.labels.get(row).map(str::to_owned))).collect()
    }

    /// `filter` made ready to be asked by row.
    ///
    /// # Errors
    /// [`Error::Condition`](crate::Error::Condition) for a condition that does not fit the columns.
    pub(super) fn admission<'a>(
        &'a self,
        filter: &'a ItemFilter,
        exists: &dyn Fn(usize) -> bool,
    ) -> Result<Admission<'a>> {
        let table = ItemTable { catalog: self, exists };
        let mask = filter.condition.as_ref().map(|condition| condition.mask(&table)).transpose()?;
        Ok(Admission {
            labels: filter.label.as_ref().map(|among| by_code(&self.labels, among)),
            cameras: filter.camera.as_ref().map(|among| by_code(&self.cameras, among)),
            paths: filter
                .path
                .as_ref()
                .map(|among| (among.values().iter().map(String::as_str).collect(), among.wanted())),
            ids: filter.id.as_ref().map(|among| (among.values().iter().copied().collect(), among.wanted())),
            mask,
            catalog: self,
        })
    }
}

/// The rows of a catalog as a condition sees them: those that are no items have no texts.
struct ItemTable<'a> {
    catalog: &'a Catalog,
    exists: &'a dyn Fn(usize) -> bool,
}

impl Table for ItemTable<'_> {
    fn rows(&self) -> usize {
        self.catalog.len()
    }

    fn columns(&self) -> &Columns {
        &self.catalog.columns
    }

    fn texts(&self, name: &str) -> Option<RowTexts<'_>> {
        let catalog = self.catalog;
        let text = |row: usize| match name {
            _ if !(self.exists)(row) => None,
            "label" => catalog.labels.get(row),
            "camera" => catalog.cameras.get(row),
            _ => catalog.paths[row].as_deref(),
        };
        let texts: Vec<&str> = (0..catalog.len()).map(|row| text(row).unwrap_or_default()).collect();
        texts.iter().any(|text| !text.is_empty()).then_some(RowTexts::Each(texts))
    }
}

/// For each code of `column`, and at the end for rows without a value, whether it passes.
fn by_code(column: &Column, among: &Among<String>) -> Vec<bool> {
    let wanted = among.wanted();
    let mut passes = vec![!wanted; column.names.len() + 1];
    for value in among.values() {
        if let Some(&code) = column.known.get(value) {
            passes[code as usize] = wanted;
        }
    }
    passes
}

/// An [`ItemFilter`] over the rows of a catalog.
pub(super) struct Admission<'a> {
    catalog: &'a Catalog,
    labels: Option<Vec<bool>>,
    cameras: Option<Vec<bool>>,
    paths: Option<(HashSet<&'a str>, bool)>,
    ids: Option<(HashSet<u64>, bool)>,
    /// Whether each row meets the condition.
    mask: Option<Vec<bool>>,
}

impl Admission<'_> {
    pub(super) fn admits(&self, row: usize) -> bool {
        let by_code = |passes: &Option<Vec<bool>>, column: &Column| {
            passes.as_ref().is_none_or(|passes| passes[(column.codes[row] as usize).min(passes.len() - 1)])
        };
        by_code(&self.labels, &self.catalog.labels)
            && by_code(&self.cameras, &self.catalog.cameras)
            && self.mask.as_ref().is_none_or(|mask| mask[row])
            && self.ids.as_ref().is_none_or(|(ids, wanted)| ids.contains(&self.catalog.ids[row]) == *wanted)
            && self.paths.as_ref().is_none_or(|(paths, wanted)| {
                self.catalog.paths[row].as_deref().is_some_and(|path| paths.contains(path)) == *wanted
            })
    }
}
