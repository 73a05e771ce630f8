//! Pushes, and what a collection remembers.

use gallerist_database::{ConnectOptions, Pushed};
use gallerist_retrieval::columns::{Column, ColumnKind, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{ExactIndex, Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};

use crate::{DatabaseIndex, empty, flat, hnsw, server};

/// Rows with the statistics of embeddings: classes around centres, drawn from a fixed seed.
fn clustered(rows: usize, cols: usize) -> EmbeddingSet {
    let mut state = 11u64;
    let mut value = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let classes = rows.div_ceil(20);
    let centres: Vec<f32> = (0..classes * cols).map(|_| value()).collect();
    let mut values = Vec::with_capacity(rows * cols);
    for row in 0..rows {
        let centre = row % classes * cols;
        values.extend((0..cols).map(|col| centres[centre + col] + 0.5 * value()));
    }
    EmbeddingSet {
        labels: Some((0..rows).map(|row| format!("class {}", row % classes)).collect()),
        paths: Some((0..rows).map(|row| format!("{row}.jpg")).collect()),
        cameras: Some((0..rows).map(|row| format!("c{}", row % 3)).collect()),
        model: Some("sha256:abc".to_owned()),
        run: Some("runs/first".to_owned()),
        ..Matrix::new(rows, cols, values).unwrap().into()
    }
}

#[test]
fn a_second_push_sends_only_what_has_changed() {
    let Some(server) = server() else { return };
    let mut index = empty(&server, &flat(8, Metric::Euclidean));
    let set = clustered(500, 8);
    let items = Items::from_set(set.clone()).unwrap();
    let mut told = Vec::new();
    let first = index.push(&items, false, &mut |done| told.push(*done)).unwrap();
    assert_eq!(first, Pushed { items: 500, sent: 500, unchanged: 0 });
    assert_eq!(told.last(), Some(&first));

    let mut changed = set;
    changed.labels.as_mut().unwrap()[7] = "another".to_owned();
    changed.cameras.as_mut().unwrap()[8] = String::new();
    let mut rows = changed.embeddings.into_vec();
    rows[9 * 8] += 0.25;
    changed.embeddings = Matrix::new(500, 8, rows).unwrap();
    let items = Items::from_set(changed).unwrap();
    // A new connection: nothing is remembered on this side.
    let mut index = DatabaseIndex::open(index.address(), ConnectOptions::default()).unwrap();
    let before = index.get(&items.ids()[6..10]).unwrap();
    let refused = index.push(&items, false, &mut |_| panic!("nothing is sent")).unwrap_err().to_string();
    assert!(refused.contains("`7.jpg` of an unknown source would replace"), "{refused}");
    assert!(
        refused.contains("the label `class 7`, not `another`") && refused.contains("all 3 items"),
        "{refused}"
    );
    assert_eq!(index.get(&items.ids()[6..10]).unwrap(), before);
    assert_eq!(
        index.push(&items, true, &mut |_| {}).unwrap(),
        Pushed { items: 500, sent: 3, unchanged: 497 }
    );
    for row in [6, 7, 8, 9] {
        assert_eq!(index.get(&items.ids()[row..=row]).unwrap(), [Some(items.item(row))]);
    }
    assert_eq!(index.origin().unwrap().run.as_deref(), Some("runs/first"));
    let info = index.info().unwrap();
    assert_eq!((info.count, info.model.as_deref()), (500, Some("sha256:abc")));
}

#[test]
fn a_collection_keeps_what_its_first_items_declare_without_a_model() {
    let Some(server) = server() else { return };
    let rows = |metric: Option<Metric>, model: Option<&str>| {
        let (model, source) = (model.map(str::to_owned), Some("photos".to_owned()));
        Items::from_set(EmbeddingSet { model, run: None, metric, source, ..clustered(40, 8) }).unwrap()
    };
    let euclidean = rows(Some(Metric::Euclidean), None);
    let mut index = empty(&server, &flat(8, Metric::Euclidean));
    index.push(&euclidean, false, &mut |_| {}).unwrap();
    let mut index = DatabaseIndex::open(index.address(), ConnectOptions::default()).unwrap();
    let origin = index.origin().unwrap();
    assert_eq!((origin.model, origin.metric), (None, Some(Metric::Euclidean)));
    assert_eq!(origin.source.as_deref(), Some("photos"));
    let refused = index.push(&rows(Some(Metric::Cosine), None), true, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("compared by Euclidean distance, others by cosine"), "{refused}");
    // Later items do not say which network made the first ones.
    index.push(&rows(Some(Metric::Euclidean), Some("sha256:abc")), false, &mut |_| {}).unwrap();
    assert_eq!(index.info().unwrap().model, None);

    // Items of an older version, or of a file that declares nothing, are there already.
    let mut index = empty(&server, &flat(8, Metric::Euclidean));
    index.push(&rows(None, None), false, &mut |_| {}).unwrap();
    index.push(&euclidean, false, &mut |_| {}).unwrap();
    assert_eq!(index.origin().unwrap().metric, None);
    index.push(&rows(Some(Metric::Euclidean), Some("sha256:abc")), false, &mut |_| {}).unwrap();
    assert_eq!(index.info().unwrap().model.as_deref(), Some("sha256:abc"));
}

#[test]
fn images_of_one_path_in_two_sources_are_two_items_and_unknown_sources_are_replaced_on_purpose() {
    let Some(server) = server() else { return };
    let mut index = empty(&server, &flat(8, Metric::Euclidean));
    let of = |name: Option<&str>| {
        let mut set = clustered(60, 8);
        if let Some(name) = name {
            set.name_source(name);
        }
        Items::from_set(set).unwrap()
    };
    let (unknown, train, test) = (of(None), of(Some("/x/train")), of(Some("/x/test")));
    let pushed = |sent, unchanged| Pushed { items: 60, sent, unchanged };
    assert_eq!(index.push(&train, false, &mut |_| {}).unwrap(), pushed(60, 0));
    assert_eq!(index.push(&test, false, &mut |_| {}).unwrap(), pushed(60, 0));
    assert_eq!(index.push(&train, false, &mut |_| {}).unwrap(), pushed(0, 60));
    assert_eq!(index.info().unwrap().count, 120);
    assert_eq!(index.get(&test.ids()[3..4]).unwrap(), [Some(test.item(3))]);

    let mut old = empty(&server, &flat(8, Metric::Euclidean));
    old.push(&unknown, false, &mut |_| {}).unwrap();
    assert_eq!(old.push(&train, false, &mut |_| {}).unwrap(), pushed(0, 60), "all else is the same");
    let mut changed = train.set().clone();
    changed.labels.as_mut().unwrap()[5] = "another".to_owned();
    let changed = Items::from_set(changed).unwrap();
    let refused = old.push(&changed, false, &mut |_| {}).unwrap_err().to_string();
    assert!(
        refused.contains("`5.jpg` of `/x/train` would replace `5.jpg` of an unknown source"),
        "{refused}"
    );
    assert_eq!(old.push(&changed, true, &mut |_| {}).unwrap(), pushed(1, 59));
    assert_eq!(old.get(&[changed.ids()[5], unknown.ids()[5]]).unwrap(), [Some(changed.item(5)), None]);

    // Of two rows of one path that are pushed at once, one is the item without a source.
    let mut old = empty(&server, &flat(8, Metric::Euclidean));
    old.push(&unknown, false, &mut |_| {}).unwrap();
    let mut other = test.set().clone();
    other.labels.as_mut().unwrap()[5] = "another".to_owned();
    let both = EmbeddingSet::concat(vec![other, train.set().clone()], false).unwrap();
    let both = Items::from_set(both).unwrap();
    let wanted = Pushed { items: 120, sent: 60, unchanged: 60 };
    assert_eq!(old.push(&both, false, &mut |_| {}).unwrap(), wanted);
    assert_eq!(old.info().unwrap().count, 120);
    assert_eq!(old.get(&both.ids()[5..6]).unwrap(), [Some(both.item(5))]);
}

#[test]
fn shards_that_are_pushed_at_the_same_time_make_one_gallery() {
    let Some(server) = server() else { return };
    let address = server.address("shards").parse().unwrap();
    let set = clustered(2400, 8);
    let shard = |number: usize| {
        let rows: Vec<usize> = (0..set.embeddings.rows()).filter(|row| row % 4 == number).collect();
        let mut shard = set.select(&rows);
        // One shard has numbers where another has text, and each has a column of its own.
        let size = rows.iter().map(|row| if number == 1 { "XL".to_owned() } else { row.to_string() });
        let columns =
            [Column::infer("size", size), Column::infer(format!("only {number}"), vec!["x"; rows.len()])];
        shard.columns = Columns::new(columns.into_iter().collect::<Result<_, _>>().unwrap()).unwrap();
        Items::from_set(shard).unwrap()
    };
    let shards: Vec<Items> = (0..4).map(shard).collect();
    let push = |items: &Items| {
        let mut index =
            DatabaseIndex::create(&address, &flat(8, Metric::Euclidean), ConnectOptions::default()).unwrap();
        index.push(items, false, &mut |_| {}).unwrap()
    };
    for sent in [600, 0] {
        std::thread::scope(|scope| {
            let pushes: Vec<_> = shards.iter().map(|items| scope.spawn(|| push(items))).collect();
            for pushed in pushes {
                let wanted = Pushed { items: 600, sent, unchanged: 600 - sent };
                assert_eq!(pushed.join().unwrap(), wanted);
            }
        });
    }
    let index = DatabaseIndex::open(&address, ConnectOptions::default()).unwrap();
    assert_eq!(index.info().unwrap().count, 2400);
    for items in &shards {
        let there: Vec<_> = (0..items.len()).map(|row| Some(items.item(row))).collect();
        assert_eq!(index.get(items.ids()).unwrap(), there);
    }
    let mut columns = index.columns().unwrap();
    columns.sort_by(|a, b| a.0.cmp(&b.0));
    let text = ColumnKind::Text;
    let wanted = ["only 0", "only 1", "only 2", "only 3", "size"].map(|name| (name.to_owned(), text));
    assert_eq!(columns, wanted);
    let meets = |text: &str| {
        let filter = ItemFilter::default().meets(Condition::parse(text).unwrap());
        index.ids(&filter).unwrap().len()
    };
    assert_eq!((meets("size = 'XL'"), meets("`only 2` = 'x'")), (600, 600));
}

#[test]
fn a_flat_collection_gives_the_lists_of_embedded_search_to_the_last_bit() {
    let Some(server) = server() else { return };
    for metric in [Metric::Cosine, Metric::Euclidean, Metric::InnerProduct] {
        let items = Items::from_set(clustered(3000, 24)).unwrap();
        let mut remote = empty(&server, &flat(24, metric));
        remote.push(&items, false, &mut |_| {}).unwrap();
        let mut embedded = ExactIndex::new(24, metric).unwrap();
        embedded.upsert(&items).unwrap();
        let queries = items.set().embeddings.view();
        for filter in [ItemFilter::default(), ItemFilter::default().camera_not_in(["c1"])] {
            let found = remote.search(queries, 20, &filter).unwrap();
            let wanted = embedded.search(queries, 20, &filter).unwrap();
            assert_eq!(found, wanted, "{metric:?} {filter:?}");
        }
    }
}

#[test]
fn items_with_equal_scores_come_in_the_order_of_ids_however_many_there_are() {
    let Some(server) = server() else { return };
    // 300 copies of one row are far more than the candidates that a list of 5 begins with.
    let rows = Matrix::new(300, 4, [0.3, -0.1, 0.7, 0.2].repeat(300)).unwrap();
    let items = Items::new((0..300).rev().collect(), rows.into()).unwrap();
    let mut index = empty(&server, &flat(4, Metric::Cosine));
    index.push(&items, false, &mut |_| {}).unwrap();
    let query = Matrix::new(1, 4, vec![1.0, 0.0, 0.5, 0.0]).unwrap();
    let lists = index.search(query.view(), 5, &ItemFilter::default()).unwrap();
    assert_eq!(lists.ids(0), [0, 1, 2, 3, 4]);
}

#[test]
fn a_graph_that_the_server_has_built_finds_nearly_all_of_the_nearest() {
    let Some(server) = server() else { return };
    let items = Items::from_set(clustered(20_000, 32)).unwrap();
    let mut index = empty(&server, &hnsw(32, Metric::Cosine));
    index.push(&items, false, &mut |_| {}).unwrap();
    let labels: std::collections::BTreeMap<_, _> =
        index.labels(&ItemFilter::default()).unwrap().into_iter().collect();
    assert_eq!(labels.len(), 20_000);
    for row in 0..items.len() {
        assert_eq!(labels[&items.ids()[row]], items.item(row).label);
    }
    let of_class = index.labels(&ItemFilter::default().label_in(["class 7"])).unwrap();
    assert_eq!(of_class.len(), 20);
    index.wait_for_index().unwrap();
    assert_eq!(index.rows_to_index().unwrap(), 0);
    let mut embedded = ExactIndex::new(32, Metric::Cosine).unwrap();
    embedded.upsert(&items).unwrap();
    let queries = Matrix::new(200, 32, items.set().embeddings.as_slice()[..200 * 32].to_vec()).unwrap();
    let found = index.search(queries.view(), 10, &ItemFilter::default()).unwrap();
    let wanted = embedded.search(queries.view(), 10, &ItemFilter::default()).unwrap();
    let hits = |query| wanted.ids(query).iter().filter(|id| found.ids(query).contains(id)).count();
    let recall = (0..200).map(hits).sum::<usize>() as f64 / 2000.0;
    assert!(recall > 0.95, "recall@10 is {recall}");
}

#[test]
fn texts_of_every_kind_are_kept_and_filtered() {
    let Some(server) = server() else { return };
    let mut texts: Vec<String> = (0u32..0x300).filter_map(char::from_u32).map(|c| format!("a{c}b")).collect();
    texts.extend(
        ["", " ", "\"", "\\", "'", "\\n", "\\u0041", "%", "_", "鶴", "🦩", "x\"] or id in [1", "none"]
            .map(String::from),
    );
    let rows = texts.len();
    let set = EmbeddingSet {
        labels: Some(texts.clone()),
        ..Matrix::new(rows, 2, (0..2 * rows).map(|i| i as f32).collect()).unwrap().into()
    };
    let items = Items::numbered(set, 0).unwrap();
    let mut index = empty(&server, &flat(2, Metric::Euclidean));
    index.push(&items, false, &mut |_| {}).unwrap();
    let query = Matrix::new(1, 2, vec![0.0, 0.0]).unwrap();
    for (id, text) in texts.iter().enumerate() {
        let lists = index.search(query.view(), 3, &ItemFilter::default().label_in([text])).unwrap();
        assert_eq!(lists.ids(0), [id as u64], "{text:?}");
    }
    let lists = index.search(query.view(), rows, &ItemFilter::default().label_not_in(&texts[1..])).unwrap();
    assert_eq!(lists.ids(0), [0]);
}
