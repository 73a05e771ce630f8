use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use gallerist_retrieval::MatrixView;
use gallerist_retrieval::columns::{Column, ColumnKind};
use gallerist_retrieval::condition::Table;
use gallerist_retrieval::index::{ExactIndex, IdLists, IndexInfo};

use super::*;

/// An index whose next changes cannot be stored.
struct Full {
    index: ExactIndex,
    failures: usize,
    /// Whether it takes no items after such a failure.
    breaks: bool,
    is_broken: bool,
    /// Told when a search begins, and what the search waits for.
    search: Option<Mutex<(Sender<()>, Receiver<()>)>>,
}

impl Full {
    fn new(index: ExactIndex, failures: usize) -> Self {
        Self { index, failures, breaks: false, is_broken: false, search: None }
    }
}

fn no_space() -> gallerist_retrieval::Error {
    let source = std::io::Error::other("no space left on device");
    gallerist_retrieval::Error::Io { action: "write", path: "g.index".into(), source }
}

impl Index for Full {
    fn info(&self) -> gallerist_retrieval::Result<IndexInfo> {
        self.index.info()
    }

    fn origin(&self) -> gallerist_retrieval::Result<Origin> {
        self.index.origin()
    }

    fn sources(&self) -> gallerist_retrieval::Result<Vec<Source>> {
        self.index.sources()
    }

    fn columns(&self) -> gallerist_retrieval::Result<Vec<(String, ColumnKind)>> {
        self.index.columns()
    }

    fn labels(&self, filter: &ItemFilter) -> gallerist_retrieval::Result<Vec<(u64, Option<String>)>> {
        self.index.labels(filter)
    }

    fn upsert(&mut self, items: &Items) -> gallerist_retrieval::Result<()> {
        if self.is_broken { Err(no_space()) } else { self.index.upsert(items) }
    }

    fn remove(&mut self, ids: &[u64]) -> gallerist_retrieval::Result<usize> {
        self.index.remove(ids)
    }

    fn search(
        &self,
        queries: MatrixView<'_>,
        k: usize,
        filter: &ItemFilter,
    ) -> gallerist_retrieval::Result<IdLists> {
        if let Some(search) = &self.search {
            let (begins, waits) = &*search.lock().unwrap();
            begins.send(()).unwrap();
            waits.recv_timeout(Duration::from_secs(20)).expect("the test waits for the search");
        }
        self.index.search(queries, k, filter)
    }

    fn get(&self, ids: &[u64]) -> gallerist_retrieval::Result<Vec<Option<Item>>> {
        self.index.get(ids)
    }

    fn flush(&mut self) -> gallerist_retrieval::Result<()> {
        if self.failures == 0 {
            return Ok(());
        }
        self.failures -= 1;
        self.is_broken = self.breaks;
        Err(no_space())
    }
}

fn one(id: u64, value: f32, label: Option<&str>, price: Option<&str>) -> Items {
    let column = price.map(|price| Column::infer("price", [price]).unwrap());
    let set = EmbeddingSet {
        metric: Some(Metric::Euclidean),
        labels: label.map(|label| vec![label.to_owned()]),
        paths: Some(vec![format!("{id}.png")]),
        columns: Columns::new(column.into_iter().collect()).unwrap(),
        ..Matrix::new(1, 1, vec![value]).unwrap().into()
    };
    Items::new(vec![id], set).unwrap()
}

fn all(gallery: &Gallery) -> Vec<Item> {
    let mut searcher = gallery.searcher_to_change();
    let index = searcher.index().unwrap();
    let ids = index.ids(&ItemFilter::default()).unwrap();
    index.get(&ids).unwrap().into_iter().flatten().collect()
}

#[test]
fn a_change_that_cannot_be_stored_is_taken_back_and_can_be_repeated() {
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    index.upsert(&one(1, 1.0, Some("a"), Some("7"))).unwrap();
    index.upsert(&one(2, 2.0, None, None)).unwrap();
    let gallery = Gallery::from_index("test", Box::new(Full::new(index, 3))).unwrap();
    let before = all(&gallery);
    let (new, other) = (one(3, 3.0, Some("b"), None), one(1, 4.0, Some("c"), None));
    assert!(gallery.add(&new, false).unwrap_err().to_string().contains("no space left"));
    assert!(gallery.add(&other, true).is_err());
    assert!(gallery.remove(2).is_err());
    assert_eq!(all(&gallery), before);
    assert_eq!(gallery.catalog().ids(), [1, 2]);

    assert_eq!(gallery.add(&new, false).unwrap(), Added { new: 1, ..Added::default() });
    assert_eq!(gallery.add(&new, false).unwrap(), Added { unchanged: 1, ..Added::default() });
    assert!(gallery.remove(2).unwrap() && !gallery.remove(2).unwrap());
    assert_eq!(gallery.catalog().ids(), [1, 3]);
}

#[test]
fn an_item_that_cannot_be_put_back_is_not_lost() {
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    index.upsert(&one(1, 1.0, Some("a"), None)).unwrap();
    let index = Full { breaks: true, ..Full::new(index, 1) };
    let gallery = Gallery::from_index("test", Box::new(index)).unwrap();
    let new = one(1, 4.0, Some("b"), None);
    assert!(gallery.add(&new, true).unwrap_err().to_string().contains("no space left"));
    assert_eq!(all(&gallery), [new.item(0)]);
    assert_eq!(gallery.catalog().labels.get(0), Some("a"));
}

#[test]
fn a_search_delays_neither_a_reload_nor_who_reads_the_items() {
    let ((begins, has_begun), (go, waits)) = (channel(), channel());
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    index.upsert(&one(1, 1.0, Some("a"), None)).unwrap();
    let index = Full { search: Some(Mutex::new((begins, waits))), ..Full::new(index, 0) };
    let gallery = Arc::new(Gallery::from_index("test", Box::new(index)).unwrap());
    let own = Arc::clone(&gallery);
    let query = Query { vector: vec![0.0], k: 1, filter: ItemFilter::default(), mask: None };
    let search = std::thread::spawn(move || own.search(&[query]).unwrap().remove(0).found);
    has_begun.recv().unwrap();
    gallery.freeze(true);
    assert!(matches!(gallery.remove(1), Err(Error::Reopening)));
    assert_eq!(gallery.catalog().ids(), [1]);
    go.send(()).unwrap();
    assert_eq!(search.join().unwrap(), [(1, 1.0)]);
}

#[test]
fn a_file_that_changes_between_the_check_and_the_write_is_outdated_until_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.index");
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    index.upsert(&one(1, 1.0, Some("a"), None)).unwrap();
    index.save(&path).unwrap();
    let gallery = Gallery::open(&path, true).unwrap();
    let before = all(&gallery);
    index.upsert(&one(2, 2.0, None, None)).unwrap();
    index.save(&path).unwrap();
    // As if the other program had written after the stamp was compared.
    gallery.changes().stamp = Some(Stamp::of(&path));
    for _ in 0..2 {
        assert!(matches!(gallery.add(&one(3, 3.0, None, None), false), Err(Error::Outdated)));
        assert!(matches!(gallery.remove(1), Err(Error::Outdated)));
        assert!(gallery.is_outdated(), "a reload opens it");
    }
    assert_eq!((all(&gallery), gallery.catalog().ids()), (before, &[1][..]));
    let gallery = Gallery::open(&path, true).unwrap();
    assert_eq!(gallery.add(&one(3, 3.0, None, None), false).unwrap(), Added { new: 1, ..Added::default() });
    assert_eq!(gallery.catalog().ids(), [1, 2, 3]);
}

#[test]
fn an_item_keeps_the_columns_of_the_item_that_it_replaces_or_has_its_own() {
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    index.upsert(&one(1, 1.0, Some("a"), Some("7"))).unwrap();
    let gallery = Gallery::from_index("test", Box::new(index)).unwrap();
    let same = gallery.add_keeping_columns(&one(1, 1.0, Some("a"), None), false).unwrap();
    assert_eq!(same, Added { unchanged: 1, ..Added::default() });
    assert!(gallery.add_keeping_columns(&one(1, 1.0, Some("b"), None), false).is_err());
    let replaced = gallery.add_keeping_columns(&one(1, 2.0, Some("b"), None), true).unwrap();
    assert_eq!(replaced, Added { replaced: 1, ..Added::default() });
    let item = all(&gallery).remove(0);
    let values = (item.label.as_deref(), item.columns_as_json()["price"].as_f64());
    assert_eq!(values, (Some("b"), Some(7.0)));
    assert_eq!(gallery.catalog().columns().row_as_json(0)["price"], 7);
    // Other columns are a change, also if there are none.
    assert!(gallery.add(&one(1, 2.0, Some("b"), None), false).is_err());
    let replaced = gallery.add(&one(1, 2.0, Some("b"), None), true).unwrap();
    assert_eq!(replaced, Added { replaced: 1, ..Added::default() });
    assert!(all(&gallery).remove(0).columns_as_json().is_empty());
    assert!(gallery.catalog().columns().row(0).is_empty());
}

#[test]
fn a_search_names_its_items_even_if_they_are_removed_before_its_answer() {
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    let set = EmbeddingSet {
        metric: Some(Metric::Euclidean),
        labels: Some(vec!["a".to_owned(), "b".to_owned()]),
        ..Matrix::new(2, 1, vec![0.0, 5.0]).unwrap().into()
    };
    index.upsert(&Items::new(vec![1, 2], set).unwrap()).unwrap();
    let gallery = Gallery::from_index("test", Box::new(index)).unwrap();
    let query = Query { vector: vec![0.0], k: 2, filter: ItemFilter::default(), mask: None };
    let Listed { found, catalog } = gallery.search(&[query]).unwrap().remove(0);
    assert!(gallery.remove(1).unwrap());
    assert_eq!(found, [(1, 0.0), (2, 5.0)]);
    let label = |id| catalog.labels.get(catalog.row(id).unwrap());
    assert_eq!((label(1), label(2)), (Some("a"), Some("b")));
    assert_eq!(gallery.catalog().row(1), None);
}
