//! Search, evaluation and near-duplicates over shards against the whole set in memory: equal to the last bit.

use gallerist_retrieval::eval::{
    EvalOptions, EvaluationReport, Labelled, LabelledShard, Measure, Named, Plan, Protocol, QueryCounts,
    QueryValues, ShardedEvaluation, Totals,
};
use gallerist_retrieval::issues::{
    IssueOptions, duplicate_pairs, find_issues, join_duplicates, largest_duplicate_distance, row_distance,
    scaled_shard,
};
use gallerist_retrieval::search::{
    Metric, RankKey, SearchOptions, merge_lists, search, search_shard, self_search,
};
use gallerist_retrieval::{Matrix, ShardRows};
use proptest::prelude::*;

const COLS: usize = 3;

/// Rows of a whole set, cut into shards at `ends`.
struct Cut {
    parts: Vec<(usize, Labelled)>,
}

impl Cut {
    fn new(whole: &Labelled, sizes: &[usize]) -> Self {
        let rows = whole.embeddings.rows();
        let (mut parts, mut start) = (Vec::new(), 0);
        for size in sizes.iter().copied().chain([rows]) {
            let end = rows.min(start + size);
            let part = Labelled {
                embeddings: whole.embeddings.select(&(start..end).collect::<Vec<_>>()),
                labels: whole.labels[start..end].to_vec(),
                cameras: whole.cameras.as_ref().map(|cameras| cameras[start..end].to_vec()),
            };
            parts.push((start, part));
            start = end;
        }
        Self { parts }
    }

    fn shards(&self) -> impl Iterator<Item = LabelledShard<'_>> + Clone {
        self.parts.iter().map(|(first, part)| LabelledShard {
            rows: ShardRows::new(&part.embeddings, *first).unwrap(),
            named: Named { labels: &part.labels, cameras: part.cameras.as_deref() },
        })
    }
}

fn evaluate(
    plan: &Plan,
    queries: &Cut,
    gallery: Option<&Cut>,
    totals: Totals,
) -> (EvaluationReport, QueryValues) {
    let one_set = gallery.is_none();
    let gallery = gallery.unwrap_or(queries);
    let mut evaluation = ShardedEvaluation::new(plan, totals).unwrap();
    for block in queries.shards() {
        let mut keys: Vec<Vec<RankKey>> = vec![Vec::new(); block.rows.embeddings.rows()];
        for shard in gallery.shards() {
            let found = plan.relevant_in_shard(block, shard, one_set).unwrap();
            keys.iter_mut().zip(found).for_each(|(keys, found)| keys.extend(found));
        }
        let empty = || keys.iter().cloned().map(QueryCounts::new).collect::<Vec<_>>();
        let mut sums = empty();
        for shard in gallery.shards() {
            // Each shard counts for itself, as on a cluster.
            let mut counts = empty();
            plan.count_in_shard(block, shard, one_set, &mut counts).unwrap();
            for (sum, counts) in sums.iter_mut().zip(&counts) {
                counts.places().for_each(|count| sum.add(count));
            }
        }
        sums.iter().for_each(|counts| evaluation.push(counts));
    }
    let labels: Vec<String> = queries.parts.iter().flat_map(|(_, part)| part.labels.clone()).collect();
    let unmatched: Vec<String> = evaluation.unmatched().map(|query| labels[query].clone()).collect();
    evaluation.finish(&unmatched).unwrap()
}

fn totals(plan: &Plan, queries: &Labelled, gallery: Option<&Labelled>) -> Totals {
    let junk_label = plan.protocol.and_then(|protocol| protocol.junk);
    let items = gallery.unwrap_or(queries);
    let junk =
        items.labels.iter().filter(|label| gallery.is_some() && Some(label.as_str()) == junk_label).count();
    let zero_rows = |side: &Labelled| {
        (0..side.embeddings.rows()).filter(|&row| side.embeddings.row(row).iter().all(|&v| v == 0.0)).count()
    };
    let mut labels: Vec<&String> = queries.labels.iter().chain(&items.labels).collect();
    labels.dedup();
    Totals {
        queries: queries.embeddings.rows(),
        gallery: items.embeddings.rows() - junk,
        junk,
        zero_rows: zero_rows(queries) + gallery.map_or(0, zero_rows),
        one_set: gallery.is_none(),
        cameras: queries.cameras.is_some() && items.cameras.is_some(),
        only_label: (labels.len() == 1).then(|| labels[0].clone()),
    }
}

/// Rows on a coarse grid, so that many scores are equal; labels of very different sizes, `-1` among them.
fn labelled(rows: std::ops::Range<usize>, cameras: bool) -> impl Strategy<Value = Labelled> {
    let row = (
        prop::collection::vec((-2i8..3).prop_map(f32::from), COLS),
        prop::sample::select(vec!["a", "a", "a", "a", "b", "b", "c", "-1", "lonely"]),
        0..3u8,
    );
    prop::collection::vec(row, rows).prop_map(move |rows| Labelled {
        embeddings: Matrix::new(
            rows.len(),
            COLS,
            rows.iter().flat_map(|(values, ..)| values).copied().collect(),
        )
        .unwrap(),
        labels: rows.iter().map(|(_, label, _)| (*label).to_owned()).collect(),
        cameras: cameras.then(|| rows.iter().map(|(.., camera)| camera.to_string()).collect()),
    })
}

fn plans() -> impl Strategy<Value = Plan> {
    let measures: Vec<Measure> = [
        "recall@1",
        "recall@4",
        "precision@5",
        "map@r",
        "r_precision",
        "map",
        "map_trapezoid",
        "mrr",
        "ndcg",
        "ndcg_exp@7",
        "cmc@5",
        "precision_at_recall@50",
    ]
    .map(|name| name.parse().unwrap())
    .to_vec();
    (prop::sample::select(Metric::ALL.to_vec()), prop::bool::ANY).prop_map(move |(metric, ignore_cameras)| {
        Plan {
            ignore_cameras,
            options: EvalOptions { metric, measures: measures.clone() },
            ..Plan::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn one_set_in_shards_is_evaluated_as_the_whole(
        plan in plans(),
        whole in prop::bool::ANY.prop_flat_map(|cameras| labelled(1..150, cameras)),
        sizes in prop::collection::vec(0usize..60, 0..5),
    ) {
        let wanted = plan.run(&whole, None).unwrap();
        let values = plan.measure(&whole, None).unwrap().queries;
        let found = evaluate(&plan, &Cut::new(&whole, &sizes), None, totals(&plan, &whole, None));
        prop_assert_eq!(found, (wanted, values));
    }

    #[test]
    fn queries_and_gallery_in_shards_are_evaluated_as_the_whole(
        plan in plans(),
        market in prop::bool::ANY,
        (queries, gallery) in (labelled(1..80, true), labelled(1..150, true)),
        query_sizes in prop::collection::vec(0usize..60, 0..3),
        sizes in prop::collection::vec(0usize..60, 0..5),
    ) {
        let market = market.then(|| Plan::of(Protocol::named("market1501").unwrap()));
        let plan = market.unwrap_or(plan);
        let wanted = plan.run(&queries, Some(&gallery)).unwrap();
        let values = plan.measure(&queries, Some(&gallery)).unwrap().queries;
        let cut = (Cut::new(&queries, &query_sizes), Cut::new(&gallery, &sizes));
        let found = evaluate(&plan, &cut.0, Some(&cut.1), totals(&plan, &queries, Some(&gallery)));
        prop_assert_eq!(found, (wanted, values));
    }

    #[test]
    fn lists_of_shards_are_the_lists_of_the_whole(
        metric in prop::sample::select(Metric::ALL.to_vec()),
        (queries, gallery) in (labelled(1..80, false), labelled(1..150, false)),
        k in 1usize..40,
        sizes in prop::collection::vec(0usize..60, 0..5),
    ) {
        for one_set in [false, true] {
            let gallery = if one_set { &queries } else { &gallery };
            let options = SearchOptions { metric, exclude_self: one_set, ..SearchOptions::new(k) };
            let block = ShardRows::new(&queries.embeddings, 0).unwrap();
            let mut keys = vec![Vec::new(); queries.embeddings.rows()];
            for shard in Cut::new(gallery, &sizes).shards() {
                let found = search_shard(block, shard.rows, &options).unwrap();
                keys.iter_mut().zip(found).for_each(|(keys, found)| keys.extend(found));
            }
            let wanted = match one_set {
                true => self_search(&queries.embeddings, &options).unwrap(),
                false => search(&queries.embeddings, &gallery.embeddings, &options).unwrap(),
            };
            prop_assert_eq!(merge_lists(keys, &options), wanted);
        }
    }

    #[test]
    fn duplicates_of_shards_are_the_duplicates_of_the_whole(
        euclidean in prop::bool::ANY,
        share in prop::sample::select(vec![0.0, 0.3, 0.9]),
        whole in labelled(2..150, false),
        sizes in prop::collection::vec(0usize..60, 0..5),
    ) {
        // No row of zeros, which has no cosine; not only duplicates.
        let shifted = whole.embeddings.as_slice().iter().enumerate();
        let shifted = shifted.map(|(at, value)| value + 2.5 + (at % 7) as f32 / 64.0).collect();
        let rows = Matrix::new(whole.embeddings.rows(), COLS, shifted).unwrap();
        let whole = Labelled { embeddings: rows, ..whole };
        let metric = if euclidean { Metric::Euclidean } else { Metric::Cosine };
        let options = IssueOptions { metric, duplicates: share, ..IssueOptions::default() };
        let wanted = find_issues(&whole.embeddings, None, &options).unwrap();

        let cut = Cut::new(&whole, &sizes);
        let scaled: Vec<(usize, Matrix)> = cut
            .parts
            .iter()
            .map(|(first, part)| (*first, scaled_shard(&part.embeddings, &options).unwrap().into_owned()))
            .collect();
        let shards: Vec<ShardRows> = scaled.iter().map(|(first, rows)| ShardRows::new(rows, *first).unwrap()).collect();
        let search = SearchOptions { metric: Metric::Euclidean, exclude_self: true, ..SearchOptions::new(1) };
        let mut nearest = Vec::new();
        let mut pairs = Vec::new();
        for &shard in &shards {
            let mut best = vec![None; shard.embeddings.rows()];
            for &other in &shards {
                for (best, keys) in best.iter_mut().zip(search_shard(shard, other, &search).unwrap()) {
                    *best = (*best).max(keys.first().copied());
                }
            }
            nearest.extend(best.into_iter().map(|key| f64::from(key.unwrap().score(Metric::Euclidean))));
        }
        let largest = largest_duplicate_distance(&mut nearest, &options);
        for (at, &shard) in shards.iter().enumerate() {
            pairs.extend(duplicate_pairs(shard, None, largest).unwrap());
            for &other in &shards[..at] {
                pairs.extend(duplicate_pairs(shard, Some(other), largest).unwrap());
            }
        }
        let all = scaled_shard(&whole.embeddings, &options).unwrap();
        let found = join_duplicates(&pairs, |a, b| row_distance(all.row(a), all.row(b)));
        prop_assert_eq!(largest, wanted.duplicate_distance);
        prop_assert_eq!(found, wanted.duplicates);
    }
}

#[test]
fn label_sets_and_wrong_counts_are_refused() {
    let rows = Matrix::new(2, 1, vec![1.0, 2.0]).unwrap();
    let labels = ["a|b", "c"].map(String::from);
    let shard = |labels| LabelledShard {
        rows: ShardRows::new(&rows, 0).unwrap(),
        named: Named { labels, cameras: None },
    };
    let plan = Plan::default();
    let error = plan.relevant_in_shard(shard(&labels), shard(&labels), true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an evaluation over shards needs one class per row, and some rows have several labels (`a|b`)"
    );
    let error = plan.relevant_in_shard(shard(&labels[1..]), shard(&labels[1..]), true).unwrap_err();
    assert_eq!(error.to_string(), "1 labels for 2 queries");
}
