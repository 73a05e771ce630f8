//! The interface of every index, and what adding items changes.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Serialize;

use super::filter::ItemFilter;
use super::info::IndexInfo;
use super::items::{Item, Items, check_id_of_path, stable_id};
use super::lists::IdLists;
use super::origin::Origin;
use crate::columns::ColumnKind;
use crate::file::Source;
use crate::{Error, MatrixView, Result};

/// A gallery whose items have ids: search, add, replace, remove.
///
/// The next search reflects every change. Changes are durable once
/// [`flush`](Self::flush) has returned.
///
/// Errors of a database that is reached over a network are [`Error::Remote`]; every method of such an
/// index can return them.
pub trait Index: Send + Sync {
    /// Its kind, size and settings.
    ///
    /// # Errors
    /// Only those of a database.
    fn info(&self) -> Result<IndexInfo>;

    /// Where the embeddings come from.
    ///
    /// # Errors
    /// Only those of a database.
    fn origin(&self) -> Result<Origin>;

    /// The sources of the items, in the order of their first item, where the index keeps them.
    ///
    /// # Errors
    /// Only those of a database.
    fn sources(&self) -> Result<Vec<Source>> {
        Ok(Vec::new())
    }

    /// Names and kinds of the further columns of the items.
    ///
    /// # Errors
    /// Only those of a database.
    fn columns(&self) -> Result<Vec<(String, ColumnKind)>> {
        Ok(Vec::new())
    }

    /// Refuses a filter whose condition does not fit the columns of the items.
    ///
    /// # Errors
    /// [`Error::Condition`], and those of a database.
    fn check_filter(&self, filter: &ItemFilter) -> Result<()> {
        match filter.condition {
            Some(_) => self.ids(filter).map(drop),
            None => Ok(()),
        }
    }

    /// Id and label of every item that `filter` admits, in the order of ids.
    ///
    /// # Errors
    /// [`Error::Condition`] for a condition that does not fit the columns, and those of a database.
    fn labels(&self, filter: &ItemFilter) -> Result<Vec<(u64, Option<String>)>>;

    /// The ids of all items that `filter` admits, rising.
    ///
    /// # Errors
    /// As [`labels`](Self::labels).
    fn ids(&self, filter: &ItemFilter) -> Result<Vec<u64>> {
        Ok(self.labels(filter)?.into_iter().map(|(id, _)| id).collect())
    }

    /// The number after the largest id that an item has or, in an index on this machine, had: the first number for
    /// [`Items::numbered`]. What names a removed item by its id, such as a tag, then never means a new item.
    ///
    /// # Errors
    /// As [`labels`](Self::labels).
    fn next_id(&self) -> Result<u64> {
        Ok(self.ids(&ItemFilter::default())?.last().map_or(0, |id| id + 1))
    }

    /// Adds items. An item whose id exists already replaces the item of that id.
    ///
    /// The first items that name a model give the index their [model](IndexInfo::model).
    ///
    /// # Errors
    /// As [`IndexInfo::check_items`]; then nothing has changed. [`Error::ReadOnly`] for an index that
    /// cannot be changed.
    fn upsert(&mut self, items: &Items) -> Result<()>;

    /// [`upsert`](Self::upsert) that tells `progress` how many of how many items are in, where the
    /// index takes them one after the other.
    ///
    /// An HNSW index ends at [`interrupt::raise`](gallerist_util::interrupt::raise): the items that are linked by then are
    /// in, and of the others those that they would replace. An exact index takes all items at once, and does not end.
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert).
    fn upsert_with(&mut self, items: &Items, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let _ = progress;
        self.upsert(items)
    }

    /// Adds new items. Items that the index has unchanged are left as they are. An item that differs
    /// from the item of its id is refused, unless `replace`.
    ///
    /// ```
    /// use gallerist_retrieval::index::{ExactIndex, Index, Items};
    /// use gallerist_retrieval::{Matrix, search::Metric};
    ///
    /// let item = |value| Items::new(vec![7], Matrix::new(1, 1, vec![value])?.into());
    /// let mut index = ExactIndex::new(1, Metric::Euclidean)?;
    /// index.add(&item(0.5)?, false)?;
    /// assert_eq!(index.add(&item(0.5)?, false)?.unchanged, 1);
    /// assert!(index.add(&item(0.6)?, false).is_err());
    /// assert_eq!(index.add(&item(0.6)?, true)?.replaced, 1);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Replaces`], and as [`upsert`](Self::upsert); then nothing has changed.
    fn add(&mut self, items: &Items, replace: bool) -> Result<Added> {
        self.add_with(items, replace, &mut |_, _| {})
    }

    /// [`add`](Self::add) with the progress of [`upsert_with`](Self::upsert_with).
    ///
    /// # Errors
    /// As [`add`](Self::add).
    fn add_with(
        &mut self,
        items: &Items,
        replace: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Added> {
        let addition = Addition::of(self, items)?;
        if !replace {
            addition.check(items)?;
        }
        let (gone, written) = addition.changes(items);
        if !gone.is_empty() {
            self.remove(&gone)?;
        }
        if !written.is_empty() {
            self.upsert_with(&written, progress)?;
        }
        Ok(addition.added())
    }

    /// Removes the items with these ids, and returns how many there were. Ids that name no item are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for an index that cannot be changed.
    fn remove(&mut self, ids: &[u64]) -> Result<usize>;

    /// For each row of `queries` the best `k` items that `filter` admits. A list is shorter than
    /// `k` when there are fewer.
    ///
    /// # Errors
    /// As [`IndexInfo::check_queries`], [`Error::Empty`] for an index without items, and [`Error::Condition`] for a
    /// condition that does not fit the columns.
    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists>;

    /// [`search`](Self::search) of all items that compares the query with every one: the lists by
    /// which the recall of an approximate index is measured.
    ///
    /// # Errors
    /// As [`search`](Self::search), and [`Error::Unsupported`] for an approximate index that cannot.
    fn search_all(&self, queries: MatrixView<'_>, k: usize) -> Result<IdLists> {
        let kind = self.info()?.kind;
        match kind.is_exact {
            true => self.search(queries, k, &ItemFilter::default()),
            false => Err(Error::Unsupported { what: "an exact search", index: kind.noun.to_owned() }),
        }
    }

    /// The items with these ids, in that order; `None` for an id that names no item.
    ///
    /// # Errors
    /// Only those of a database, and [`Error::Changed`] for a mapped index whose file was changed.
    fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>>;

    /// Sets how many candidates an approximate search keeps, at least 1: more candidates find more of
    /// the nearest items and take longer.
    ///
    /// # Errors
    /// [`Error::Option`] for 0, [`Error::Unsupported`] for an index that keeps none.
    fn set_ef(&mut self, ef: usize) -> Result<()> {
        let _ = ef;
        Err(Error::Unsupported { what: "`ef`", index: self.info()?.kind.noun.to_owned() })
    }

    /// Frees what removed and replaced items still occupy. Tells `progress` how many of how many
    /// items are done.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for an index that cannot be changed.
    fn compact(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let _ = progress;
        Ok(())
    }

    /// Makes all that was acknowledged so far durable. An index in memory has nothing to do.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Changed`] for a file that another program has changed since it was opened, and those of a database.
    fn flush(&mut self) -> Result<()>;

    /// Writes the index to a file, atomically; [`flush`](Self::flush) writes there from now on.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Changed`] for its own file that another program has changed since, and [`Error::Unsupported`] for an index that is kept in a database.
    fn save(&mut self, path: &Path) -> Result<()> {
        let _ = path;
        Err(Error::Unsupported { what: "saving to a file", index: self.info()?.place.to_owned() })
    }
}

/// Items that are looked up in one call: each comes with its embedding.
const ITEMS_AT_A_TIME: usize = 4096;

/// What [adding](Index::add) items did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Added {
    /// Items that did not exist.
    pub new: usize,
    /// Items that existed, the same to the last bit.
    pub unchanged: usize,
    /// Items that replaced others.
    pub replaced: usize,
}

/// How items compare with the items of an index: which are new, which exist unchanged, which would
/// replace another.
#[derive(Clone, Debug, Default)]
pub struct Addition {
    /// Rows that are not in the index.
    pub new: Vec<usize>,
    /// Rows that exist unchanged.
    pub unchanged: Vec<usize>,
    /// Rows that would replace an item.
    pub replaced: Vec<Replaced>,
}

/// A row and the item that it would replace.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The row.
    pub row: usize,
    /// The existing item. Its id differs from the row's when it has the row's path and no known
    /// source.
    pub there: Item,
}

impl Addition {
    /// Compares `items` with the items of `index`.
    ///
    /// An item without a source, from a file that was written before sources were kept, is treated
    /// as the item of the same path from any source: whether it is the same image cannot be known.
    /// Of several rows of this path, one is that item ([`rows_of_other_sources`]), and the others are new.
    ///
    /// # Errors
    /// As [`IndexInfo::check_items`], and those of a database.
    pub fn of(index: &(impl Index + ?Sized), items: &Items) -> Result<Self> {
        let info = index.info()?;
        info.check_items(items)?;
        let (mut addition, mut found) = (Self::default(), Vec::new());
        if info.count == 0 {
            addition.new = (0..items.len()).collect();
            return Ok(addition);
        }
        for start in (0..items.len()).step_by(ITEMS_AT_A_TIME) {
            let rows = start..items.len().min(start + ITEMS_AT_A_TIME);
            let by_id = index.get(&items.ids()[rows.clone()])?;
            let by_path = without_source(index, items, rows.clone())?;
            for ((row, by_id), by_path) in rows.zip(by_id).zip(by_path) {
                let is_by_path = by_id.is_none();
                let Some(there) = by_id.or(by_path) else {
                    addition.new.push(row);
                    continue;
                };
                let same = is_same(items, row, &there);
                if is_by_path {
                    found.push((row, there.id, same));
                }
                match same {
                    true => addition.unchanged.push(row),
                    false => addition.replaced.push(Replaced { row, there }),
                }
            }
        }
        let others = rows_of_other_sources(items.ids(), &found);
        if !others.is_empty() {
            addition.unchanged.retain(|row| !others.contains(row));
            addition.replaced.retain(|one| !others.contains(&one.row));
            addition.new.extend(others);
            addition.new.sort_unstable();
        }
        Ok(addition)
    }

    /// Refuses items that would replace others.
    ///
    /// # Errors
    /// [`Error::Replaces`].
    pub fn check(&self, items: &Items) -> Result<()> {
        let Some(Replaced { row, there }) = self.replaced.first() else { return Ok(()) };
        let new = items.item(*row);
        Err(Error::Replaces {
            count: self.replaced.len(),
            difference: difference(&new, there),
            new: Box::new(new.name()),
            old: Box::new(there.name()),
        })
    }

    /// The ids of items that are removed because an item with another id replaces them, and the items
    /// that are written.
    pub fn changes(&self, items: &Items) -> (Vec<u64>, Items) {
        let mut rows: Vec<usize> = self.replaced.iter().map(|one| one.row).chain(self.new.clone()).collect();
        rows.sort_unstable();
        let moved = self.replaced.iter().filter(|one| one.there.id != items.ids()[one.row]);
        (moved.map(|one| one.there.id).collect(), items.select(&rows))
    }

    /// How many of each there are.
    pub fn added(&self) -> Added {
        Added { new: self.new.len(), unchanged: self.unchanged.len(), replaced: self.replaced.len() }
    }
}

/// Refuses an index whose items have paths and [other ids](check_id_of_path): items that are added under the ids of their paths
/// ([`Items::from_set`]) would not be recognized as those that it has already. The item of the smallest id decides, because row
/// numbers are smaller than the ids of paths.
///
/// ```
/// use gallerist_retrieval::index::{ExactIndex, Index, Items, check_path_ids};
/// use gallerist_retrieval::{EmbeddingSet, Matrix, search::Metric};
///
/// let paths = Some(vec!["1.png".to_owned()]);
/// let set = EmbeddingSet { paths, ..Matrix::new(1, 1, vec![0.5])?.into() };
/// let mut index = ExactIndex::new(1, Metric::Euclidean)?;
/// index.upsert(&Items::from_set(set.clone())?)?;
/// assert!(check_path_ids(&index).is_ok());
/// index.upsert(&Items::numbered(set, 0)?)?;
/// assert!(check_path_ids(&index).is_err());
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::OwnIds`], and those of [`Index::ids`] and [`Index::get`].
pub fn check_path_ids(index: &(impl Index + ?Sized)) -> Result<()> {
    let Some(&first) = index.ids(&ItemFilter::default())?.first() else { return Ok(()) };
    match index.get(&[first])?.pop().flatten() {
        Some(Item { path: Some(path), source, .. }) => check_id_of_path(first, source.as_deref(), &path),
        _ => Ok(()),
    }
}

/// An item without a source is one of the rows that have its path: the one that has its id, else the first that is the same, else
/// the first. Returns the other rows of that path, which are new images.
///
/// `ids` has the id of each row. `found` has, in the order of the rows, those whose path is that of such an item, the id of the
/// item, and whether the row is the same.
pub fn rows_of_other_sources(ids: &[u64], found: &[(usize, u64, bool)]) -> HashSet<usize> {
    let mut row_of: HashMap<u64, (usize, bool)> = HashMap::new();
    for &(row, item, same) in found {
        let best = row_of.entry(item).or_insert((row, same));
        if same && !best.1 {
            *best = (row, same);
        }
    }
    for id in ids {
        row_of.remove(id);
    }
    let is_item = |row: usize, item: u64| row_of.get(&item).is_some_and(|best| best.0 == row);
    found.iter().filter(|&&(row, item, _)| !is_item(row, item)).map(|&(row, ..)| row).collect()
}

/// For each of `rows` that has a source the item of its path that has none.
fn without_source(
    index: &(impl Index + ?Sized),
    items: &Items,
    rows: std::ops::Range<usize>,
) -> Result<Vec<Option<Item>>> {
    let set = items.set();
    let mut found = vec![None; rows.len()];
    let Some(paths) = set.paths.as_ref().filter(|_| set.sources.is_some()) else { return Ok(found) };
    let start = rows.start;
    let asked: Vec<usize> = rows.filter(|&row| set.source_of(row).is_some()).collect();
    let ids: Vec<u64> = asked.iter().map(|&row| stable_id(&paths[row])).collect();
    for (row, item) in asked.into_iter().zip(index.get(&ids)?) {
        found[row - start] =
            item.filter(|item| item.source.is_none() && item.path.as_ref() == Some(&paths[row]));
    }
    Ok(found)
}

/// Whether an item exists already: everything known of it is the same, except a source that was not
/// kept.
fn is_same(items: &Items, row: usize, there: &Item) -> bool {
    let new = items.item(row);
    let same_bits = new
        .embedding
        .iter()
        .map(|value| value.to_bits())
        .eq(there.embedding.iter().map(|value| value.to_bits()));
    let same_source = new.source == there.source || there.source.is_none();
    same_bits
        && same_source
        && (&new.label, &new.path, &new.camera) == (&there.label, &there.path, &there.camera)
        && difference_of_columns(&new, there).is_none()
}

/// What the existing item has and the new one has not.
fn difference(new: &Item, there: &Item) -> String {
    let differs = |what: &str, new: &Option<String>, there: &Option<String>| {
        let value =
            |text: &Option<String>| text.as_ref().map_or("none".to_owned(), |text| format!("`{text}`"));
        (new != there).then(|| format!("the {what} {}, not {}", value(there), value(new)))
    };
    let source = differs("source", &new.source, &there.source).filter(|_| there.source.is_some());
    let path = differs("path", &new.path, &there.path);
    let label = differs("label", &new.label, &there.label);
    let camera = differs("camera", &new.camera, &there.camera);
    let differs = source.or(path).or(label).or(camera).or_else(|| difference_of_columns(new, there));
    differs.unwrap_or_else(|| "another embedding".to_owned())
}

/// The first column whose value differs. Values are compared as text: the kind of a column may have changed.
fn difference_of_columns(new: &Item, there: &Item) -> Option<String> {
    let text = |item: &Item, name: &str| Some(item.columns.get(name)?.value(0)?.to_string());
    let names = there.columns.names().chain(new.columns.names());
    let mut values = names.map(|name| (name, text(there, name), text(new, name)));
    let (name, there, new) = values.find(|(_, there, new)| there != new)?;
    let shown = |value: Option<String>| value.map_or("none".to_owned(), |value| format!("`{value}`"));
    Some(format!("the column `{name}` {}, not {}", shown(there), shown(new)))
}
