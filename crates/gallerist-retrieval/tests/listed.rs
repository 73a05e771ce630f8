//! Metrics of an index's lists are those of counted ranks.

use gallerist_retrieval::eval::{EvalOptions, Listed, Measure, evaluate, evaluate_index, evaluate_split};
use gallerist_retrieval::index::{ExactIndex, Index, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Error, Matrix, labels};
use proptest::prelude::*;

fn index(rows: &Matrix, metric: Metric) -> ExactIndex {
    let mut index = ExactIndex::new(rows.cols(), metric).unwrap();
    index.upsert(&Items::numbered(rows.clone().into(), 0).unwrap()).unwrap();
    index
}

fn every_measure() -> Vec<Measure> {
    let names = Measure::names().into_iter().map(|name| name.replace('K', "3"));
    names.chain(["recall@1".to_owned(), "precision@7".to_owned()]).map(|name| name.parse().unwrap()).collect()
}

/// Rows of whole numbers: many ties. And a class for each.
fn rows(count: std::ops::Range<usize>) -> impl Strategy<Value = (Matrix, Vec<String>)> {
    let row = (prop::collection::vec(-2i8..3, 3), 0u8..4);
    prop::collection::vec(row, count).prop_map(|rows| {
        let values = rows.iter().flat_map(|(row, _)| row.iter().map(|&value| f32::from(value))).collect();
        let classes = rows.iter().map(|(_, class)| format!("class {class}")).collect();
        (Matrix::new(rows.len(), 3, values).unwrap(), classes)
    })
}

proptest! {
    #[test]
    fn lists_of_an_exact_index_measure_as_counted_ranks_do(
        (gallery, classes) in rows(1..40),
        (queries, of_queries) in rows(1..9),
        metric in prop::sample::select(vec![Metric::Cosine, Metric::Euclidean]),
    ) {
        let options = EvalOptions { metric, measures: every_measure() };
        let items: Vec<_> = (0..).zip(classes.iter().cloned().map(Some)).collect();
        let index = index(&gallery, metric);

        let ids: Vec<u64> = (0..gallery.rows() as u64).collect();
        let listed = Listed { queries: gallery.view(), labels: &classes, own: Some(&ids), gallery: &items };
        let found = evaluate_index(&index, &listed, &options).unwrap().evaluation;
        let wanted = evaluate(&gallery, &labels::encode(&classes).ids, &options).unwrap();
        prop_assert_eq!(&found.metrics, &wanted.metrics);
        prop_assert_eq!((found.ties, found.queries_without_match), (wanted.ties, wanted.queries_without_match));

        let listed = Listed { queries: queries.view(), labels: &of_queries, own: None, gallery: &items };
        let found = evaluate_index(&index, &listed, &options).unwrap().evaluation;
        let (a, b) = labels::encode_both(&of_queries, &classes);
        let wanted = evaluate_split(&queries, &a.ids, &gallery, &b.ids, &options).unwrap();
        prop_assert_eq!(&found.metrics, &wanted.metrics);
        prop_assert_eq!((found.ties, found.queries, found.gallery), (wanted.ties, wanted.queries, wanted.gallery));
    }
}

#[test]
fn lists_that_are_only_as_long_as_needed_measure_the_same() {
    let (count, cols) = (300, 4);
    let noise = |i: usize| ((i * 7919) % 1009) as f32 / 500.0 - 1.0;
    let value = |i: usize| noise(i / cols % 40 * cols + i % cols + 5000) + 0.5 * noise(i);
    let values = (0..count * cols).map(value).collect();
    let rows = Matrix::new(count, cols, values).unwrap();
    let classes: Vec<String> = (0..count).map(|row| (row % 40).to_string()).collect();
    let items: Vec<_> = (0..).zip(classes.iter().cloned().map(Some)).collect();
    let ids: Vec<u64> = (0..count as u64).collect();
    let listed = Listed { queries: rows.view(), labels: &classes, own: Some(&ids), gallery: &items };
    let options = EvalOptions::recall_at(&[1, 5]);
    let found = evaluate_index(&index(&rows, Metric::Cosine), &listed, &options).unwrap().evaluation;
    let wanted = evaluate(&rows, &labels::encode(&classes).ids, &options).unwrap();
    assert_eq!(found.metrics, wanted.metrics);
    assert!(found.metrics["recall@5"] > 0.0);
    assert_eq!(found.protocol, "every item against the others, by the exact lists of an index (embedded)");
}

#[test]
fn what_does_not_fit_the_index_is_refused() {
    let rows = Matrix::new(2, 1, vec![1.0, 2.0]).unwrap();
    let classes = ["a", "b"].map(String::from);
    let items = [(0, Some("a".to_owned())), (1, None)];
    let listed = Listed { queries: rows.view(), labels: &classes, own: None, gallery: &items };
    let euclidean = EvalOptions { metric: Metric::Euclidean, ..EvalOptions::default() };
    let index = index(&rows, Metric::Cosine);
    let refused = evaluate_index(&index, &listed, &euclidean);
    assert!(matches!(refused, Err(Error::Option { option: "the metric", .. })), "{refused:?}");
    let short = Listed { labels: &classes[..1], ..listed };
    let refused = evaluate_index(&index, &short, &EvalOptions::default());
    assert!(matches!(refused, Err(Error::Count { what: "labels", .. })), "{refused:?}");
    let short = Listed { own: Some(&[0]), ..listed };
    let refused = evaluate_index(&index, &short, &EvalOptions::default());
    assert!(matches!(refused, Err(Error::Count { what: "ids", .. })), "{refused:?}");
}
