//! What the order of items exactly as close can change, against every order of them.

use gallerist_retrieval::Matrix;
use gallerist_retrieval::eval::{
    EvalOptions, Evaluation, Labelled, Listed, Measure, Plan, Protocol, RelevantRanks, Side, Task, evaluate,
    evaluate_index,
};
use gallerist_retrieval::index::{ExactIndex, Index, Items};
use gallerist_retrieval::labels::LabelSets;
use gallerist_retrieval::search::Metric;
use proptest::prelude::*;

fn every_measure() -> Vec<Measure> {
    let names = Measure::names();
    let names = names.iter().flat_map(|name| [1, 2, 3].map(|k| name.replace('K', &k.to_string())));
    let mut names: Vec<String> = names.chain(["precision_at_recall@60".into()]).collect();
    names.sort();
    names.dedup();
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn options(measures: Vec<Measure>) -> EvalOptions {
    EvalOptions { metric: Metric::Euclidean, measures }
}

/// All orders of the items of a query, given as (distance, grade), that keep the distances rising.
fn orders(items: &[(i32, u32)]) -> Vec<Vec<(i32, u32)>> {
    let Some(nearest) = items.iter().map(|&(distance, _)| distance).min() else { return vec![vec![]] };
    let mut all = Vec::new();
    for first in (0..items.len()).filter(|&i| items[i].0 == nearest) {
        let mut rest = items.to_vec();
        let item = rest.remove(first);
        for mut order in orders(&rest) {
            order.insert(0, item);
            all.push(order);
        }
    }
    all
}

/// The lowest and highest mean of each measure over all orders of every query.
fn naive(measures: &[Measure], queries: &[Vec<(i32, u32)>]) -> Vec<(f64, f64)> {
    let mut sums = vec![(0.0, 0.0, 0usize); measures.len()];
    for items in queries {
        let matched = items.iter().any(|&(_, grade)| grade > 0);
        let orders = orders(items);
        for (sum, &measure) in sums.iter_mut().zip(measures) {
            let value = |order: &Vec<(i32, u32)>| {
                let hits = (1..).zip(order).filter(|(_, (_, grade))| *grade > 0);
                let (ranks, grades): (Vec<u32>, Vec<u32>) =
                    hits.map(|(rank, (_, grade))| (rank, *grade)).unzip();
                measure.of(&RelevantRanks::graded(&ranks, &grades))
            };
            if matched || measure.counts_queries_without_match() {
                let values: Vec<f64> = orders.iter().map(value).collect();
                sum.0 += values.iter().copied().fold(f64::INFINITY, f64::min);
                sum.1 += values.iter().copied().fold(0.0, f64::max);
                sum.2 += 1;
            }
        }
    }
    let mean = |sum: f64, count: usize| if count == 0 { 0.0 } else { sum / count as f64 };
    sums.into_iter().map(|(low, high, count)| (mean(low, count), mean(high, count))).collect()
}

fn assert_bounds(found: &Evaluation, measures: &[Measure], wanted: &[(f64, f64)]) {
    for (measure, &(low, high)) in measures.iter().zip(wanted) {
        let name = measure.to_string();
        let value = found.metrics[name.as_str()];
        let (found_low, found_high) =
            found.tie_bounds.get(&name).map_or((value, value), |bounds| (bounds.low, bounds.high));
        assert!(
            (found_low - low).abs() < 1e-12 && (found_high - high).abs() < 1e-12,
            "{name}: {found_low} to {found_high} and not {low} to {high}"
        );
        assert!(found_low <= value && value <= found_high, "{name}");
    }
}

fn line(places: &[i32]) -> Matrix {
    Matrix::new(places.len(), 1, places.iter().map(|&place| place as f32).collect()).unwrap()
}

/// Places 0 to 2 on a line with a name each.
fn rows(
    count: std::ops::Range<usize>,
    names: &'static [&'static str],
) -> impl Strategy<Value = (Vec<i32>, Vec<String>)> {
    let row = (0..3i32, prop::sample::select(names).prop_map(String::from));
    prop::collection::vec(row, count).prop_map(|rows| rows.into_iter().unzip())
}

/// The items of each query, what the rules skip left out.
fn lists(
    (queries, of_queries): (&[i32], &[String]),
    (gallery, of_gallery): (&[i32], &[String]),
    skips: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<(i32, u32)>> {
    let grade = |query: &str, item: &str| {
        query.split('|').filter(|label| item.split('|').any(|other| other == *label)).count() as u32
    };
    let item = |query: usize, item: usize| {
        ((queries[query] - gallery[item]).abs(), grade(&of_queries[query], &of_gallery[item]))
    };
    let items =
        |query: usize| (0..gallery.len()).filter(|&at| !skips(query, at)).map(|at| item(query, at)).collect();
    (0..queries.len()).map(items).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn bounds_of_classes_are_those_over_all_orders((places, labels) in rows(1..7, &["a", "b", "c"])) {
        let measures = every_measure();
        let set = Labelled { embeddings: line(&places), labels: labels.clone(), cameras: None };
        let plan = Plan { options: options(measures.clone()), ..Plan::default() };
        let found = plan.run(&set, None).unwrap().evaluation;
        let lists = lists((&places, &labels), (&places, &labels), |query, item| query == item);
        assert_bounds(&found, &measures, &naive(&measures, &lists));

        // The lists of an index have the same ties.
        let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
        index.upsert(&Items::numbered(set.embeddings.clone().into(), 0).unwrap()).unwrap();
        let ids: Vec<u64> = (0..places.len() as u64).collect();
        let gallery: Vec<_> = ids.iter().copied().zip(labels.iter().cloned().map(Some)).collect();
        let listed =
            Listed { queries: set.embeddings.view(), labels: &labels, own: Some(&ids), gallery: &gallery };
        let by_lists = evaluate_index(&index, &listed, &plan.options).unwrap().evaluation;
        prop_assert_eq!(&by_lists.tie_bounds, &found.tie_bounds);
    }

    #[test]
    fn bounds_of_label_sets_are_those_over_all_orders_of_their_grades(
        (queries, of_queries) in rows(1..3, &["a", "a|b", "a|b|c"]),
        (gallery, of_gallery) in rows(1..7, &["a", "b|c", "a|b|c", "d"]),
    ) {
        let measures = every_measure();
        let side = |places: &[i32], labels: &[String]| {
            Labelled { embeddings: line(places), labels: labels.to_vec(), cameras: None }
        };
        let plan = Plan { options: options(measures.clone()), ..Plan::default() };
        let (q, g) = (side(&queries, &of_queries), side(&gallery, &of_gallery));
        let found = plan.run(&q, Some(&g)).unwrap().evaluation;
        let lists = lists((&queries, &of_queries), (&gallery, &of_gallery), |_, _| false);
        assert_bounds(&found, &measures, &naive(&measures, &lists));
    }

    #[test]
    fn junk_and_the_querys_camera_tie_with_nothing(
        (queries, of_queries) in rows(1..3, &["0002", "0007"]),
        (gallery, of_gallery) in rows(1..7, &["0002", "0007", "0000", "-1"]),
        cameras in prop::collection::vec(0u8..2, 10),
    ) {
        let measures = every_measure();
        let side = |places: &[i32], labels: &[String], cameras: &[u8]| Labelled {
            embeddings: line(places),
            labels: labels.to_vec(),
            cameras: Some(cameras[..places.len()].iter().map(|camera| format!("c{camera}")).collect()),
        };
        let (of_query, of_item) = cameras.split_at(3);
        let (q, g) = (side(&queries, &of_queries, of_query), side(&gallery, &of_gallery, of_item));
        let protocol = Protocol::named("market1501");
        let plan = Plan { protocol, options: options(measures.clone()), ..Plan::default() };
        let found = plan.run(&q, Some(&g)).unwrap().evaluation;
        let lists = lists((&queries, &of_queries), (&gallery, &of_gallery), |query, item| {
            of_gallery[item] == "-1"
                || of_queries[query] == of_gallery[item] && of_query[query] == of_item[item]
        });
        assert_bounds(&found, &measures, &naive(&measures, &lists));
    }
}

#[test]
fn a_tie_is_bounded_as_worked_by_hand() {
    // The query at 0; wren 1, heron 1, heron 1, wren 2: of the three at distance 1 the wren is first, second or
    // third. Average precision (1 + 1/2) / 2 to (1/3 + 2/4) / 2.
    let labels = ["wren", "wren", "heron", "heron", "wren"].map(String::from).to_vec();
    let gallery = Labelled { embeddings: line(&[1, 1, 1, 2]), labels: labels[1..].to_vec(), cameras: None };
    let query = Labelled { embeddings: line(&[0]), labels: labels[..1].to_vec(), cameras: None };
    let measures = ["map", "recall@1", "recall@4"].map(|name| name.parse().unwrap()).to_vec();
    let plan = Plan { options: options(measures), ..Plan::default() };
    let found = plan.run(&query, Some(&gallery)).unwrap().evaluation;
    let map = found.tie_bounds["map"];
    assert!((map.low - (1.0 / 3.0 + 2.0 / 4.0) / 2.0).abs() < 1e-15, "{map:?}");
    assert!((map.high - (1.0 + 2.0 / 4.0) / 2.0).abs() < 1e-15, "{map:?}");
    assert_eq!((found.tie_bounds["recall@1"].low, found.tie_bounds["recall@1"].high), (0.0, 1.0));
    assert_eq!(found.tie_bounds.get("recall@4"), None, "no order changes it");
    assert_eq!(found.ties, 1);
    assert_eq!(
        found.notes[0],
        "map is between 0.4167 and 0.7500 and recall@1 between 0.0000 and 1.0000 by the order of images \
         exactly as close (1 of 1 queries have an irrelevant one exactly as close as a relevant one)"
    );
}

#[test]
fn a_collapsed_embedding_is_noted_and_chance_ties_are_not() {
    // 20 classes of 100, all at one point.
    let labels: Vec<u32> = (0..2000).map(|row| row / 100).collect();
    let point = Matrix::new(2000, 2, vec![0.5; 4000]).unwrap();
    let options = EvalOptions::default();
    let collapsed = evaluate(&point, &labels, &options).unwrap();
    assert_eq!((collapsed.tie_bounds["map@r"].low, collapsed.tie_bounds["map@r"].high), (0.0, 1.0));
    assert!(collapsed.notes[0].contains("recall@1 is between 0.0000 and 1.0000"), "{:?}", collapsed.notes);

    // The same classes apart on a line. One item of class 1 comes as far before class 0 as some of its items
    // are from each other: ties far down the lists of some queries.
    let place = |row: usize| if row == 150 { -30.0 } else { (row / 100 * 1000 + row % 100) as f32 };
    let apart = Matrix::new(2000, 1, (0..2000).map(place).collect()).unwrap();
    let options = EvalOptions { metric: Metric::Euclidean, ..EvalOptions::default() };
    let chance = evaluate(&apart, &labels, &options).unwrap();
    assert!(chance.ties > 30, "{}", chance.ties);
    let bounds = chance.tie_bounds["map@r"];
    assert!(0.0 < bounds.high - bounds.low && !bounds.matter(), "{bounds:?}");
    assert!(chance.notes.is_empty(), "{:?}", chance.notes);

    let json = serde_json::to_value(&chance).unwrap();
    assert_eq!(json["tie_bounds"]["map@r"]["low"], bounds.low);
    assert_eq!(json["tie_bounds"].get("recall@8"), None);
    // The reader of JSON rounds the last digit.
    let read: Evaluation = serde_json::from_str(&serde_json::to_string(&chance).unwrap()).unwrap();
    let read_bounds = read.tie_bounds["map@r"];
    assert!((read_bounds.low - bounds.low).abs() < 1e-12 && (read_bounds.high - bounds.high).abs() < 1e-12);
    assert_eq!((read.ties, read.queries, read.protocol), (chance.ties, chance.queries, chance.protocol));
}

#[test]
fn large_classes_and_small_ones_are_bounded_alike() {
    // Classes of 30 are counted for all rows at once, those of 40 for each query.
    for size in [30usize, 40] {
        let rows = 4 * size;
        let labels: Vec<u32> = (0..rows).map(|row| (row / size) as u32).collect();
        let places: Vec<i32> = (0..rows).map(|row| (row * 7 % 13) as i32).collect();
        let options = options(every_measure());
        let found = evaluate(&line(&places), &labels, &options).unwrap();
        let embeddings = line(&places);
        let sets = LabelSets::new(labels.iter().map(|&label| vec![label]));
        let by_rows = Task::every_row(Side::sets(&embeddings, &sets)).measure(&options).unwrap().evaluation;
        assert_eq!(found, by_rows);
        assert!(found.tie_bounds["map"].matter());
    }
}
