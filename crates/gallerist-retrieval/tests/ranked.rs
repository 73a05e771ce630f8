//! Ranked lists against a naive version, and against the metrics of the same queries.

use gallerist_retrieval::Matrix;
use gallerist_retrieval::eval::{
    EvalOptions, Labelled, Measure, Named, Plan, Protocol, RelevantRanks, Verdict,
};
use gallerist_retrieval::search::Metric;
use proptest::prelude::*;

/// A re-identification set: rows of whole numbers, with persons, junk (-1), distractors (0000) and cameras.
fn sightings(rows: usize, seed: u64, junk: bool) -> Labelled {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let embeddings = (0..rows * 3).map(|_| draw(5) as f32 - 2.0).collect();
    let names = ["0002", "0007", "0011", "0000", "-1"];
    let persons = if junk { names.len() } else { 3 };
    let labels = (0..rows).map(|_| names[draw(persons as u64) as usize].to_owned()).collect();
    let cameras = (0..rows).map(|_| format!("c{}", draw(3))).collect();
    Labelled { embeddings: Matrix::new(rows, 3, embeddings).unwrap(), labels, cameras: Some(cameras) }
}

fn plan(protocol: Option<&str>, metric: Metric) -> Plan {
    let measures = ["map", "map_trapezoid", "cmc@1", "mrr", "precision@3"];
    let measures = measures.iter().map(|name| name.parse::<Measure>().unwrap()).collect();
    let protocol = protocol.map(|name| Protocol::named(name).unwrap());
    Plan { protocol, options: EvalOptions { metric, measures }, ..Plan::default() }
}

/// Distance or similarity (larger is closer), whether the item takes up a rank, and whether it is right, all
/// written from the rules of the protocol.
fn naive_list(
    plan: &Plan,
    queries: &Labelled,
    gallery: Option<&Labelled>,
    query: usize,
) -> Vec<(usize, bool)> {
    let items = gallery.unwrap_or(queries);
    let knows_cameras = plan.protocol.is_none_or(|protocol| protocol.name == "market1501");
    let camera = |of: &Labelled, row: usize| of.cameras.as_ref().map(|cameras| cameras[row].clone());
    let mut list: Vec<(f64, usize, bool)> = Vec::new();
    for item in 0..items.embeddings.rows() {
        let same = queries.labels[query] == items.labels[item];
        let one_camera = knows_cameras
            && camera(queries, query).is_some()
            && camera(queries, query) == camera(items, item);
        let junk =
            plan.protocol.is_some_and(|protocol| protocol.junk.is_some()) && items.labels[item] == "-1";
        if junk || same && one_camera || gallery.is_none() && query == item {
            continue;
        }
        let pairs = queries.embeddings.row(query).iter().zip(items.embeddings.row(item));
        let score = match plan.options.metric {
            Metric::Euclidean => -pairs.map(|(a, b)| f64::from((a - b) * (a - b))).sum::<f64>(),
            _ => pairs.map(|(a, b)| f64::from(a * b)).sum::<f64>(),
        };
        list.push((score + 0.0, item, same));
    }
    list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    list.into_iter().map(|(_, item, right)| (item, right)).collect()
}

fn assert_lists(plan: &Plan, queries: &Labelled, gallery: Option<&Labelled>) {
    let all: Vec<usize> = (0..queries.embeddings.rows()).rev().collect();
    let items = gallery.unwrap_or(queries).embeddings.rows();
    let lists = plan.ranked(queries, gallery, &all, items).unwrap();
    let short = plan.ranked(queries, gallery, &all, 2).unwrap();
    let rules = plan.rules(queries.named(), gallery.map(Labelled::named)).unwrap();
    let measured = plan.measure(queries, gallery).unwrap();
    assert_eq!(measured.evaluation.metrics, plan.run(queries, gallery).unwrap().evaluation.metrics);
    for ((&query, list), short) in all.iter().zip(&lists).zip(&short) {
        let wanted = naive_list(plan, queries, gallery, query);
        let found: Vec<_> = list.items.iter().map(|hit| (hit.item, hit.is_right())).collect();
        assert_eq!(found, wanted, "query {query}");
        assert_eq!(short.items, list.items[..list.items.len().min(2)]);
        assert_eq!((short.query, list.query), (query, query));
        let ranks: Vec<u32> =
            (1..).zip(&list.items).filter(|(_, hit)| hit.is_right()).map(|(rank, _)| rank).collect();
        assert_eq!((list.relevant, short.relevant), (ranks.len(), ranks.len()));
        // The values of the query are those of its list, to the last bit.
        let ranks = RelevantRanks::new(&ranks);
        let values: Vec<f64> = plan.options.measures.iter().map(|measure| measure.of(&ranks)).collect();
        assert_eq!(measured.queries.of(query), values);
        for item in 0..items {
            let place = wanted.iter().find(|(listed, _)| *listed == item);
            let verdict = match place {
                None => Verdict::Skipped,
                Some((_, false)) => Verdict::Wrong,
                Some((_, true)) => Verdict::Right { grade: 1 },
            };
            assert_eq!(rules.verdict(query, item), verdict, "query {query}, item {item}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lists_are_those_that_the_metrics_count_in(
        (queries, gallery, seed) in (1usize..40, 1usize..120, any::<u64>()),
        euclidean in any::<bool>(),
    ) {
        let metric = if euclidean { Metric::Euclidean } else { Metric::InnerProduct };
        let (queries, gallery) = (sightings(queries, seed, false), sightings(gallery, !seed, true));
        assert_lists(&plan(Some("market1501"), metric), &queries, Some(&gallery));
        // Without a protocol cameras count, and no label is junk.
        assert_lists(&plan(None, metric), &queries, Some(&gallery));
        // A protocol without cameras does not look at them.
        assert_lists(&plan(Some("inshop"), metric), &queries, Some(&gallery));
        assert_lists(&plan(None, metric), &gallery, None);
        assert_lists(&plan(Some("cub200"), metric), &gallery, None);
    }
}

#[test]
fn an_image_with_several_labels_is_as_right_as_the_labels_it_shares() {
    let labels = ["bird|heron", "bird|wren", "heron | bird", "fish"].map(String::from).to_vec();
    let embeddings = Matrix::new(4, 1, vec![0.0, 1.0, 2.0, 3.0]).unwrap();
    let set = Labelled { embeddings, labels, cameras: None };
    let plan = plan(None, Metric::Euclidean);
    let lists = plan.ranked(&set, None, &[0, 3], 10).unwrap();
    let grades: Vec<u32> = lists[0].items.iter().map(|hit| hit.grade).collect();
    assert_eq!((grades, lists[0].relevant), (vec![1, 2, 0], 2));
    assert_eq!(lists[0].items[1].score, 2.0);
    assert_eq!((lists[1].items.len(), lists[1].relevant), (3, 0));
    let rules = plan.rules(set.named(), None).unwrap();
    assert_eq!(rules.verdict(0, 2), Verdict::Right { grade: 2 });
}

#[test]
fn what_no_list_can_be_made_of_is_refused() {
    let set = sightings(5, 1, true);
    let plan = plan(None, Metric::Cosine);
    let error = plan.ranked(&set, None, &[1, 5], 3).unwrap_err().to_string();
    assert!(error.contains("a query") && error.contains('5'), "{error}");
    assert!(plan.ranked(&set, None, &[1], 0).is_err());
    let market = Plan::of(Protocol::named("market1501").unwrap());
    assert!(market.ranked(&set, None, &[1], 3).is_err(), "one set");
    let bare = Named { cameras: None, ..set.named() };
    assert!(market.rules(bare, Some(set.named())).is_err(), "queries without cameras");
}
