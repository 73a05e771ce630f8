//! Re-ranking and query expansion against dense versions in f64 that follow the papers, and the
//! published code, line by line.

use gallerist_retrieval::eval::{
    AveragePrecision, EvalOptions, Measure, Recall, ReciprocalRank, Side, Sightings, Task,
};
use gallerist_retrieval::rerank::{KReciprocal, QueryExpansion};
use gallerist_retrieval::{Matrix, search::Metric};

/// Rows around centres that overlap, with some exact duplicates.
fn rows(count: usize, cols: usize, classes: usize, seed: u64) -> Matrix {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let centres: Vec<f32> = (0..classes * cols).map(|_| 2.0 * unit()).collect();
    let mut data: Vec<f32> =
        (0..count * cols).map(|i| centres[i / cols % classes * cols + i % cols] + unit()).collect();
    if count > 6 {
        data.copy_within(0..2 * cols, (count - 2) * cols);
    }
    Matrix::new(count, cols, data).unwrap()
}

fn normalized(m: &Matrix) -> Vec<Vec<f64>> {
    let row = |i: usize| -> Vec<f64> {
        let length = m.row(i).iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        m.row(i).iter().map(|&v| if length > 0.0 { f64::from(v) / length } else { 0.0 }).collect()
    };
    (0..m.rows()).map(row).collect()
}

fn plain(m: &Matrix) -> Vec<Vec<f64>> {
    (0..m.rows()).map(|i| m.row(i).iter().map(|&v| f64::from(v)).collect()).collect()
}

/// Squared distances of all pairs.
fn squared(all: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let pair = |a: &Vec<f64>, b: &Vec<f64>| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum();
    all.iter().map(|a| all.iter().map(|b| pair(a, b)).collect()).collect()
}

/// The final distances of the first `queries` images to the images from `first` on, as the published
/// `re_ranking.py` finds them, in f64 and with every array dense. An image is its own first neighbour.
fn dense(
    original: &[Vec<f64>],
    queries: usize,
    first: usize,
    (k1, k2, lambda): (usize, usize, f64),
) -> Vec<Vec<f64>> {
    let n = original.len();
    let relative: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let largest = (0..n).map(|j| original[j][i]).fold(0.0, f64::max);
            original[i].iter().map(|d| if largest > 0.0 { d / largest } else { 0.0 }).collect()
        })
        .collect();
    let initial: Vec<Vec<usize>> = (0..n)
        .map(|i| {
            let mut order: Vec<usize> = (0..n).filter(|&j| j != i).collect();
            // Distances that f32 cannot tell apart are ties.
            order.sort_by(|&a, &b| {
                let key = |j: usize| (relative[i][j] * 1e9).round();
                key(a).total_cmp(&key(b)).then(a.cmp(&b))
            });
            order.insert(0, i);
            order
        })
        .collect();
    let mutual = |i: usize, k: usize| -> Vec<usize> {
        let forward = &initial[i][..(k + 1).min(n)];
        forward.iter().copied().filter(|&j| initial[j][..(k + 1).min(n)].contains(&i)).collect()
    };
    // numpy.around rounds halves to even.
    let half = [0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5][k1.min(10)].max(if k1 > 10 { k1 / 2 } else { 0 });
    let mut v = vec![vec![0.0; n]; n];
    for i in 0..n {
        let reciprocal = mutual(i, k1);
        let mut expansion = reciprocal.clone();
        for &candidate in &reciprocal {
            let of_candidate = mutual(candidate, half);
            let common = of_candidate.iter().filter(|j| reciprocal.contains(j)).count();
            if common as f64 > 2.0 / 3.0 * of_candidate.len() as f64 {
                expansion.extend(of_candidate);
            }
        }
        expansion.sort();
        expansion.dedup();
        let sum: f64 = expansion.iter().map(|&j| (-relative[i][j]).exp()).sum();
        for &j in &expansion {
            v[i][j] = (-relative[i][j]).exp() / sum;
        }
    }
    if k2 != 1 {
        let near = |i: usize| &initial[i][..k2.min(n)];
        v = (0..n)
            .map(|i| {
                let mean = |j: usize| near(i).iter().map(|&m| v[m][j]).sum::<f64>() / near(i).len() as f64;
                (0..n).map(mean).collect()
            })
            .collect();
    }
    (0..queries)
        .map(|i| {
            (first..n)
                .map(|g| {
                    let minima: f64 = (0..n).map(|j| f64::min(v[i][j], v[g][j])).sum();
                    (1.0 - minima / (2.0 - minima)) * (1.0 - lambda) + relative[i][g] * lambda
                })
                .collect()
        })
        .collect()
}

#[test]
fn re_ranked_distances_are_those_of_the_dense_version() {
    for (queries, gallery, k1, k2, lambda) in
        [(1, 1, 20, 6, 0.3), (2, 3, 1, 1, 0.0), (13, 47, 20, 6, 0.3), (30, 90, 7, 3, 0.5), (9, 60, 5, 1, 1.0)]
    {
        for metric in [Metric::Cosine, Metric::Euclidean] {
            let (q, g) = (rows(queries, 6, 8, 1), rows(gallery, 6, 8, 2));
            let form = if metric == Metric::Cosine { normalized } else { plain };
            let options = KReciprocal { k1, k2, lambda };
            let check = |found: gallerist_retrieval::search::RankedLists,
                         wanted: Vec<Vec<f64>>,
                         same: bool| {
                for (query, wanted) in wanted.iter().enumerate() {
                    let (items, distances) = (found.indices(query), found.scores(query));
                    assert_eq!(items.len(), wanted.len() - usize::from(same));
                    assert!(distances.is_sorted());
                    for (&item, &distance) in items.iter().zip(distances) {
                        let wanted = wanted[item as usize];
                        assert!((f64::from(distance) - wanted).abs() < 2e-6, "{distance} and not {wanted}");
                    }
                }
            };
            let joined = [form(&q), form(&g)].concat();
            let reranker = options.prepare(Some(q.view()), g.view(), metric).unwrap();
            let wanted = dense(&squared(&joined), queries, queries, (k1, k2, lambda));
            check(reranker.search(&q, &g, gallery).unwrap(), wanted, false);

            let reranker = options.prepare(None, g.view(), metric).unwrap();
            let wanted = dense(&squared(&form(&g)), gallery, 0, (k1, k2, lambda));
            check(reranker.search(&g, &g, gallery).unwrap(), wanted, true);
        }
    }
}

/// Five images on a line at 0, 1, 2, 10, 11; k1 = 1, k2 = 1, lambda = 0.
/// N(i, 1): 0 -> 1, 1 -> 0 (a tie with 2; the lower index), 2 -> 1, 3 -> 4, 4 -> 3.
/// R: 0 {0 1}, 1 {0 1}, 2 {2}, 3 {3 4}, 4 {3 4}.
/// V(0) = (1, exp(-1/121)) / sum, V(1) = (exp(-1/100), 1) / sum, and no other image shares with them.
#[test]
fn the_hand_worked_line_has_its_jaccard_distances() {
    let line = Matrix::new(5, 1, vec![0.0, 1.0, 2.0, 10.0, 11.0]).unwrap();
    let options = KReciprocal { k1: 1, k2: 1, lambda: 0.0 };
    let lists =
        options.prepare(None, line.view(), Metric::Euclidean).unwrap().search(&line, &line, 4).unwrap();
    let (a, b) = ((-1.0f64 / 121.0).exp(), (-1.0f64 / 100.0).exp());
    let shared = f64::min(1.0 / (1.0 + a), b / (1.0 + b)) + f64::min(a / (1.0 + a), 1.0 / (1.0 + b));
    assert_eq!(lists.indices(0), [1, 2, 3, 4]);
    assert!((f64::from(lists.scores(0)[0]) - (1.0 - shared / (2.0 - shared))).abs() < 1e-7);
    assert_eq!(lists.scores(0)[1..], [1.0, 1.0, 1.0]);
    assert_eq!(lists.scores(2), [1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn a_re_ranked_evaluation_measures_the_re_ranked_lists_without_junk_and_own_cameras() {
    let (q, g) = (rows(20, 4, 5, 3), rows(70, 4, 5, 4));
    let label = |row: usize| (row % 6) as u32;
    let camera = |row: usize| (row / 3 % 2) as u32;
    let of = |count: usize, f: &dyn Fn(usize) -> u32| (0..count).map(f).collect::<Vec<u32>>();
    let (lq, lg, cq, cg) = (of(20, &label), of(70, &label), of(20, &camera), of(70, &camera));
    let side = |embeddings, identities, cameras| Sightings { embeddings, identities, cameras }.side();
    let task = Task::split(side(&q, &lq, &cq), side(&g, &lg, &cg)).without(Some(5));
    let options = EvalOptions { metric: Metric::Cosine, measures: vec![Measure::of_all(&ReciprocalRank)] };
    let rerank = KReciprocal { k1: 6, k2: 3, lambda: 0.3 };
    let found = task.measure_reranked(&options, &rerank).unwrap();

    let kept: Vec<usize> = (0..70).filter(|&item| label(item) != 5).collect();
    let left = g.select(&kept);
    let lists =
        rerank.prepare(Some(q.view()), left.view(), Metric::Cosine).unwrap().search(&q, &left, 70).unwrap();
    for query in 0..20 {
        let ranked = lists.indices(query).iter().map(|&item| kept[item as usize]);
        let mut counted =
            ranked.filter(|&item| !(label(item) == label(query) && camera(item) == camera(query)));
        let rank =
            counted.position(|item| label(item) == label(query)).map_or(0.0, |at| 1.0 / (at + 1) as f64);
        assert_eq!(found.queries.of(query), [rank]);
    }
    assert_eq!(found.evaluation.gallery, kept.len());
    assert!(
        found.evaluation.protocol.ends_with("re-ranked by k-reciprocal neighbours (k1 6, k2 3, lambda 0.3)")
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    let g = rows(9, 2, 2, 1);
    let run =
        |options: KReciprocal, metric| options.prepare(None, g.view(), metric).err().map(|e| e.to_string());
    let fine = KReciprocal::default();
    assert_eq!(run(fine, Metric::Cosine), None);
    assert!(run(fine, Metric::InnerProduct).unwrap().contains("the inner product"));
    assert!(run(KReciprocal { k1: 0, ..fine }, Metric::Cosine).unwrap().starts_with("k1 must be"));
    assert!(run(KReciprocal { k2: 0, ..fine }, Metric::Cosine).unwrap().starts_with("k2 must be"));
    assert!(run(KReciprocal { k2: 22, ..fine }, Metric::Cosine).unwrap().starts_with("k2 must be"));
    assert!(run(KReciprocal { lambda: 1.1, ..fine }, Metric::Cosine).unwrap().starts_with("lambda must be"));
    assert!(run(KReciprocal { lambda: f64::NAN, ..fine }, Metric::Cosine).is_some());
    // More neighbours than there are images.
    assert_eq!(run(KReciprocal { k1: usize::MAX, ..fine }, Metric::Cosine), None);
    assert_eq!(run(KReciprocal { k1: usize::MAX, k2: usize::MAX, ..fine }, Metric::Cosine), None);
    let narrow = Matrix::new(2, 1, vec![1.0, 2.0]).unwrap();
    assert!(fine.prepare(Some(narrow.view()), g.view(), Metric::Cosine).is_err());
    let reranker = fine.prepare(None, g.view(), Metric::Cosine).unwrap();
    assert!(reranker.search(&g, &g, 0).is_err());
    assert!(reranker.search(&g.select(&[0, 1]), &g, 1).is_err());
}

#[test]
fn the_lists_are_the_same_for_any_number_of_threads() {
    let g = rows(150, 5, 9, 6);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let options = KReciprocal::default();
        pool.install(|| options.prepare(None, g.view(), Metric::Cosine).unwrap().search(&g, &g, 20).unwrap())
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn expanded_queries_are_the_weighted_means_of_their_neighbours() {
    let (q, g) = (rows(11, 5, 4, 7), rows(60, 5, 4, 8));
    for (alpha, metric) in [(0.0, Metric::Cosine), (3.0, Metric::Cosine), (0.0, Metric::Euclidean)] {
        let form = if metric == Metric::Cosine { normalized } else { plain };
        for same in [false, true] {
            let (starts, gallery) = (form(if same { &g } else { &q }), form(&g));
            let expansion = QueryExpansion { neighbours: 7, alpha };
            let of_queries = (!same).then(|| q.view());
            let found = expansion.expand(of_queries, g.view(), metric).unwrap();
            assert_eq!(found.rows(), starts.len());
            for (query, start) in starts.iter().enumerate() {
                let cosine =
                    |item: usize| -> f64 { start.iter().zip(&gallery[item]).map(|(a, b)| a * b).sum() };
                let distance = |item: usize| -> f64 {
                    start.iter().zip(&gallery[item]).map(|(a, b)| (a - b).powi(2)).sum()
                };
                let mut order: Vec<usize> = (0..60).filter(|&item| !(same && item == query)).collect();
                let key = |item: usize| (distance(item) * 1e9).round();
                order.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
                let weight = |item: usize| if alpha == 0.0 { 1.0 } else { cosine(item).max(0.0).powf(alpha) };
                let total = 1.0 + order[..7].iter().map(|&item| weight(item)).sum::<f64>();
                for col in 0..5 {
                    let sum: f64 = order[..7].iter().map(|&item| weight(item) * gallery[item][col]).sum();
                    let wanted = (start[col] + sum) / total;
                    assert!((f64::from(found.row(query)[col]) - wanted).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn an_expanded_evaluation_measures_the_expanded_queries_against_the_gallery_as_it_is() {
    let g = rows(80, 5, 6, 9);
    let labels: Vec<u32> = (0..80).map(|row| row % 6).collect();
    let options = EvalOptions {
        metric: Metric::Cosine,
        measures: vec![Measure::of_all(&AveragePrecision), Measure::at(&Recall, 1)],
    };
    let expansion = QueryExpansion { neighbours: 4, alpha: 0.0 };
    let found = Task::every_row(Side::classes(&g, &labels)).measure_expanded(&options, &expansion).unwrap();
    let expanded = expansion.expand(None, g.view(), Metric::Cosine).unwrap();
    // A query does not find its own image: its own row is the only relevant one that is missing.
    for query in 0..80 {
        let kept: Vec<usize> = (0..80).filter(|&item| item != query).collect();
        let of_kept: Vec<u32> = kept.iter().map(|&item| labels[item]).collect();
        let (one, rest) = (expanded.select(&[query]), g.select(&kept));
        let label = [labels[query]];
        let alone =
            Task::split(Side::classes(&one, &label), Side::classes(&rest, &of_kept)).measure(&options);
        assert_eq!(alone.unwrap().queries.of(0), found.queries.of(query));
    }
    assert!(found.evaluation.protocol.ends_with("queries expanded by 4 neighbours"));
    let refused = |expansion: QueryExpansion, metric| expansion.expand(None, g.view(), metric).is_err();
    assert!(refused(QueryExpansion { neighbours: 0, alpha: 0.0 }, Metric::Cosine));
    assert!(refused(QueryExpansion { neighbours: 3, alpha: -1.0 }, Metric::Cosine));
    assert!(refused(QueryExpansion { neighbours: 3, alpha: 2.0 }, Metric::Euclidean));
}
