//! Miners against their definitions, and the pair losses on what they mined: oracles in f64 written from
//! the equations, central differences, corner cases.

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::miner::{Candidates, Choice, Mined, Miner, MinerConfig};
use gallerist_loss::{
    AngularConfig, ContrastiveConfig, Labels, LiftedConfig, LossConfig, LossShape, MarginConfig, Progress,
};
use gallerist_util::registry::Named;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Rows = Vec<Vec<f64>>;

fn tensor(rows: &Rows) -> Tensor<2> {
    let data = TensorData::new(rows.concat(), [rows.len(), rows[0].len()]);
    Tensor::<2>::from_data(data, (&Device::flex().autodiff(), DType::F64)).require_grad()
}

fn host(data: TensorData) -> Vec<f64> {
    data.convert::<f64>().try_into_vec().unwrap()
}

fn matrix(data: TensorData) -> Rows {
    let columns = data.shape()[1];
    host(data).chunks(columns).map(<[f64]>::to_vec).collect()
}

/// What a miner left, on the host.
struct Selected {
    positives: Rows,
    negatives: Rows,
    partners: Option<Rows>,
}

fn miner(json: &Value) -> MinerConfig {
    let miner: MinerConfig = serde_json::from_value(json.clone()).unwrap();
    miner.validate().unwrap();
    miner
}

fn mine(json: &Value, rows: &Rows, labels: &[u32], step: usize) -> Selected {
    let progress = Progress { step, steps: 100 };
    let Mined { positives, negatives, partners, problem } =
        miner(json).mine(&tensor(rows), Labels::Classes(labels), progress);
    assert_eq!(problem, None);
    Selected {
        positives: matrix(positives.into_data()),
        negatives: matrix(negatives.into_data()),
        partners: partners.map(|partners| matrix(partners.into_data())),
    }
}

struct Run {
    value: f64,
    gradient: Vec<f64>,
    mined: Vec<[u32; 2]>,
}

fn run(json: &Value, rows: &Rows, labels: &[u32]) -> Run {
    let config: LossConfig = serde_json::from_value(json.clone()).unwrap_or_else(|e| panic!("{json}: {e}"));
    let x = tensor(rows);
    let shape = LossShape { classes: 8, dimensions: rows[0].len() };
    let loss = config.init(shape, 1, &Device::flex().autodiff());
    let output = loss.forward(x.clone(), Labels::Classes(labels), Progress { step: 3, steps: 100 });
    let gradient = x.grad(&output.value.backward()).map(|g| host(g.into_data()));
    let queries = &output.queries;
    Run {
        value: host(output.value.clone().into_data())[0],
        gradient: gradient.unwrap_or(vec![0.0; rows.concat().len()]),
        mined: (0..rows.len()).map(|i| [queries.mined_positives[i], queries.mined_negatives[i]]).collect(),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn dist(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
}

fn miners() -> Vec<Value> {
    vec![
        json!({"name": "all"}),
        json!({"name": "semi_hard", "margin": 0.8}),
        json!({"name": "hard"}),
        json!({"name": "distance_weighted"}),
        json!({"name": "multi_similarity", "epsilon": 0.05}),
    ]
}

/// Batches of unit rows in four dimensions with 1 to 3 classes.
fn batches() -> impl Strategy<Value = (Rows, Vec<u32>)> {
    (1usize..10).prop_flat_map(|n| {
        let row = prop::collection::vec(-1.0f64..1.0, 4);
        (prop::collection::vec(row, n), prop::collection::vec(0u32..3, n)).prop_map(|(mut rows, labels)| {
            for row in &mut rows {
                row[0] += 0.4;
                let norm = dot(row, row).sqrt().max(1e-3);
                row.iter_mut().for_each(|v| *v /= norm);
            }
            (rows, labels)
        })
    })
}

fn seeded(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(seeded(150))]

    #[test]
    fn hard_keeps_the_farthest_positive_and_the_nearest_negative((rows, labels) in batches()) {
        let found = mine(&json!({"name": "hard"}), &rows, &labels, 0);
        let n = rows.len();
        for a in 0..n {
            let d = |j: usize| dist(&rows[a], &rows[j]);
            let positives = (0..n).filter(|&j| j != a && labels[j] == labels[a]);
            let negatives = (0..n).filter(|&j| labels[j] != labels[a]);
            let farthest = positives.max_by(|&i, &j| d(i).total_cmp(&d(j)));
            let nearest = negatives.min_by(|&i, &j| d(i).total_cmp(&d(j)));
            let wanted = farthest.zip(nearest);
            for j in 0..n {
                prop_assert_eq!(found.positives[a][j], f64::from(u8::from(wanted.is_some_and(|(p, _)| p == j))));
                prop_assert_eq!(found.negatives[a][j], f64::from(u8::from(wanted.is_some_and(|(_, q)| q == j))));
            }
        }
    }

    #[test]
    fn semi_hard_takes_the_nearest_negative_of_the_shell((rows, labels) in batches(), margin in 0.05f64..1.5) {
        let found = mine(&json!({"name": "semi_hard", "margin": margin}), &rows, &labels, 0);
        let partners = found.partners.unwrap();
        let n = rows.len();
        let mut counts = vec![vec![0.0; n]; n];
        for a in 0..n {
            for p in 0..n {
                let positive = p != a && labels[p] == labels[a];
                let inner = dist(&rows[a], &rows[p]).powi(2);
                // Sorted by distance, the first beyond the positive is the one, if within the margin.
                let mut negatives: Vec<(f64, usize)> =
                    (0..n).filter(|&j| labels[j] != labels[a]).map(|j| (dist(&rows[a], &rows[j]).powi(2), j)).collect();
                negatives.sort_by(|a, b| a.0.total_cmp(&b.0));
                let wanted = negatives.into_iter().find(|&(d, _)| d > inner).filter(|&(d, _)| d < inner + margin);
                match wanted.filter(|_| positive) {
                    Some((_, negative)) => {
                        prop_assert_eq!(found.positives[a][p], 1.0);
                        prop_assert_eq!(partners[a][p], negative as f64);
                        counts[a][negative] += 1.0;
                    }
                    None => prop_assert_eq!(found.positives[a][p], 0.0),
                }
            }
        }
        prop_assert_eq!(found.negatives, counts);
    }

    #[test]
    fn multi_similarity_keeps_what_violates_the_order((rows, labels) in batches(), epsilon in -0.2f64..0.4) {
        let found = mine(&json!({"name": "multi_similarity", "epsilon": epsilon}), &rows, &labels, 0);
        let n = rows.len();
        for a in 0..n {
            for j in (0..n).filter(|&j| j != a) {
                let s = dot(&rows[a], &rows[j]);
                let same = labels[j] == labels[a];
                // In force: some pair of the other kind stands on the wrong side of it, up to epsilon.
                let violates = (0..n).filter(|&k| k != a && (labels[k] == labels[a]) != same).any(|k| {
                    let other = dot(&rows[a], &rows[k]);
                    if same { s < other + epsilon } else { s > other - epsilon }
                });
                let weight = if same { found.positives[a][j] } else { found.negatives[a][j] };
                prop_assert_eq!(weight, f64::from(u8::from(violates)), "{} {}", a, j);
            }
        }
    }

    #[test]
    fn distance_weighted_gives_every_positive_a_negative_within_reach((rows, labels) in batches(), step in 0usize..5) {
        let found = mine(&json!({"name": "distance_weighted", "far_cutoff": 1.1}), &rows, &labels, step);
        let partners = found.partners.unwrap();
        let n = rows.len();
        let mut counts = vec![vec![0.0; n]; n];
        for a in 0..n {
            let negatives: Vec<usize> = (0..n).filter(|&j| labels[j] != labels[a]).collect();
            let within = negatives.iter().any(|&j| dist(&rows[a], &rows[j]) <= 1.1);
            for p in 0..n {
                let wanted = p != a && labels[p] == labels[a] && !negatives.is_empty();
                prop_assert_eq!(found.positives[a][p], f64::from(u8::from(wanted)));
                if wanted {
                    let negative = partners[a][p] as usize;
                    prop_assert!(labels[negative] != labels[a]);
                    prop_assert!(!within || dist(&rows[a], &rows[negative]) <= 1.1);
                    counts[a][negative] += 1.0;
                }
            }
        }
        prop_assert_eq!(found.negatives, counts);
    }

    #[test]
    fn losses_on_mined_pairs_are_their_equations((rows, labels) in batches()) {
        for miner in miners() {
            for mut loss in losses() {
                loss["miner"] = miner.clone();
                let mined = mine(&miner, &rows, &labels, 3);
                let found = run(&loss, &rows, &labels);
                let wanted = oracle(&loss, &rows, &labels, &mined);
                prop_assert!((found.value - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{}: {} {}", loss, found.value, wanted);
                for (i, mined_of) in found.mined.iter().enumerate() {
                    let count = |row: &[f64]| row.iter().filter(|&&w| w > 0.0).count() as u32;
                    prop_assert!(mined_of[0] <= count(&mined.positives[i]), "{}", loss);
                    prop_assert!(mined_of[1] <= count(&mined.negatives[i]), "{}", loss);
                }
            }
        }
    }

    #[test]
    fn gradients_on_mined_pairs_are_those_of_central_differences_with_the_choice_held((rows, labels) in batches()) {
        for miner in miners() {
            for mut loss in losses() {
                if loss["name"] == "circle" {
                    continue; // It holds its weights constant: no central difference has its gradient.
                }
                loss["miner"] = miner.clone();
                let mined = mine(&miner, &rows, &labels, 3);
                let found = run(&loss, &rows, &labels);
                let at = (labels.len() * 31) % found.gradient.len();
                let value = |by: f64| {
                    let mut moved = rows.clone();
                    moved[at / 4][at % 4] += by;
                    oracle(&loss, &moved, &labels, &mined)
                };
                let slope = |h: f64| (value(h) - value(-h)) / (2.0 * h);
                let (near, far) = (slope(1e-5), slope(2e-5));
                // Where the two agree no kink of a hinge lies in between.
                if (near - far).abs() <= 1e-6 * near.abs().max(1.0) {
                    let gradient = found.gradient[at];
                    prop_assert!((gradient - near).abs() <= 1e-5 * near.abs().max(1.0), "{}: {} {}", loss, gradient, near);
                }
            }
        }
    }
}

fn losses() -> Vec<Value> {
    vec![
        json!({"name": "contrastive", "margin": 1.2}),
        json!({"name": "triplet_all", "margin": 0.5}),
        json!({"name": "margin", "margin": 0.2, "beta": 0.9, "nu": 0.05}),
        json!({"name": "multi_similarity", "alpha": 2.0, "beta": 50.0, "base": 0.5}),
        json!({"name": "lifted", "alpha": 1.0, "squared": true}),
        json!({"name": "lifted", "alpha": 1.0, "squared": false}),
        json!({"name": "circle", "margin": 0.25, "gamma": 8.0}),
        json!({"name": "angular", "angle": 45.0}),
        json!({"name": "sup_con", "temperature": 0.5}),
        json!({"name": "sup_con", "temperature": 0.5, "form": "nt_xent"}),
    ]
}

/// The value of a loss on the selected pairs, by loops.
fn oracle(json: &Value, x: &Rows, labels: &[u32], mined: &Selected) -> f64 {
    let n = x.len();
    let number = |key: &str, default: f64| json.get(key).map_or(default, |v| v.as_f64().unwrap());
    let d = |i: usize, j: usize| dist(&x[i], &x[j]);
    let s = |i: usize, j: usize| dot(&x[i], &x[j]);
    let plus = |v: f64| v.max(0.0);
    let list = |weights: &Rows, i: usize| -> Vec<usize> { (0..n).filter(|&j| weights[i][j] > 0.0).collect() };
    let (p, q) = (|i: usize| list(&mined.positives, i), |i: usize| list(&mined.negatives, i));
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    let pairs = || (0..n).flat_map(|i| p(i).into_iter().map(move |j| (i, j)));
    let sum_exp = |v: Vec<f64>| v.into_iter().map(f64::exp).sum::<f64>();
    match json["name"].as_str().unwrap() {
        "contrastive" => {
            let (mut sum, mut count) = (0.0, 0.0);
            for i in 0..n {
                for j in 0..n {
                    let (wp, wn) = (mined.positives[i][j], mined.negatives[i][j]);
                    sum += wp * d(i, j).powi(2) + wn * plus(number("margin", 1.0) - d(i, j)).powi(2);
                    count += wp + wn;
                }
            }
            sum / f64::max(count, 1.0)
        }
        "triplet_all" => {
            let cost = |a: usize, b: usize, c: usize| {
                plus(d(a, b).powi(2) + number("margin", 0.2) - d(a, c).powi(2))
            };
            let costs: Vec<f64> = match &mined.partners {
                Some(partners) => pairs().map(|(a, b)| cost(a, b, partners[a][b] as usize)).collect(),
                None => pairs()
                    .flat_map(|(a, b)| q(a).into_iter().map(move |c| (a, b, c)))
                    .map(|(a, b, c)| cost(a, b, c))
                    .collect(),
            };
            mean(&costs)
        }
        "margin" => {
            let (beta, nu) = (number("beta", 1.2), number("nu", 0.0));
            let (mut sum, mut count) = (0.0, 0.0);
            for i in 0..n {
                for j in 0..n {
                    for (weight, cost) in [
                        (mined.positives[i][j], plus(d(i, j) - beta + 0.2)),
                        (mined.negatives[i][j], plus(beta - d(i, j) + 0.2)),
                    ] {
                        sum += weight * cost;
                        count += if cost > 0.0 { weight } else { 0.0 };
                    }
                    sum += nu * beta * mined.positives[i][j];
                }
            }
            if count > 0.0 { sum / count } else { 0.0 }
        }
        "multi_similarity" => {
            let per = (0..n).map(|i| {
                let pull = sum_exp(p(i).iter().map(|&j| -2.0 * (s(i, j) - 0.5)).collect());
                let push = sum_exp(q(i).iter().map(|&j| 50.0 * (s(i, j) - 0.5)).collect());
                (1.0 + pull).ln() / 2.0 + (1.0 + push).ln() / 50.0
            });
            mean(&per.collect::<Vec<_>>())
        }
        "lifted" => {
            let squared = json.get("squared").is_none_or(|v| v.as_bool().unwrap());
            let costs = pairs().map(|(i, j)| {
                let push = sum_exp(q(i).iter().map(|&k| 1.0 - d(i, k)).collect())
                    + sum_exp(q(j).iter().map(|&k| 1.0 - d(j, k)).collect());
                if push == 0.0 {
                    return 0.0;
                }
                let excess = plus(push.ln() + d(i, j));
                0.5 * if squared { excess * excess } else { excess }
            });
            mean(&costs.collect::<Vec<_>>())
        }
        "circle" => {
            let (m, gamma) = (number("margin", 0.25), number("gamma", 256.0));
            let per = (0..n).filter(|&i| !p(i).is_empty() && !q(i).is_empty()).map(|i| {
                let pull = p(i).into_iter().map(|j| -gamma * plus(1.0 + m - s(i, j)) * (s(i, j) - (1.0 - m)));
                let push = q(i).into_iter().map(|j| gamma * plus(s(i, j) + m) * (s(i, j) - m));
                (1.0 + sum_exp(pull.collect()) * sum_exp(push.collect())).ln()
            });
            mean(&per.collect::<Vec<_>>())
        }
        "angular" => {
            let costs = pairs().map(|(a, b)| {
                let f = |c: usize| 4.0 * (s(a, c) + s(b, c)) - 4.0 * s(a, b);
                (1.0 + sum_exp(q(a).into_iter().filter(|&c| labels[c] != labels[b]).map(f).collect())).ln()
            });
            mean(&costs.collect::<Vec<_>>())
        }
        "sup_con" => {
            let t = number("temperature", 0.1);
            if json.get("form").is_some() {
                let costs = pairs().map(|(a, b)| {
                    (1.0 + sum_exp(q(a).iter().map(|&c| (s(a, c) - s(a, b)) / t).collect())).ln()
                });
                return mean(&costs.collect::<Vec<_>>());
            }
            let per = (0..n).filter(|&i| !p(i).is_empty()).map(|i| {
                let all = sum_exp(p(i).into_iter().chain(q(i)).map(|j| s(i, j) / t).collect()).ln();
                mean(&p(i).iter().map(|&j| all - s(i, j) / t).collect::<Vec<_>>())
            });
            mean(&per.collect::<Vec<_>>())
        }
        name => unreachable!("{name}"),
    }
}

fn spread(n: usize) -> (Rows, Vec<u32>) {
    let rows = (0..n).map(|i| {
        (0..6)
            .map(|k| f64::from((i * i * 7 + k * k * 3 + i * k) as u32 % 31) / 31.0 - 0.4)
            .collect::<Vec<f64>>()
    });
    let unit = rows.map(|row| {
        let norm = dot(&row, &row).sqrt();
        row.into_iter().map(|v| v / norm).collect()
    });
    (unit.collect(), (0..n as u32).map(|i| i % 5).collect())
}

#[test]
fn the_losses_that_take_a_miner_are_those_of_the_list() {
    for name in LossConfig::names() {
        let json = json!({"name": name, "miner": {"name": "hard"}});
        let takes = serde_json::from_value::<LossConfig>(json).is_ok();
        assert_eq!(takes, LossConfig::with_miner().contains(&name), "{name}");
    }
    assert!(losses().iter().all(|loss| LossConfig::with_miner().contains(&loss["name"].as_str().unwrap())));
    assert!(LossConfig::with_miner().iter().all(|name| losses().iter().any(|loss| loss["name"] == *name)));
}

#[test]
fn all_is_the_same_as_no_miner() {
    let (rows, labels) = spread(33);
    for mut loss in losses() {
        let of_its_own = ["margin", "multi_similarity"].contains(&loss["name"].as_str().unwrap());
        loss["miner"] = json!({"name": "all"});
        let all = run(&loss, &rows, &labels);
        loss.as_object_mut().unwrap().remove("miner");
        let plain = run(&loss, &rows, &labels);
        assert_eq!(plain.value == all.value && plain.gradient == all.gradient, !of_its_own, "{loss}");
    }
}

#[test]
fn an_explicit_miner_of_a_loss_does_what_its_default_does() {
    let (rows, labels) = spread(33);
    for (name, miner) in [("margin", "distance_weighted"), ("multi_similarity", "multi_similarity")] {
        let plain = run(&json!({"name": name}), &rows, &labels);
        let named = run(&json!({"name": name, "miner": {"name": miner}}), &rows, &labels);
        assert_eq!((plain.value, plain.gradient), (named.value, named.gradient));
    }
}

#[test]
fn a_batch_without_a_pair_in_force_has_the_value_0_and_no_gradient() {
    for (rows, labels) in [
        (vec![vec![1.0, 0.0]], vec![0]),
        (vec![vec![1.0, 0.0], vec![0.0, 1.0]], vec![0, 1]),
        (vec![vec![1.0, 0.0], vec![0.0, 1.0]], vec![0, 0]),
        (vec![vec![0.0, 0.0]; 3], vec![2, 2, 2]),
    ] {
        for miner in miners().into_iter().filter(|miner| miner["name"] != "all") {
            let mined = mine(&miner, &rows, &labels, 0);
            assert!(
                mined.positives.concat().iter().chain(&mined.negatives.concat()).all(|&w| w == 0.0),
                "{miner}"
            );
            for mut loss in losses() {
                loss["miner"] = miner.clone();
                let found = run(&loss, &rows, &labels);
                assert_eq!(found.value, 0.0, "{loss}");
                assert!(found.gradient.iter().all(|&g| g == 0.0), "{loss}");
                assert!(found.mined.iter().all(|mined| *mined == [0, 0]), "{loss}");
            }
        }
    }
}

#[test]
fn coincident_and_huge_rows_have_finite_values_and_gradients_under_every_miner() {
    let labels = [0, 0, 1, 1, 2, 2];
    for size in [0.0, 1e-6, 1.0, 1e3] {
        let rows: Rows = (0..6).map(|i| vec![size, if i == 5 { size } else { 0.0 }, 0.0]).collect();
        for miner in miners() {
            for mut loss in losses() {
                loss["miner"] = miner.clone();
                let found = run(&loss, &rows, &labels);
                assert!(
                    found.value.is_finite() && found.gradient.iter().all(|g| g.is_finite()),
                    "{loss} {size}"
                );
            }
        }
    }
}

#[test]
fn samples_that_share_a_label_are_never_mined_as_negatives() {
    let (rows, _) = spread(12);
    let sets: Vec<Vec<u32>> = (0..12).map(|i| vec![i % 3, 3 + i % 2]).collect();
    let related = |i: usize, j: usize| sets[i].iter().any(|label| sets[j].contains(label));
    for json in miners() {
        let mined = miner(&json).mine(&tensor(&rows), Labels::Sets(&sets), Progress::default());
        let (positives, negatives) =
            (matrix(mined.positives.into_data()), matrix(mined.negatives.into_data()));
        assert!(negatives.concat().iter().any(|&w| w > 0.0), "{json}");
        for i in 0..12 {
            for j in 0..12 {
                assert!(positives[i][j] == 0.0 || (i != j && related(i, j)), "{json}: {i} {j}");
                assert!(negatives[i][j] == 0.0 || !related(i, j), "{json}: {i} {j}");
            }
        }
    }
}

#[test]
fn draws_depend_on_seed_and_step_and_not_on_the_number_of_threads() {
    let (rows, labels) = spread(40);
    let draw = |threads: usize, seed: u64, step: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            mine(&json!({"name": "distance_weighted", "seed": seed}), &rows, &labels, step).negatives
        })
    };
    let one = draw(1, 4, 7);
    assert!(draw(2, 4, 7) == one && draw(5, 4, 7) == one);
    assert!(draw(1, 5, 7) != one && draw(1, 4, 8) != one);
}

#[test]
fn a_loss_that_mines_itself_keeps_the_pairs_of_the_miner() {
    let (rows, labels) = spread(48);
    let x = tensor(&rows).cast(DType::F32);
    let config: LossConfig = serde_json::from_value(json!({"name": "multi_similarity"})).unwrap();
    let loss = config.init(LossShape { classes: 5, dimensions: 6 }, 1, &Device::flex().autodiff());
    let found = loss.forward(x.clone(), Labels::Classes(&labels), Progress::default()).queries;
    let wanted =
        miner(&json!({"name": "multi_similarity"})).mine(&x, Labels::Classes(&labels), Progress::default());
    let counts = |mask: Tensor<2>| -> Vec<u32> {
        let sums = mask.sum_dim(1).into_data().convert::<f32>().try_into_vec::<f32>().unwrap();
        sums.into_iter().map(|sum| sum as u32).collect()
    };
    assert_eq!(found.mined_positives, counts(wanted.positives));
    assert_eq!(found.mined_negatives, counts(wanted.negatives));
    assert!(found.mined_negatives.iter().sum::<u32>() < found.negatives.iter().sum());
}

/// Chooses the same for every query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Fixed {
    positives: Vec<usize>,
    negatives: Vec<usize>,
    as_triplets: bool,
    says_triplets: bool,
}

impl Named for Fixed {
    const NAME: &'static str = "fixed";
}

impl Miner for Fixed {
    fn gives_triplets(&self) -> bool {
        self.says_triplets
    }

    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        let (positives, negatives) = (self.positives.clone(), self.negatives.clone());
        match (candidates.query, self.as_triplets) {
            // The first query only.
            (1.., _) => Choice::nothing(),
            (0, true) => Choice::Triplets(positives.into_iter().zip(negatives).collect()),
            (0, false) => Choice::Product { positives, negatives },
        }
    }
}

#[test]
fn a_choice_that_is_not_among_the_candidates_is_named_and_no_loss() {
    let labels = Labels::Classes(&[0, 0, 1, 1]);
    let fixed = |positives: &[usize], negatives: &[usize], as_triplets, says_triplets| Fixed {
        positives: positives.to_vec(),
        negatives: negatives.to_vec(),
        as_triplets,
        says_triplets,
    };
    for (choice, problem) in [
        (fixed(&[1], &[2], false, false), None),
        (fixed(&[1], &[2], true, true), None),
        (fixed(&[4], &[2], false, false), Some("the positive 4, but its list has 4 places")),
        (
            fixed(&[1], &[usize::MAX], true, true),
            Some("the negative 18446744073709551615, but its list has 4 places"),
        ),
        (fixed(&[0], &[2], false, false), Some("the positive 0, which is not among its positives")),
        (fixed(&[1], &[0], true, true), Some("the negative 0, which is not among its negatives")),
        (fixed(&[2], &[1], false, false), Some("the positive 2, which is not among its positives")),
        (fixed(&[1, 1], &[2, 3], true, true), Some("the positive 1 twice")),
        (fixed(&[1], &[2], true, false), Some("triplets, but `gives_triplets` is false")),
        (fixed(&[1], &[2], false, true), Some("a product of pairs, but `gives_triplets` is true")),
    ] {
        let problem = problem.map(|problem| format!("the miner `fixed` chose for query 0 {problem}"));
        let miner: MinerConfig = choice.into();
        let losses: [LossConfig; 4] = [
            // Its pairs are chosen by the engine, those of the others as tensors.
            ContrastiveConfig { miner: Some(miner.clone()), ..ContrastiveConfig::default() }.into(),
            MarginConfig { miner: miner.clone(), ..MarginConfig::default() }.into(),
            LiftedConfig { miner: Some(miner.clone()), ..LiftedConfig::default() }.into(),
            AngularConfig { miner: Some(miner.clone()), ..AngularConfig::default() }.into(),
        ];
        for config in losses {
            let device = Device::flex().autodiff();
            let x = Tensor::<2>::from_floats([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]], &device)
                .require_grad();
            let loss = config.init(LossShape { classes: 2, dimensions: 2 }, 1, &device);
            let output = loss.forward(x.clone(), labels, Progress::default());
            assert_eq!(output.queries.problem, problem, "{}", config.name());
            let value = output.value.clone().into_scalar::<f32>();
            assert_eq!(value.is_nan(), problem.is_some(), "{}", config.name());
            let gradient =
                x.grad(&output.value.backward()).unwrap().into_data().try_into_vec::<f32>().unwrap();
            assert_eq!(gradient.iter().all(|value| value.is_nan()), problem.is_some(), "{}", config.name());
        }
    }
}
