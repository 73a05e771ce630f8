//! Every index on this machine keeps the promises of `Index`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use gallerist_retrieval::columns::{Column, ColumnKind, Columns};
use gallerist_retrieval::file::{MappedCompact, Source, Sources};
use gallerist_retrieval::index::{
    ExactIndex, HnswIndex, HnswOptions, IdLists, Index, IndexInfo, IndexSettings, Item, ItemFilter, Items,
    Origin, create_index, index_kinds, is_index, open_index, stable_id,
};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Code, CompactMatrix, EmbeddingSet, Error, Matrix, MatrixView, Result};
use gallerist_testkit::conformance::{Promises, run};
use gallerist_testkit::naive::NaiveIndex;
use proptest::prelude::*;

/// Few candidates, so that the suite's 3,000 items are not searched exactly.
const NARROW: HnswOptions = HnswOptions { m: 8, ef_construction: 40, ef: 20, seed: 1 };
const APPROXIMATE: Promises = Promises { recall: 0.97, ..Promises::EXACT };

#[test]
fn exact_search_keeps_every_promise() {
    run(|metric, dimensions| Box::new(ExactIndex::new(dimensions, metric).unwrap()), &Promises::EXACT);
}

#[test]
fn the_graph_keeps_every_promise() {
    run(|metric, dimensions| Box::new(HnswIndex::new(dimensions, metric, NARROW).unwrap()), &APPROXIMATE);
}

/// An index that is written and read again before every search, mapped for it.
struct Reread {
    index: Box<dyn Index>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Reread {
    fn new(mut index: Box<dyn Index>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gallery.index");
        index.save(&path).unwrap();
        Self { index, path, _folder: folder }
    }

    /// What another process would see.
    fn mapped(&self) -> Box<dyn Index> {
        open_index(&self.path, true).unwrap()
    }
}

impl Index for Reread {
    fn info(&self) -> Result<IndexInfo> {
        self.mapped().info()
    }
    fn origin(&self) -> Result<Origin> {
        self.mapped().origin()
    }
    fn columns(&self) -> Result<Vec<(String, ColumnKind)>> {
        self.mapped().columns()
    }
    fn labels(&self, filter: &ItemFilter) -> Result<Vec<(u64, Option<String>)>> {
        self.mapped().labels(filter)
    }
    fn upsert(&mut self, items: &Items) -> Result<()> {
        self.index.upsert(items)?;
        self.flush()
    }
    fn remove(&mut self, ids: &[u64]) -> Result<usize> {
        self.index = open_index(&self.path, false)?;
        let removed = self.index.remove(ids)?;
        self.flush()?;
        Ok(removed)
    }
    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        let mapped = self.mapped();
        let lists = mapped.search(queries, k, filter)?;
        assert_eq!(lists, self.index.search(queries, k, filter)?, "mapped and in memory");
        Ok(lists)
    }
    fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>> {
        self.mapped().get(ids)
    }
    fn flush(&mut self) -> Result<()> {
        self.index.flush()
    }
}

#[test]
fn what_is_written_keeps_every_promise_when_it_is_read_again() {
    let exact =
        |metric, dimensions| -> Box<dyn Index> { Box::new(ExactIndex::new(dimensions, metric).unwrap()) };
    run(|metric, dimensions| Box::new(Reread::new(exact(metric, dimensions))), &Promises::EXACT);
    let graph = |metric, dimensions| HnswIndex::new(dimensions, metric, NARROW).unwrap();
    run(|metric, dimensions| Box::new(Reread::new(Box::new(graph(metric, dimensions)))), &APPROXIMATE);
}

/// Rows in clusters, from a fixed sequence.
#[test]
fn what_another_program_wrote_into_the_file_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gallery.index");
    let part = |first: u64| {
        let rows: EmbeddingSet = Matrix::new(1, 2, vec![0.6, 0.8]).unwrap().into();
        Items::numbered(rows, first).unwrap()
    };
    let mut index = create_index(ExactIndex::KIND, 2, Metric::Cosine, &IndexSettings::default()).unwrap();
    index.add(&part(1), false).unwrap();
    index.save(&path).unwrap();
    let [mut one, mut two] = [(), ()].map(|()| open_index(&path, false).unwrap());
    one.add(&part(2), false).unwrap();
    one.flush().unwrap();
    one.add(&part(3), false).unwrap();
    one.flush().unwrap();
    two.add(&part(4), false).unwrap();
    assert!(matches!(two.flush(), Err(Error::Changed { .. })));
    assert!(matches!(two.save(&path), Err(Error::Changed { .. })));
    two.save(&folder.path().join("other.index")).unwrap();
    let ids = |path: &Path| open_index(path, true).unwrap().ids(&ItemFilter::default()).unwrap();
    assert_eq!(ids(&path), [1, 2, 3]);
    assert_eq!(ids(&folder.path().join("other.index")), [1, 4]);
    // A file that is gone has nothing that could be lost.
    std::fs::remove_file(&path).unwrap();
    one.add(&part(5), false).unwrap();
    one.flush().unwrap();
    assert_eq!(ids(&path), [1, 2, 3, 5]);

    // Writers at the same time: each adds an item, and tries again where another was faster.
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (path, part) = (&path, &part);
            scope.spawn(move || {
                for i in 0..5 {
                    loop {
                        let mut index = open_index(path, false).unwrap();
                        index.add(&part(100 + 10 * writer + i), false).unwrap();
                        match index.flush() {
                            Ok(()) => break,
                            Err(error) => assert!(matches!(error, Error::Changed { .. }), "{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(ids(&path).len(), 4 + 20);
}

fn clustered(rows: usize, dimensions: usize, seed: u64) -> Matrix {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let centres: Vec<f32> = (0..50 * dimensions).map(|_| uniform()).collect();
    let data = (0..rows * dimensions)
        .map(|at| centres[at / dimensions % 50 * dimensions + at % dimensions] + 0.3 * uniform())
        .collect();
    Matrix::new(rows, dimensions, data).unwrap()
}

fn filled(rows: &Matrix, metric: Metric, options: HnswOptions) -> HnswIndex {
    let mut index = HnswIndex::new(rows.cols(), metric, options).unwrap();
    index.upsert(&Items::numbered(rows.clone().into(), 0).unwrap()).unwrap();
    index
}

fn bytes_of(index: &mut HnswIndex) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.index");
    index.save(&path).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn the_graph_has_the_same_bits_for_any_number_of_threads() {
    let rows = clustered(3000, 12, 5);
    let built = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut index = filled(&rows, Metric::Cosine, NARROW);
            // In two more steps, one of them a replacement.
            let more = clustered(400, 12, 6);
            index.upsert(&Items::numbered(more.into(), 2800).unwrap()).unwrap();
            index.remove(&[5, 6, 7]).unwrap();
            bytes_of(&mut index)
        })
    };
    let one = built(1);
    assert!(one == built(2) && one == built(3));
    let other = HnswOptions { seed: 2, ..NARROW };
    assert!(
        bytes_of(&mut filled(&rows, Metric::Cosine, other))
            != bytes_of(&mut filled(&rows, Metric::Cosine, NARROW))
    );
}

#[test]
fn the_walk_gives_the_scores_of_exact_search_to_the_last_bit() {
    let rows = clustered(5000, 40, 7);
    let queries = clustered(60, 40, 8);
    for metric in [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean] {
        let graph = filled(&rows, metric, NARROW);
        let mut exact = ExactIndex::new(40, metric).unwrap();
        exact.upsert(&Items::numbered(rows.clone().into(), 0).unwrap()).unwrap();
        let all = exact.search(queries.view(), rows.rows(), &ItemFilter::default()).unwrap();
        let found = graph.search(queries.view(), 10, &ItemFilter::default()).unwrap();
        for query in 0..queries.rows() {
            for (id, score) in found.ids(query).iter().zip(found.scores(query)) {
                let at = all.ids(query).iter().position(|other| other == id).unwrap();
                assert_eq!(all.scores(query)[at].to_bits(), score.to_bits(), "{metric:?}, query {query}");
            }
        }
    }
}

#[test]
fn equal_items_are_all_found_in_the_order_of_ids() {
    let rows = Matrix::new(3000, 4, [0.5, 0.5, 0.5, 0.5].repeat(3000)).unwrap();
    let index = filled(&rows, Metric::Euclidean, NARROW);
    let lists = index.search(rows.select(&[0]).view(), 25, &ItemFilter::default()).unwrap();
    assert_eq!(lists.ids(0).len(), 25);
    assert!(lists.ids(0).is_sorted() && lists.scores(0).iter().all(|&score| score == 0.0));
}

#[test]
fn the_graph_forgets_removed_items_when_it_is_compacted() {
    let rows = clustered(3000, 8, 9);
    let mut index = filled(&rows, Metric::Euclidean, NARROW);
    let gone: Vec<u64> = (0..3000).filter(|id| id % 3 != 0).collect();
    assert_eq!(index.remove(&gone).unwrap(), 2000);
    assert_eq!(index.dead(), 2000);
    let before = bytes_of(&mut index).len();
    let queries = clustered(40, 8, 10);
    let mut naive = NaiveIndex::default();
    naive.upsert(&Items::numbered(rows.into(), 0).unwrap());
    naive.remove(&gone);
    for step in ["tombstones", "compacted"] {
        let lists = index.search(queries.view(), 10, &ItemFilter::default()).unwrap();
        let mut hits = 0;
        for query in 0..queries.rows() {
            let truth = naive.ranking(queries.row(query), Metric::Euclidean, &ItemFilter::default());
            assert!(lists.ids(query).iter().all(|id| id % 3 == 0), "{step}");
            hits += lists
                .ids(query)
                .iter()
                .filter(|&&id| truth[..10].iter().any(|&(other, _)| other == id))
                .count();
        }
        assert!(hits >= 380, "{step}: {hits} of 400");
        index.compact(&mut |_, _| {}).unwrap();
        assert_eq!((index.dead(), index.info().unwrap().count), (0, 1000));
    }
    assert!(bytes_of(&mut index).len() * 2 < before);
}

#[test]
fn the_same_items_again_do_not_grow_the_graph() {
    let rows = clustered(200, 4, 11);
    let mut index = filled(&rows, Metric::Cosine, NARROW);
    let labels = Some((0..200).map(|i| format!("class {i}")).collect());
    let again = EmbeddingSet { labels, ..rows.into() };
    index.upsert(&Items::numbered(again, 0).unwrap()).unwrap();
    assert_eq!(index.dead(), 0);
    assert_eq!(index.get(&[7]).unwrap()[0].as_ref().unwrap().label.as_deref(), Some("class 7"));
}

fn example() -> EmbeddingSet {
    EmbeddingSet {
        labels: Some((0..6).map(|i| format!("c{}", i % 2)).collect()),
        paths: Some((0..6).map(|i| format!("{i}.jpg")).collect()),
        model: Some("sha256:one".into()),
        source: Some("photos".into()),
        sources: Some(Sources::one(Source { name: "/photos".into(), images: Some("photos".into()) }, 6)),
        run: Some("runs/one".into()),
        ..clustered(6, 2, 1).into()
    }
}

fn saved(folder: &Path, graph: bool) -> PathBuf {
    let path = folder.join(if graph { "graph.index" } else { "exact.index" });
    let items = Items::from_set(example()).unwrap();
    if graph {
        let options = HnswOptions { m: 2, ..NARROW };
        let mut index = HnswIndex::new(2, Metric::Cosine, options).unwrap();
        index.upsert(&items).unwrap();
        index.save(&path).unwrap();
    } else {
        let mut index = ExactIndex::new(2, Metric::Cosine).unwrap();
        index.upsert(&items).unwrap();
        index.save(&path).unwrap();
    }
    path
}

#[test]
fn an_index_comes_back_with_all_it_knew() {
    let folder = tempfile::tempdir().unwrap();
    for graph in [false, true] {
        let path = saved(folder.path(), graph);
        assert!(is_index(&path));
        let index = open_index(&path, false).unwrap();
        assert_eq!(index.info().unwrap().kind == HnswIndex::KIND, graph);
        let origin = index.origin().unwrap();
        assert_eq!(origin.model.as_deref(), Some("sha256:one"));
        assert_eq!((origin.source.as_deref(), origin.run.as_deref()), (Some("photos"), Some("runs/one")));
        let items = Items::from_set(example()).unwrap();
        let wanted: Vec<_> = (0..6).map(|row| Some(items.item(row))).collect();
        assert_eq!(index.get(items.ids()).unwrap(), wanted);
    }
}

#[test]
fn cuts_and_every_flipped_bit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for graph in [false, true] {
        let path = saved(folder.path(), graph);
        let whole = std::fs::read(&path).unwrap();
        // Mapped or not, the file is checked by the same code before anything is taken from it.
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let opened = open_index(&path, bytes.len().is_multiple_of(2));
            matches!(opened, Err(Error::Format { .. } | Error::Io { .. }))
        };
        for length in (0..whole.len()).step_by(5).chain(whole.len() - 9..whole.len()) {
            assert!(refused(&whole[..length]), "cut to {length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(refused(&damaged), "byte {at}");
        }
    }
}

#[test]
fn other_files_and_the_other_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (exact, graph) = (saved(folder.path(), false), saved(folder.path(), true));
    let message = |error: Error| error.to_string();
    assert!(message(ExactIndex::open(&graph).err().unwrap()).contains("found a graph"));
    assert!(message(HnswIndex::open(&exact).err().unwrap()).contains("found an exact index"));
    let embeddings = folder.path().join("e.safetensors");
    example().save(&embeddings).unwrap();
    assert!(!is_index(&embeddings) && !is_index(folder.path().join("nothing")));
    let error = open_index(&embeddings, false).err().unwrap();
    assert!(error.hint().unwrap().contains("index build"));
}

#[test]
fn a_mapped_index_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    for graph in [false, true] {
        let path = saved(folder.path(), graph);
        let mut mapped = open_index(&path, true).unwrap();
        let items = Items::from_set(example()).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(mapped.upsert(&items), Err(Error::ReadOnly { .. })));
        assert!(matches!(mapped.remove(&[1]), Err(Error::ReadOnly { .. })));
        mapped.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn the_origin_survives_every_change_that_does_not_contradict_it() {
    let folder = tempfile::tempdir().unwrap();
    let item = |id: u64, path: &str| {
        // As the server adds it: nothing is known but the item itself.
        let sources = Some(Sources::one(Source { name: "/photos".into(), images: None }, 1));
        let paths = Some(vec![path.to_owned()]);
        let set =
            EmbeddingSet { paths, sources, model: Some("sha256:one".into()), ..clustered(1, 2, id).into() };
        Items::new(vec![id], set).unwrap()
    };
    for graph in [false, true] {
        let path = saved(folder.path(), graph);
        let wanted = open_index(&path, false).unwrap().origin().unwrap();
        assert_eq!(wanted.run.as_deref(), Some("runs/one"));
        let source = Source { name: "/photos".into(), images: Some("photos".into()) };
        type Change<'a> = (&'a str, &'a dyn Fn(&mut dyn Index));
        let changes: [Change; 6] = [
            ("add", &|index| assert_eq!(index.add(&item(7, "new.jpg"), false).unwrap().new, 1)),
            ("upsert", &|index| index.upsert(&item(7, "new.jpg")).unwrap()),
            ("replace", &|index| assert_eq!(index.add(&item(7, "other.jpg"), true).unwrap().replaced, 1)),
            ("remove", &|index| assert_eq!(index.remove(&[7]).unwrap(), 1)),
            ("nothing", &|_| {}),
            ("add again", &|index| assert_eq!(index.add(&item(8, "new.jpg"), false).unwrap().new, 1)),
        ];
        for (what, change) in changes {
            let mut index = open_index(&path, false).unwrap();
            change(index.as_mut());
            assert_eq!(index.origin().unwrap(), wanted, "{what}");
            index.flush().unwrap();
            let read = open_index(&path, true).unwrap();
            assert_eq!(
                (&read.origin().unwrap(), &read.sources().unwrap()[..]),
                (&wanted, &[source.clone()][..]),
                "{what}"
            );
        }
        // Emptied, it still is of that run; filled from elsewhere, its images are elsewhere.
        let mut index = open_index(&path, false).unwrap();
        let all = index.ids(&ItemFilter::default()).unwrap();
        index.remove(&all).unwrap();
        index.upsert(&item(1, "a.jpg")).unwrap();
        assert_eq!(index.origin().unwrap(), wanted);
        let elsewhere = EmbeddingSet { source: Some("others".into()), ..item(2, "b.jpg").set().clone() };
        index.upsert(&Items::new(vec![2], elsewhere).unwrap()).unwrap();
        assert_eq!((&index.origin().unwrap().source, &index.origin().unwrap().run), (&None, &wanted.run));
    }
}

#[test]
fn numbers_of_removed_items_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gallery.index");
    for kind in index_kinds() {
        let mut index = create_index(kind, 2, Metric::Cosine, &IndexSettings::default()).unwrap();
        assert_eq!(index.next_id().unwrap(), 0);
        index.upsert(&Items::numbered(clustered(5, 2, 1).into(), 0).unwrap()).unwrap();
        assert_eq!(index.next_id().unwrap(), 5);
        index.remove(&[3, 4, 9]).unwrap();
        assert_eq!(index.next_id().unwrap(), 5);
        index.remove(&[0]).unwrap();
        index.save(&path).unwrap();
        let mut read = open_index(&path, false).unwrap();
        assert_eq!(read.next_id().unwrap(), 5);
        read.upsert(&Items::numbered(clustered(1, 2, 2).into(), 5).unwrap()).unwrap();
        assert_eq!((read.next_id().unwrap(), read.ids(&ItemFilter::default()).unwrap()), (6, vec![1, 2, 5]));
    }
}

#[test]
fn only_an_index_with_columns_has_a_version_that_older_programs_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gallery.index");
    for kind in index_kinds() {
        let mut index = create_index(kind, 4, Metric::Cosine, &IndexSettings::default()).unwrap();
        let mut set = of_version_1();
        index.upsert(&Items::from_set(set.clone()).unwrap()).unwrap();
        index.save(&path).unwrap();
        let header = || String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(header().contains(r#""format_version":"2""#));
        let shop = Column::infer("shop", ["x", "", "y", "x|y", ""]).unwrap();
        set.columns = Columns::new(vec![shop]).unwrap();
        index.upsert(&Items::from_set(set.clone()).unwrap()).unwrap();
        index.save(&path).unwrap();
        assert!(header().contains(r#""format_version":"3""#));
        let read = open_index(&path, true).unwrap();
        assert_eq!(read.columns().unwrap(), [("shop".to_owned(), ColumnKind::Tags)]);

        // A byte of the columns: the last tensor of the file.
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = open_index(&path, false).err().unwrap();
        assert!(error.to_string().contains("checksum"), "{error}");
    }
}

#[test]
fn too_many_columns_are_refused_and_change_nothing() {
    let set = |first: usize, count: usize| {
        let columns = (first..first + count).map(|i| Column::infer(format!("c{i}"), ["1"]).unwrap());
        let columns = Columns::new(columns.collect()).unwrap();
        EmbeddingSet { columns, ..Matrix::new(1, 2, vec![1.0, 0.5]).unwrap().into() }
    };
    let items = |id, first, count| Items::new(vec![id], set(first, count)).unwrap();
    let mut index = ExactIndex::new(2, Metric::Cosine).unwrap();
    index.upsert(&items(1, 0, 600)).unwrap();
    let error = index.upsert(&items(2, 300, 701)).unwrap_err();
    assert_eq!(error.to_string(), "column `c1000`: there are 1001 columns; a set has at most 1000");
    assert_eq!((index.info().unwrap().count, index.columns().unwrap().len()), (1, 600));
    index.upsert(&items(2, 300, 700)).unwrap();
    let joined = EmbeddingSet::concat(vec![set(0, 600), set(600, 400), set(1000, 1)], false);
    assert!(matches!(joined, Err(Error::Column { .. })));
}

/// The set that the program of the files in `tests/v1` wrote.
fn of_version_1() -> EmbeddingSet {
    let texts = |list: [&str; 5]| Some(list.map(String::from).to_vec());
    let values = (0..20).map(|at| ((at * 7) % 11) as f32 / 4.0 - 1.0).collect();
    EmbeddingSet {
        labels: texts(["heron", "heron", "wren", "wren", "grey \"ü\""]),
        paths: texts(["heron/1.jpg", "heron/2.jpg", "wren/1.jpg", "wren/2.jpg", "ü/1.jpg"]),
        cameras: texts(["c1", "c2", "c1", "c2", "c3"]),
        model: Some("12ab".repeat(16)),
        source: Some("photos/test".into()),
        run: Some("/work/runs/one".into()),
        ..Matrix::new(5, 4, values).unwrap().into()
    }
}

fn version_1(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v1").join(name)
}

#[test]
fn embeddings_files_of_version_1_are_read_and_their_items_keep_their_ids() {
    let set = of_version_1();
    for (name, code) in [("f32", None), ("bf16", Some(Code::Bf16)), ("int8", Some(Code::Int8))] {
        let path = version_1(&format!("{name}.safetensors"));
        let embeddings = match code {
            None => set.embeddings.clone(),
            Some(code) => CompactMatrix::encode(&set.embeddings, code).unwrap().decode(),
        };
        let read = EmbeddingSet::load(&path).unwrap();
        assert_eq!(read, EmbeddingSet { embeddings, ..set.clone() }, "{name}");
        let ids = Items::from_set(read).unwrap().ids().to_vec();
        assert_eq!(ids[0], stable_id("heron/1.jpg"));
        assert_eq!(ids[0], 6_069_892_831_450_089_690, "as links to it say");
        if code.is_some() {
            assert_eq!(
                MappedCompact::open(&path).unwrap().select(&[4, 0]).unwrap().paths.unwrap()[0],
                "ü/1.jpg"
            );
        }
    }
}

#[test]
fn indices_of_version_1_are_read_changed_and_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let items = Items::from_set(of_version_1()).unwrap();
    for (name, count) in [("exact", 5), ("hnsw", 4)] {
        for mapped in [false, true] {
            let index = open_index(version_1(&format!("{name}.index")), mapped).unwrap();
            let wanted: Vec<_> = (0..count).map(|row| Some(items.item(row))).collect();
            assert_eq!(index.get(&items.ids()[..count]).unwrap(), wanted, "{name}");
            assert_eq!(index.origin().unwrap().run.as_deref(), Some("/work/runs/one"));
            let found = index.search(items.set().embeddings.select(&[2]).view(), 1, &ItemFilter::default());
            assert_eq!(found.unwrap().ids(0), [items.ids()[2]], "{name}");
        }
        let path = folder.path().join(name);
        std::fs::copy(version_1(&format!("{name}.index")), &path).unwrap();
        let mut index = open_index(&path, false).unwrap();
        assert_eq!(index.add(&items.select(&[0, 1]), false).unwrap().unchanged, 2);
        let mut set = of_version_1().select(&[1]);
        set.name_source("/photos/train");
        let new = Items::from_set(EmbeddingSet { labels: Some(vec!["wren".into()]), ..set }).unwrap();
        let error = index.add(&new, false).unwrap_err();
        assert!(
            error.to_string().starts_with(
                "`heron/2.jpg` of `/photos/train` would replace `heron/2.jpg` of an unknown source"
            ),
            "{error}"
        );
        assert_eq!(index.add(&new, true).unwrap().replaced, 1);
        index.flush().unwrap();
        let read = open_index(&path, true).unwrap();
        assert_eq!(read.info().unwrap().count, count);
        assert_eq!(read.get(new.ids()).unwrap(), [Some(new.item(0))]);
        assert_eq!(read.get(&items.ids()[..2]).unwrap(), [Some(items.item(0)), None]);
    }
}

#[test]
fn an_item_without_a_source_is_one_row_of_its_path_and_no_image_is_lost() {
    let set = |source: Option<&str>, value: f32| EmbeddingSet {
        paths: Some(vec!["1.jpg".to_owned()]),
        sources: source.map(|name| Sources::one(Source { name: name.to_owned(), images: None }, 1)),
        ..Matrix::new(1, 2, vec![value, 1.0]).unwrap().into()
    };
    let joined =
        |sets: Vec<EmbeddingSet>| Items::from_set(EmbeddingSet::concat(sets, false).unwrap()).unwrap();
    let of_value = |value: f32| {
        let mut index = ExactIndex::new(2, Metric::Euclidean).unwrap();
        index.upsert(&Items::from_set(set(None, value)).unwrap()).unwrap();
        index
    };
    // One of the rows is the same, or both are.
    for (a, b) in [(0.5, 0.6), (0.6, 0.5), (0.5, 0.5)] {
        let mut index = of_value(0.5);
        let both = joined(vec![set(Some("/a"), a), set(Some("/b"), b)]);
        let added = index.add(&both, false).unwrap();
        assert_eq!((added.new, added.unchanged, added.replaced), (1, 1, 0), "{a} {b}");
        assert_eq!(index.add(&both, false).unwrap().unchanged, 2, "{a} {b}");
        assert_eq!(index.info().unwrap().count, 2, "{a} {b}");
    }
    // None is: the first replaces it, on purpose only.
    let mut index = of_value(0.5);
    let both = joined(vec![set(Some("/a"), 0.6), set(Some("/b"), 0.7)]);
    assert!(matches!(index.add(&both, false), Err(Error::Replaces { count: 1, .. })));
    let added = index.add(&both, true).unwrap();
    assert_eq!((added.new, added.unchanged, added.replaced), (1, 0, 1));
    assert_eq!(index.ids(&ItemFilter::default()).unwrap().len(), 2);
    assert_eq!(index.get(both.ids()).unwrap(), [Some(both.item(0)), Some(both.item(1))]);
    // A row without a source is the item itself, also after another one of its path.
    let mut index = of_value(0.5);
    let both = joined(vec![set(Some("/a"), 0.5), set(None, 0.5)]);
    let added = index.add(&both, false).unwrap();
    assert_eq!((added.new, added.unchanged, added.replaced), (1, 1, 0));
    assert_eq!(index.get(both.ids()).unwrap(), [Some(both.item(0)), Some(both.item(1))]);
}

#[cfg(unix)]
#[test]
fn an_index_that_is_cut_short_or_overwritten_in_place_is_an_error_and_no_signal() {
    let folder = tempfile::tempdir().unwrap();
    let rows = clustered(5000, 16, 3);
    let queries = rows.select(&[1, 2000, 4999]);
    for graph in [false, true] {
        let path = folder.path().join("mapped.index");
        let build = || -> Box<dyn Index> {
            let items = Items::numbered(rows.clone().into(), 0).unwrap();
            let mut index: Box<dyn Index> = match graph {
                false => Box::new(ExactIndex::new(16, Metric::Cosine).unwrap()),
                true => Box::new(HnswIndex::new(16, Metric::Cosine, NARROW).unwrap()),
            };
            index.upsert(&items).unwrap();
            index
        };
        let length = {
            build().save(&path).unwrap();
            std::fs::metadata(&path).unwrap().len()
        };
        let cut = |length: u64| {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap()
        };
        let overwrite = |seed: u64| {
            let mut noise = seed;
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    noise =
                        noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (noise >> 56) as u8
                })
                .collect();
            // Through the file itself, as `cp` does, and some milliseconds later.
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(&bytes).unwrap();
        };
        type Damage<'a> = (&'a str, Box<dyn Fn() + 'a>);
        let damages: Vec<Damage> = vec![
            ("to nothing", Box::new(|| cut(0))),
            ("to a half", Box::new(|| cut(length / 2))),
            ("by one byte", Box::new(|| cut(length - 1))),
            ("noise", Box::new(|| overwrite(1))),
            ("other noise", Box::new(|| overwrite(2))),
        ];
        for (what, damage) in damages {
            build().save(&path).unwrap();
            let mapped = open_index(&path, true).unwrap();
            let search = || mapped.search(queries.view(), 10, &ItemFilter::default());
            assert_eq!(search().unwrap().ids(1)[0], 2000);
            damage();
            for _ in 0..2 {
                let error = search().unwrap_err();
                assert!(matches!(error, Error::Changed { .. }), "{what}: {error}");
            }
            assert!(matches!(mapped.get(&[4999]), Err(Error::Changed { .. })), "{what}");
            assert!(open_index(&path, true).is_err(), "{what}");
            let mut copy = mapped;
            let other = folder.path().join("copy.index");
            assert!(copy.save(&other).is_err() && !other.exists(), "{what}: nothing is copied from it");
        }
        // What replaces the file changes nothing for who has it open.
        build().save(&path).unwrap();
        let mapped = open_index(&path, true).unwrap();
        build().save(&path).unwrap();
        assert_eq!(mapped.search(queries.view(), 1, &ItemFilter::default()).unwrap().ids(0), [1]);
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options| matches!(HnswIndex::new(4, Metric::Cosine, options), Err(Error::Option { .. }));
    assert!(refused(HnswOptions { m: 1, ..NARROW }));
    assert!(refused(HnswOptions { m: 5000, ..NARROW }));
    assert!(refused(HnswOptions { ef_construction: 0, ..NARROW }));
    assert!(refused(HnswOptions { ef: 0, ..NARROW }));
    assert!(ExactIndex::new(0, Metric::Cosine).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Below the size at which a search walks, and above it, at any size of step.
    #[test]
    fn steps_of_any_size_make_a_graph_that_finds_nearly_all(
        sizes in prop::collection::vec(1usize..400, 1..5),
        dimensions in 1usize..20,
        seed in any::<u64>(),
    ) {
        let options = HnswOptions { m: 8, ef_construction: 60, ef: 10, seed };
        let mut index = HnswIndex::new(dimensions, Metric::Euclidean, options).unwrap();
        let mut naive = NaiveIndex::default();
        let mut next = 0;
        for (step, size) in sizes.into_iter().enumerate() {
            let rows = clustered(size, dimensions, seed ^ step as u64);
            let items = Items::numbered(rows.into(), next).unwrap();
            next += size as u64;
            index.upsert(&items).unwrap();
            naive.upsert(&items);
        }
        index.set_ef(40).unwrap();
        let queries = clustered(10, dimensions, seed ^ 77);
        let lists = index.search(queries.view(), 5, &ItemFilter::default()).unwrap();
        let mut hits = 0;
        for query in 0..10 {
            let truth = naive.ranking(queries.row(query), Metric::Euclidean, &ItemFilter::default());
            let wanted = truth.len().min(5);
            prop_assert_eq!(lists.ids(query).len(), wanted);
            hits += lists.ids(query).iter().filter(|&&id| truth[..wanted].iter().any(|t| t.0 == id)).count()
                + 5 - wanted;
        }
        prop_assert!(hits >= 45, "{} of 50", hits);
    }
}

#[test]
fn an_index_remembers_the_metric_of_its_rows_and_takes_no_rows_of_another_length() {
    let set = |metric: Option<Metric>| EmbeddingSet { metric, ..clustered(40, 4, 12).into() };
    let items = |metric, first: u64| Items::numbered(set(metric), first).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gallery.index");
    for compared_by in [Metric::Cosine, Metric::Euclidean] {
        let mut index = ExactIndex::new(4, compared_by).unwrap();
        index.upsert(&items(Some(Metric::Euclidean), 0)).unwrap();
        index.save(&file).unwrap();
        let mut index = ExactIndex::open(&file).unwrap();
        assert_eq!(index.origin().unwrap().metric, Some(Metric::Euclidean));
        let refused = index.upsert(&items(Some(Metric::Cosine), 100)).unwrap_err();
        assert!(matches!(refused, Error::Metrics { .. }) && refused.hint().is_some(), "{refused}");
        assert_eq!(index.info().unwrap().count, 40, "nothing has changed");
        index.upsert(&items(None, 100)).unwrap();
        index.upsert(&items(Some(Metric::Cosine), 200).of_any_model()).unwrap();
        assert_eq!(index.info().unwrap().count, 120);
        assert_eq!(index.origin().unwrap().metric, Some(Metric::Euclidean));
    }
    // Files that name no metric have rows of length 1.
    let mut old = filled(&clustered(40, 4, 12), Metric::Cosine, NARROW);
    assert!(old.upsert(&items(Some(Metric::Euclidean), 100)).is_err());
    old.upsert(&items(Some(Metric::Cosine), 100)).unwrap();
}

#[test]
fn an_index_of_items_of_two_models_names_no_model_and_no_run_and_no_threshold() {
    let items = |model: &str, first: u64, rows: usize| {
        let rule = serde_json::json!({
            "metric": "cosine", "threshold": 0.5, "near": 0.4, "rate": "comparison", "target": 0.01,
            "measured": 0.01, "bound": 0.02, "confidence": 0.95, "miss_rate": null, "model": model,
        });
        let threshold = Some(serde_json::from_value(rule).unwrap());
        // Models differ in their rows.
        let rows =
            clustered(rows, 4, 12).as_slice().iter().map(|x| x * model.len() as f32).collect::<Vec<_>>();
        let (model, run) = (Some(model.to_owned()), Some(format!("runs/{model}")));
        let set =
            EmbeddingSet { model, run, threshold, ..Matrix::new(rows.len() / 4, 4, rows).unwrap().into() };
        Items::numbered(set, first).unwrap()
    };
    let named = |index: &dyn Index| {
        let origin = index.origin().unwrap();
        let of_threshold = origin.threshold.and_then(|rule| rule.model);
        assert_eq!(of_threshold, origin.model);
        (origin.model, origin.run)
    };
    let of = |model: &str| (Some(model.to_owned()), Some(format!("runs/{model}")));
    for kind in index_kinds() {
        let mut index = create_index(kind, 4, Metric::Cosine, &IndexSettings::default()).unwrap();
        index.upsert(&items("one", 0, 10)).unwrap();
        assert!(matches!(index.upsert(&items("other", 0, 20)), Err(Error::Models { .. })));
        // Some items of the first model remain.
        index.add(&items("other", 5, 10).of_any_model(), true).unwrap();
        assert_eq!(named(&*index), (None, None));
        index.add(&items("other", 20, 10).of_any_model(), true).unwrap();
        assert_eq!(named(&*index), (None, None));
        // None remains.
        index.add(&items("three", 0, 40).of_any_model(), true).unwrap();
        assert_eq!(named(&*index), of("three"));
        index.add(&items("three", 40, 5).of_any_model(), false).unwrap();
        assert_eq!(named(&*index), of("three"), "the same model is no mixture");
        // Items of an unknown model, added on purpose.
        let unknown = Items::numbered(clustered(3, 4, 9).into(), 100).unwrap();
        index.add(&unknown.of_any_model(), false).unwrap();
        assert_eq!(named(&*index), (None, None));
        index.add(&items("three", 200, 5), false).unwrap();
        assert_eq!(named(&*index), (None, None), "the model of some items is not that of all");
    }
}
