//! A test suite for implementations of [`Index`].
//!
//! [`run`] creates a few empty indexes, fills, searches, changes and empties them, and compares
//! every answer with the [naive index](crate::naive::NaiveIndex). It panics at the first violation of the
//! trait's contract.

use std::time::Duration;

use gallerist_retrieval::columns::{Column, Columns, Value};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::index::{Added, IdLists, Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Error, Matrix};

use crate::naive::NaiveIndex;

/// Properties of an index in addition to the contract of the trait.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Recall@10 among 3,000 items in well-separated clusters: 1 for exact search. Sets of a few hundred items are
    /// searched exactly by every index.
    pub recall: f64,
    /// Maximum error of a score, relative to max(1, score).
    pub tolerance: f64,
    /// If items with equal scores do not all fit into a list, it contains those with the lower ids. (Within a list, equal
    /// scores are always ordered by id.)
    pub ties_at_the_end: bool,
    /// It keeps further columns, and filters by conditions.
    pub columns: bool,
}

impl Promises {
    /// The properties of exact search in f32.
    pub const EXACT: Self = Self { recall: 1.0, tolerance: 1e-5, ties_at_the_end: true, columns: true };
}

const METRICS: [Metric; 3] = [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean];
const DIMENSIONS: usize = 8;

/// Checks the indexes that `make(metric, dimensions)` creates. It is called about ten times and must return an empty index.
///
/// # Panics
/// At the first violation.
pub fn run(mut make: impl FnMut(Metric, usize) -> Box<dyn Index>, promises: &Promises) {
    for metric in METRICS {
        an_empty_index_is_refused_and_holds_nothing(make(metric, DIMENSIONS).as_mut(), metric);
        small_sets_have_the_lists_of_brute_force(make(metric, DIMENSIONS).as_mut(), metric, promises);
    }
    many_items_are_found(make(Metric::Cosine, 16).as_mut(), Metric::Cosine, promises);
    many_items_are_found(make(Metric::Euclidean, 16).as_mut(), Metric::Euclidean, promises);
    what_changes_is_seen(make(Metric::Euclidean, DIMENSIONS).as_mut(), promises);
    bad_input_is_refused_and_changes_nothing(make(Metric::InnerProduct, DIMENSIONS).as_mut());
    nothing_is_replaced_unless_asked_for(make(Metric::Euclidean, DIMENSIONS).as_mut());
    images_of_one_path_in_two_sources_are_two_items(make(Metric::Cosine, DIMENSIONS).as_mut());
    if promises.columns {
        columns_are_kept_and_filter_exactly(make(Metric::Euclidean, DIMENSIONS).as_mut());
    }
}

/// A reproducible random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Integers from -3 to 3: products and sums are exact, and there are many ties.
    fn whole(&mut self, rows: usize, cols: usize) -> Matrix {
        let data = (0..rows * cols).map(|_| self.below(7) as f32 - 3.0).collect();
        Matrix::new(rows, cols, data).expect("rows x cols values")
    }

    fn uniform(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Items with all fields and items without one of them.
fn described(ids: Vec<u64>, embeddings: Matrix, fields: usize) -> Items {
    let list = |of: &dyn Fn(u64) -> String| Some(ids.iter().map(|&id| of(id)).collect());
    let set = EmbeddingSet {
        labels: if fields & 1 == 1 { list(&|id| format!("class \"{}\"", id % 5)) } else { None },
        cameras: if fields & 2 == 2 { list(&|id| format!("c{}", id % 3)) } else { None },
        paths: if fields & 4 == 4 { list(&|id| format!("a\\b/ü {id}.jpg")) } else { None },
        sources: if fields & 8 == 8 { Some(sources(&ids)) } else { None },
        ..embeddings.into()
    };
    Items::new(ids, set).expect("valid items")
}

/// Two sources; every fifth item has none.
fn sources(ids: &[u64]) -> Sources {
    let list = ["/photos/train", "\"täst\""].map(|name| Source { name: name.to_owned(), images: None });
    let rows = ids.iter().map(|id| (id % 5 > 0).then_some((id % 2) as usize));
    Sources::new(list.to_vec(), rows).expect("both are in the list")
}

fn filters() -> Vec<ItemFilter> {
    let none: [&str; 0] = [];
    let all = ItemFilter::default();
    vec![
        all.clone(),
        all.clone().label_in(["class \"1\"", "class \"4\"", "unheard of"]),
        all.clone().label_not_in(["class \"0\""]),
        all.clone().camera_in(["c2"]),
        all.clone().camera_not_in(["c0", "c1"]),
        all.clone().id_in([3, 5, 1_000_000_007, 4]),
        all.clone().id_not_in(0..40),
        all.clone().label_in(["class \"2\""]).camera_not_in(["c1"]).id_not_in([7, 12]),
        all.clone().path_in(["a\\b/ü 4.jpg", "a\\b/ü 8.jpg", "'; nothing"]),
        all.clone().path_not_in(["a\\b/ü 4.jpg"]).camera_in(["c1"]),
        all.clone().label_in(["unheard of"]),
        all.clone().label_in(none),
        all.camera_not_in(none),
    ]
}

/// Compares the lists with those of brute force.
fn assert_lists(
    lists: &IdLists,
    (naive, queries): (&NaiveIndex, &Matrix),
    k: usize,
    (metric, filter): (Metric, &ItemFilter),
    promises: &Promises,
    recall: f64,
) {
    assert_eq!(lists.len(), queries.rows(), "a list for every query");
    let sign = if metric == Metric::Euclidean { -1.0 } else { 1.0 };
    let (mut found, mut wanted) = (0, 0);
    for query in 0..queries.rows() {
        let place = format!("{metric:?}, {filter:?}, k = {k}, query {query}");
        let truth = naive.ranking(queries.row(query), metric, filter);
        let (ids, scores) = (lists.ids(query), lists.scores(query));
        assert_eq!(ids.len(), truth.len().min(k), "length of the list: {place}");
        for (at, (&id, &score)) in ids.iter().zip(scores).enumerate() {
            let Some(&(_, true_score)) = truth.iter().find(|(other, _)| *other == id) else {
                panic!("item {id} at {at} is not there or not admitted: {place}");
            };
            let error = (f64::from(score) - true_score).abs();
            assert!(
                error <= promises.tolerance * true_score.abs().max(1.0),
                "item {id} has the score {true_score}, found {score}: {place}"
            );
            if at + 1 < ids.len() {
                let (a, b) = (sign * f64::from(score), sign * f64::from(scores[at + 1]));
                assert!(a > b || a == b && id < ids[at + 1], "order of {at} and {}: {place}", at + 1);
            }
        }
        if let Some(&(_, last)) = truth.get(ids.len().wrapping_sub(1)) {
            // An item with the same score as the last expected item is also correct.
            let slack = promises.tolerance * last.abs().max(1.0);
            let good =
                |id: &u64| truth.iter().any(|(other, score)| other == id && sign * (score - last) >= -slack);
            found += ids.iter().filter(|id| good(id)).count();
            wanted += ids.len();
        }
    }
    let share = if wanted == 0 { 1.0 } else { found as f64 / wanted as f64 };
    assert!(share >= recall, "found {found} of {wanted} nearest, promised {recall}: {metric:?}, {filter:?}");
}

/// With integers, ties are exact: the ids must equal those of brute force.
fn assert_ids(
    lists: &IdLists,
    naive: &NaiveIndex,
    queries: &Matrix,
    k: usize,
    metric: Metric,
    filter: &ItemFilter,
) {
    for query in 0..queries.rows() {
        let truth = naive.ranking(queries.row(query), metric, filter);
        let ids: Vec<u64> = truth.iter().take(k).map(|&(id, _)| id).collect();
        assert_eq!(lists.ids(query), ids, "{metric:?}, {filter:?}, k = {k}, query {query}");
    }
}

fn an_empty_index_is_refused_and_holds_nothing(index: &mut dyn Index, metric: Metric) {
    let info = index.info().unwrap();
    assert_eq!((info.metric, info.dimensions, info.count), (metric, DIMENSIONS, 0));
    assert_eq!(info.model, None);
    let query = Numbers(1).whole(1, DIMENSIONS);
    let refused = index.search(query.view(), 1, &ItemFilter::default());
    assert!(matches!(refused, Err(Error::Empty { .. })), "{refused:?}");
    assert_eq!(index.get(&[7]).unwrap(), [None]);
    assert_eq!(index.remove(&[7, 8]).unwrap(), 0);
    index.upsert(&described(vec![], Matrix::new(0, DIMENSIONS, vec![]).unwrap(), 7)).unwrap();
    index.flush().unwrap();
    assert_eq!(index.info().unwrap().count, 0);
}

fn small_sets_have_the_lists_of_brute_force(index: &mut dyn Index, metric: Metric, promises: &Promises) {
    let mut numbers = Numbers(2);
    let mut naive = NaiveIndex::default();
    // Ids are unordered and sparse, and the fields differ from batch to batch.
    let batches: [(Vec<u64>, usize); 4] = [
        ((0..60).rev().collect(), 15),
        (vec![1_000_000_007], 15),
        ((200..240).step_by(2).collect(), 0),
        (vec![100, gallerist_retrieval::index::MAX_ID, 150], 5),
    ];
    for (ids, fields) in batches {
        let embeddings = numbers.whole(ids.len(), DIMENSIONS);
        let items = described(ids, embeddings, fields);
        index.upsert(&items).unwrap();
        naive.upsert(&items);
    }
    assert_eq!(index.info().unwrap().count, naive.len());
    let queries = numbers.whole(9, DIMENSIONS);
    for filter in filters() {
        for k in [1, 10, naive.len(), naive.len() + 30] {
            let lists = index.search(queries.view(), k, &filter).unwrap();
            assert_lists(&lists, (&naive, &queries), k, (metric, &filter), promises, 1.0);
            // The cosine divides by lengths, so ties are not exact.
            if metric != Metric::Cosine && (promises.ties_at_the_end || k >= naive.len()) {
                assert_ids(&lists, &naive, &queries, k, metric, &filter);
            }
        }
    }
    let nothing = Matrix::new(0, DIMENSIONS, vec![]).unwrap();
    assert!(index.search(nothing.view(), 3, &ItemFilter::default()).unwrap().is_empty());
    let asked = [150, 7, 210, 999, 1_000_000_007, 7];
    let wanted: Vec<_> = asked.iter().map(|&id| naive.get(id).cloned()).collect();
    assert_eq!(index.get(&asked).unwrap(), wanted);
}

fn many_items_are_found(index: &mut dyn Index, metric: Metric, promises: &Promises) {
    const CLUSTERS: usize = 60;
    let dimensions = index.info().unwrap().dimensions;
    let mut numbers = Numbers(3);
    let mut row = |centre: Option<&[f32]>, spread: f32| -> Vec<f32> {
        (0..dimensions)
            .map(|at| centre.map_or(0.0, |centre| centre[at]) + spread * numbers.uniform())
            .collect()
    };
    let centres: Vec<Vec<f32>> = (0..CLUSTERS).map(|_| row(None, 1.0)).collect();
    let mut rows = |count: usize| {
        let data = (0..count).flat_map(|i| row(Some(&centres[i % CLUSTERS]), 0.2)).collect();
        Matrix::new(count, dimensions, data).unwrap()
    };
    let items = described((0..3000).collect(), rows(3000), 7);
    let queries = rows(120);
    index.upsert(&items).unwrap();
    index.flush().unwrap();
    let mut naive = NaiveIndex::default();
    naive.upsert(&items);
    let all = ItemFilter::default();
    for filter in [all.clone(), all.clone().label_not_in(["class \"3\""]), all.camera_in(["c1"])] {
        let lists = index.search(queries.view(), 10, &filter).unwrap();
        assert_lists(&lists, (&naive, &queries), 10, (metric, &filter), promises, promises.recall);
    }
}

/// A few hundred random changes, each followed by a search.
fn what_changes_is_seen(index: &mut dyn Index, promises: &Promises) {
    const METRIC: Metric = Metric::Euclidean;
    let mut numbers = Numbers(4);
    let mut naive = NaiveIndex::default();
    let mut changes: Vec<String> = Vec::new();
    for step in 0..60 {
        if numbers.below(3) > 0 || naive.is_empty() {
            let mut ids: Vec<u64> = (0..=numbers.below(12)).map(|_| numbers.below(90)).collect();
            ids.sort_unstable();
            ids.dedup();
            let embeddings = numbers.whole(ids.len(), DIMENSIONS);
            let items = described(ids, embeddings, numbers.below(16) as usize);
            changes.push(format!("{step}: set {:?}", items.ids()));
            index.upsert(&items).unwrap();
            naive.upsert(&items);
        } else {
            let ids: Vec<u64> = (0..=numbers.below(10)).map(|_| numbers.below(90)).collect();
            changes.push(format!("{step}: remove {ids:?}"));
            assert_eq!(index.remove(&ids).unwrap(), naive.remove(&ids), "step {step}: removed");
        }
        if step % 7 == 0 {
            index.flush().unwrap();
        }
        assert_count(index, &naive, step, &changes);
        let queries = numbers.whole(2, DIMENSIONS);
        let every = filters();
        let filter = &every[numbers.below(every.len() as u64) as usize];
        let k = 1 + numbers.below(100) as usize;
        if naive.is_empty() {
            continue;
        }
        let lists = index.search(queries.view(), k, filter).unwrap();
        assert_lists(&lists, (&naive, &queries), k, (METRIC, filter), promises, 1.0);
        let asked: Vec<u64> = (0..3).map(|_| numbers.below(90)).collect();
        let wanted: Vec<_> = asked.iter().map(|&id| naive.get(id).cloned()).collect();
        assert_eq!(index.get(&asked).unwrap(), wanted, "step {step}: items");
    }
    let ids = naive.ids();
    assert_eq!(index.remove(&ids).unwrap(), ids.len());
    assert_eq!(index.info().unwrap().count, 0);
    let query = numbers.whole(1, DIMENSIONS);
    assert!(matches!(index.search(query.view(), 1, &ItemFilter::default()), Err(Error::Empty { .. })));
}

/// As many items as there must be. If not, says which ones differ by their ids, what later counts give, and what was changed.
fn assert_count(index: &mut dyn Index, naive: &NaiveIndex, step: usize, changes: &[String]) {
    let counted = index.info().unwrap().count;
    let wanted = naive.len();
    if counted == wanted {
        return;
    }
    let ids: Vec<u64> = (0..90).collect();
    let found = index.get(&ids).unwrap();
    let differ = ids.iter().zip(&found).filter(|&(&id, found)| found.is_some() != naive.get(id).is_some());
    let differ: Vec<u64> = differ.map(|(&id, _)| id).collect();
    let later = || {
        std::thread::sleep(Duration::from_secs(1));
        index.info().unwrap().count
    };
    let later: Vec<usize> = (0..8).map(|_| later()).collect();
    panic!(
        "step {step}: {counted} items, {wanted} wanted; by their ids, {differ:?} differ; counted again every second: {later:?}; \
         the changes: {changes:#?}"
    );
}

fn bad_input_is_refused_and_changes_nothing(index: &mut dyn Index) {
    let mut numbers = Numbers(5);
    let named = |items: Items, model: &str| {
        let set = EmbeddingSet { model: Some(model.to_owned()), ..items.set().clone() };
        Items::new(items.ids().to_vec(), set).unwrap()
    };
    index.upsert(&named(described(vec![1, 2, 3], numbers.whole(3, DIMENSIONS), 7), "sha256:one")).unwrap();
    let before = index.get(&[1, 2, 3]).unwrap();
    assert_eq!(index.info().unwrap().model.as_deref(), Some("sha256:one"));

    for value in [f32::NAN, f32::INFINITY] {
        let mut rows = numbers.whole(2, DIMENSIONS).into_vec();
        rows[DIMENSIONS + 3] = value;
        let rows = Matrix::new(2, DIMENSIONS, rows).unwrap();
        let refused = index.upsert(&described(vec![2, 9], rows.clone(), 7));
        assert!(matches!(refused, Err(Error::NonFinite { row: 1, col: 3, .. })), "{refused:?}");
        let refused = index.search(rows.view(), 1, &ItemFilter::default());
        assert!(matches!(refused, Err(Error::NonFinite { row: 1, col: 3, .. })), "{refused:?}");
    }
    let wide = numbers.whole(1, DIMENSIONS + 1);
    let refused = index.upsert(&described(vec![1], wide.clone(), 7));
    assert!(matches!(refused, Err(Error::ItemDimensions { items: 9, index: 8 })), "{refused:?}");
    let refused = index.search(wide.view(), 1, &ItemFilter::default());
    assert!(matches!(refused, Err(Error::Dimensions { queries: 9, gallery: 8 })), "{refused:?}");
    let query = numbers.whole(1, DIMENSIONS);
    let refused = index.search(query.view(), 0, &ItemFilter::default());
    assert!(matches!(refused, Err(Error::Option { option: "k", .. })), "{refused:?}");

    let others = named(described(vec![4], numbers.whole(1, DIMENSIONS), 7), "sha256:two");
    let refused = index.upsert(&others);
    assert!(matches!(refused, Err(Error::Models { .. })), "{refused:?}");
    assert_eq!(index.info().unwrap().count, 3);
    assert_eq!(index.get(&[1, 2, 3]).unwrap(), before);

    index.upsert(&others.of_any_model()).unwrap();
    let info = index.info().unwrap();
    assert_eq!(info.count, 4);
    // An index of items of two models names none of them; a database keeps the name of the first.
    assert!(info.model.is_none_or(|model| model == "sha256:one"));
}

/// Adds `items` and returns the result.
fn add(index: &mut dyn Index, items: &Items, replace: bool) -> Added {
    let added = index.add(items, replace).unwrap();
    let wanted: Vec<_> = (0..items.len()).map(|row| Some(items.item(row))).collect();
    assert_eq!(index.get(items.ids()).unwrap(), wanted);
    added
}

/// The numbers of new, unchanged and replaced items.
fn counts(new: usize, unchanged: usize, replaced: usize) -> Added {
    Added { new, unchanged, replaced }
}

fn nothing_is_replaced_unless_asked_for(index: &mut dyn Index) {
    let mut numbers = Numbers(6);
    let rows = numbers.whole(6, DIMENSIONS);
    let items = described((0..6).collect(), rows.clone(), 15);
    assert_eq!(add(index, &items, false), counts(6, 0, 0));
    assert_eq!(add(index, &items, false), counts(0, 6, 0), "the same again changes nothing");
    assert_eq!(add(index, &items, true), counts(0, 6, 0));

    // Each of these differs from item 3 in one thing; item 9 is new.
    let changed = |change: &dyn Fn(&mut EmbeddingSet)| {
        let mut set = described(vec![3, 9], rows.select(&[3, 5]), 15).set().clone();
        change(&mut set);
        Items::new(vec![3, 9], set).unwrap()
    };
    let text = || Some(vec!["another".to_owned(), "x".to_owned()]);
    let other = Source { name: "elsewhere".to_owned(), images: None };
    let mut values = rows.select(&[3, 5]).into_vec();
    values[0] += 0.25;
    let moved = Matrix::new(2, DIMENSIONS, values).unwrap();
    let variants = [
        (changed(&|set| set.embeddings = moved.clone()), "another embedding"),
        (changed(&|set| set.labels = text()), "the label `class \"3\"`, not `another`"),
        (changed(&|set| set.cameras = text()), "the camera `c0`, not `another`"),
        (changed(&|set| set.paths = text()), "the path `a\\b/ü 3.jpg`, not `another`"),
        (
            changed(&|set| set.sources = Some(Sources::one(other.clone(), 2))),
            "the source `\"täst\"`, not `elsewhere`",
        ),
    ];
    let before = index.get(&[3, 9]).unwrap();
    for (items, wanted) in &variants {
        match index.add(items, false) {
            Err(Error::Replaces { count: 1, difference, new, old }) => {
                assert_eq!((difference.as_str(), new.id, old.id), (*wanted, 3, 3));
            }
            other => panic!("{wanted}: {other:?}"),
        }
        assert_eq!(index.get(&[3, 9]).unwrap(), before, "a refused addition changes nothing");
    }
    assert_eq!(add(index, &variants[0].0, true), counts(1, 0, 1));
    for (items, wanted) in &variants[1..] {
        assert_eq!(add(index, items, true), counts(0, 0, 2), "{wanted}");
    }
    assert_eq!(index.remove(&(0..10).collect::<Vec<_>>()).unwrap(), 7);
    assert_eq!(add(index, &items, false), counts(6, 0, 0), "what is gone is replaced by nothing");
}

/// Items with a column of each kind, with missing values.
fn with_columns(ids: &[u64], embeddings: Matrix) -> Items {
    let column = |name: &str, of: &dyn Fn(u64) -> String| {
        Column::infer(name, ids.iter().map(|&id| of(id))).expect("valid values")
    };
    let columns = vec![
        column("price", &|id| if id % 7 == 3 { String::new() } else { format!("{}.5", id as i64 - 10) }),
        column("the \"day\"", &|id| match id % 4 {
            0 => format!("2024-05-{:02}", 1 + id % 28),
            1 => format!("2024-05-{:02}T00:00:00.5+02:00", 1 + id % 28),
            2 => String::new(),
            _ => "2024-04".to_owned(),
        }),
        column("shop", &|id| ["", "a/b", "a", "ab", "Ü \"\\%_", "a/b/c"][id as usize % 6].to_owned()),
        column("colour", &|id| {
            ["red|blue/dark", "red", "", "blue", "blue/dark/x"][id as usize % 5].to_owned()
        }),
    ];
    let labels = ids.iter().map(|id| format!("class {}", id % 3)).collect();
    let columns = Columns::new(columns).expect("different names");
    let set = EmbeddingSet { labels: Some(labels), columns, ..embeddings.into() };
    Items::new(ids.to_vec(), set).expect("valid items")
}

fn columns_are_kept_and_filter_exactly(index: &mut dyn Index) {
    let mut numbers = Numbers(8);
    let ids: Vec<u64> = (0..60).collect();
    let items = with_columns(&ids, numbers.whole(60, DIMENSIONS));
    assert_eq!(index.columns().unwrap(), []);
    assert_eq!(add(index, &items, false), counts(60, 0, 0));
    assert_eq!(add(index, &items, false), counts(0, 60, 0));
    let kinds = |columns: &Columns| -> Vec<_> {
        columns.iter().map(|column| (column.name().to_owned(), column.kind())).collect()
    };
    assert_eq!(index.columns().unwrap(), kinds(&items.set().columns));
    assert_conditions(index, items.set(), &ids);

    // One value changes; the columns of other items are missing in these, and theirs in those.
    let mut set = items.select(&[8]).set().clone();
    let price = Column::infer("price", ["77"]).unwrap();
    let others = set.columns.iter().filter(|column| column.name() != "price").cloned();
    set.columns = Columns::new(others.chain([price]).collect()).unwrap();
    let changed = Items::new(vec![8], set).unwrap();
    match index.add(&changed, false) {
        Err(Error::Replaces { difference, .. }) => {
            assert_eq!(difference, "the column `price` `-2.5`, not `77`");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(add(index, &changed, true), counts(0, 0, 1));
    let mut more = described((60..70).collect(), numbers.whole(10, DIMENSIONS), 1).set().clone();
    more.columns = Columns::new(vec![Column::infer("size", ["XL"; 10]).unwrap()]).unwrap();
    let more = Items::new((60..70).collect(), more).unwrap();
    assert_eq!(add(index, &more, false), counts(10, 0, 0));
    assert_eq!(index.remove(&[0, 1, 60]).unwrap(), 3);
    index.compact(&mut |_, _| {}).unwrap();
    let sets = vec![items.set().clone(), changed.set().clone(), more.set().clone()];
    let whole = EmbeddingSet::concat(sets, false).unwrap();
    let rows: Vec<usize> = (2..8).chain([60]).chain(9..60).chain(62..71).collect();
    let ids: Vec<u64> = (2..60).chain(61..70).collect();
    assert_conditions(index, &whole.select(&rows), &ids);
    assert_eq!(index.columns().unwrap().last().map(|(name, _)| name.as_str()), Some("size"));
    assert_eq!(index.get(&[8]).unwrap()[0].as_ref().unwrap().columns.get("price").unwrap().value(0), {
        Some(Value::Number(77.0))
    });
}

/// Every item has its values, and every condition finds the items that meet it.
fn assert_conditions(index: &dyn Index, set: &EmbeddingSet, ids: &[u64]) {
    let values = |columns: &Columns, row: usize| {
        let mut values: Vec<(String, String)> =
            columns.row(row).into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
        values.sort();
        values
    };
    for (row, item) in index.get(ids).unwrap().into_iter().enumerate() {
        let found = item.expect("it is there").columns;
        let found = if found.is_empty() { vec![] } else { values(&found, 0) };
        assert_eq!(found, values(&set.columns, row), "item {}", ids[row]);
    }
    for text in [
        "price < 20",
        "price >= -3.5 and price != 12.5",
        "not (price < 20)",
        "price in (1.5, 3.5, 1e99) or price is missing",
        "price not in (1.5, 3.5)",
        "price = -9.5",
        "`the \"day\"` >= 2024-05-09",
        "`the \"day\"` = 2024-05-05 or `the \"day\"` < '2024-04-30'",
        "`the \"day\"` not in (2024-05-05, 2024-04)",
        "`the \"day\"` is missing",
        "shop = 'a'",
        "shop != 'a'",
        "shop > 'a/'",
        "shop <= 'ab' and not shop = 'a'",
        "shop under 'a'",
        "shop under 'a/b/'",
        "shop not under 'a'",
        "shop = 'Ü \"\\\\%_' or shop under '%'",
        "shop in ('a/b', 'Ü \"\\\\%_')",
        "shop is not missing",
        "colour has 'red'",
        "colour not has 'red'",
        "colour under 'blue'",
        "colour not under 'blue/dark'",
        "label = 'class 1' and (colour has 'blue' or price > 30)",
        "label under 'class 2' or not label is not missing",
        "label in ('class 0', 'class 9') and not (shop under 'a' or price is missing)",
    ] {
        let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let wanted = condition.rows(set).unwrap_or_else(|error| panic!("{error}"));
        let wanted: Vec<u64> = wanted.into_iter().map(|row| ids[row]).collect();
        let filter = ItemFilter::default().meets(condition);
        index.check_filter(&filter).unwrap();
        assert_eq!(index.ids(&filter).unwrap(), wanted, "{text}");
        let query = Matrix::new(1, DIMENSIONS, vec![0.25; DIMENSIONS]).unwrap();
        let lists = index.search(query.view(), ids.len(), &filter).unwrap();
        let mut found = lists.ids(0).to_vec();
        found.sort_unstable();
        assert_eq!(found, wanted, "{text}");
        // With another filter, both must hold.
        let both = filter.label_in(["class 1", "class 2"]);
        let some: Vec<u64> = wanted.into_iter().filter(|id| *id < 60 && id % 3 > 0).collect();
        assert_eq!(index.ids(&both).unwrap(), some, "{text}");
    }
    let unknown = ItemFilter::default().meets(Condition::parse("prise < 2").unwrap());
    for error in [index.ids(&unknown).map(drop), index.check_filter(&unknown)] {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("there is no column `prise`"), "{error}");
        assert!(error.hint().unwrap().contains("did you mean `price`?"));
    }
}

fn images_of_one_path_in_two_sources_are_two_items(index: &mut dyn Index) {
    let mut numbers = Numbers(7);
    let mut of = |source: Option<&str>| {
        let paths = Some((0..20).map(|i| format!("{}/{i}.jpg", i % 4)).collect());
        let source = source.map(|name| Source { name: name.to_owned(), images: None });
        let sources = source.map(|source| Sources::one(source, 20));
        let set = EmbeddingSet { paths, sources, ..numbers.whole(20, DIMENSIONS).into() };
        Items::from_set(set).unwrap()
    };
    let (train, test, unknown) = (of(Some("/x/train")), of(Some("/x/test")), of(None));
    assert_eq!(add(index, &train, false), counts(20, 0, 0));
    assert_eq!(add(index, &test, false), counts(20, 0, 0));
    let both = EmbeddingSet::concat(vec![train.set().clone(), test.set().clone()], false).unwrap();
    assert_eq!(add(index, &Items::from_set(both).unwrap(), false), counts(0, 40, 0));
    index.remove(train.ids()).unwrap();
    index.remove(test.ids()).unwrap();

    // Items without a source: they are treated as the same images only if everything else is equal.
    assert_eq!(add(index, &unknown, false), counts(20, 0, 0));
    let Err(Error::Replaces { count: 20, old, .. }) = index.add(&train, false) else {
        panic!("an image of the same path was there");
    };
    assert_eq!(old.source, None);
    let named = |name: &str| {
        let mut set = unknown.set().clone();
        set.name_source(name);
        Items::from_set(set).unwrap()
    };
    assert_eq!(index.add(&named("/x/train"), false).unwrap(), counts(0, 20, 0));
    assert_eq!(add(index, &train, true), counts(0, 0, 20));
    assert_eq!(index.get(unknown.ids()).unwrap(), vec![None; 20], "their place is taken");
    let query = train.set().embeddings.select(&[0]);
    assert_eq!(index.search(query.view(), 40, &ItemFilter::default()).unwrap().ids(0).len(), 20);

    // Of two rows of one path that are added at once, one is the item without a source.
    index.remove(train.ids()).unwrap();
    assert_eq!(add(index, &unknown, false), counts(20, 0, 0));
    let both = vec![test.set().clone(), named("/x/train").set().clone()];
    let both = Items::from_set(EmbeddingSet::concat(both, false).unwrap()).unwrap();
    assert_eq!(index.add(&both, false).unwrap(), counts(20, 20, 0));
    let there = index.get(test.ids()).unwrap();
    assert!((0..20).all(|row| there[row] == Some(test.item(row))), "an image was lost");
}
