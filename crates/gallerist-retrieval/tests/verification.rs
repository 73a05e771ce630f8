//! Verification against a naive version that sorts all pairs, in f64.

use gallerist_retrieval::eval::{Side, Sightings, Task, VerificationOptions, verify};
use gallerist_retrieval::{Matrix, search::Metric};
use proptest::prelude::*;

/// Half-integers: f32 and f64 agree on every inner product.
fn rows(rows: usize, range: i64, seed: u64) -> Matrix {
    let mut state = seed;
    let data = (0..rows * 2).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as i64 % range) as f32 / 2.0
    });
    Matrix::new(rows, 2, data.collect()).unwrap()
}

struct Naive {
    tar: Vec<f64>,
    eer: f64,
    auc: f64,
}

/// From (score, genuine) of every pair.
fn naive(pairs: &[(f64, bool)], fars: &[f64]) -> Naive {
    let of =
        |genuine: bool| pairs.iter().filter(|pair| pair.1 == genuine).map(|pair| pair.0).collect::<Vec<_>>();
    let (genuine, impostor) = (of(true), of(false));
    let share = |scores: &[f64], threshold: f64| {
        scores.iter().filter(|&&score| score >= threshold).count() as f64 / scores.len() as f64
    };
    let tar = fars.iter().map(|&far| {
        let allowed = pairs.iter().filter(|pair| share(&impostor, pair.0) <= far + 1e-12);
        allowed.map(|pair| share(&genuine, pair.0)).fold(0.0, f64::max)
    });
    let mut wins = 0.0;
    for g in &genuine {
        for i in &impostor {
            wins += if g > i {
                1.0
            } else if g == i {
                0.5
            } else {
                0.0
            };
        }
    }
    // The curve's points from the strictest threshold on, joined by lines.
    let mut thresholds: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
    thresholds.sort_by(|a, b| b.total_cmp(a));
    let (mut far, mut frr) = (0.0, 1.0);
    let mut eer = f64::NAN;
    for threshold in thresholds {
        let (next_far, next_frr) = (share(&impostor, threshold), 1.0 - share(&genuine, threshold));
        if eer.is_nan() && next_far >= next_frr - 1e-12 {
            let part = (frr - far) / ((frr - far) + (next_far - next_frr));
            eer = far + part * (next_far - far);
        }
        (far, frr) = (next_far, next_frr);
    }
    Naive { tar: tar.collect(), eer, auc: wins / (genuine.len() * impostor.len()) as f64 }
}

fn dot(a: &Matrix, i: usize, b: &Matrix, j: usize) -> f64 {
    a.row(i).iter().zip(b.row(j)).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

fn assert_agree(task: &Task, pairs: &[(f64, bool)]) {
    let options = VerificationOptions { fars: vec![0.0, 0.001, 0.05, 0.1, 0.3, 1.0] };
    let found = verify(task, Metric::InnerProduct, &options);
    let genuine = pairs.iter().filter(|pair| pair.1).count();
    if genuine == 0 || genuine == pairs.len() {
        assert!(found.is_err());
        return;
    }
    let (found, wanted) = (found.unwrap(), naive(pairs, &options.fars));
    assert_eq!((found.genuine_pairs, found.impostor_pairs), (genuine as u64, (pairs.len() - genuine) as u64));
    assert!((found.auc - wanted.auc).abs() < 1e-12, "auc {} and not {}", found.auc, wanted.auc);
    assert!((found.eer - wanted.eer).abs() < 1e-9, "eer {} and not {}", found.eer, wanted.eer);
    for (operating, tar) in found.tar_at_far.iter().zip(wanted.tar) {
        assert!((operating.tar - tar).abs() < 1e-12, "{operating:?} and not {tar}");
        // The threshold does what it says.
        if let Some(threshold) = operating.threshold {
            let accepted = |genuine: bool| {
                let of = pairs.iter().filter(|pair| pair.1 == genuine);
                of.filter(|pair| pair.0 >= f64::from(threshold)).count() as f64
            };
            assert!((accepted(true) / genuine as f64 - operating.tar).abs() < 1e-12);
            assert!(accepted(false) / (pairs.len() - genuine) as f64 <= operating.far + 1e-12);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn all_pairs_with_ties_agree_with_the_naive_version(
        queries in 1usize..20,
        gallery in 1usize..60,
        classes in 1u32..6,
        range in 1i64..30,
        seed in any::<u64>(),
    ) {
        let (q, g) = (rows(queries, range, seed), rows(gallery, range, seed ^ 3));
        let label = |row: usize| (row as u32 * 7 + 3) % classes;
        let of_q: Vec<u32> = (0..queries).map(label).collect();
        let of_g: Vec<u32> = (0..gallery).map(|row| label(row + 1)).collect();

        let pairs: Vec<_> = (0..gallery)
            .flat_map(|i| (i + 1..gallery).map(move |j| (i, j)))
            .map(|(i, j)| (dot(&g, i, &g, j), of_g[i] == of_g[j]))
            .collect();
        assert_agree(&Task::every_row(Side::classes(&g, &of_g)), &pairs);

        let all = || (0..queries).flat_map(|i| (0..gallery).map(move |j| (i, j)));
        let pairs: Vec<_> = all().map(|(i, j)| (dot(&q, i, &g, j), of_q[i] == of_g[j])).collect();
        assert_agree(&Task::split(Side::classes(&q, &of_q), Side::classes(&g, &of_g)), &pairs);

        // Class 0 is junk; three cameras.
        let camera = |row: usize| (row * 5 % 3) as u32;
        let (cameras_q, cameras_g): (Vec<_>, Vec<_>) = ((0..queries).map(camera).collect(), (0..gallery).map(camera).collect());
        let pairs: Vec<_> = all()
            .filter(|&(i, j)| of_q[i] != 0 && of_g[j] != 0)
            .filter(|&(i, j)| !(of_q[i] == of_g[j] && camera(i) == camera(j)))
            .map(|(i, j)| (dot(&q, i, &g, j), of_q[i] == of_g[j]))
            .collect();
        let side = |embeddings, identities, cameras| Sightings { embeddings, identities, cameras }.side();
        let task = Task::split(side(&q, &of_q, &cameras_q), side(&g, &of_g, &cameras_g)).without(Some(0));
        assert_agree(&task, &pairs);
    }
}

#[test]
fn a_collapsed_embedding_accepts_all_or_nothing() {
    let point = Matrix::new(100, 3, [0.3, -0.2, 0.9].repeat(100)).unwrap();
    let labels: Vec<u32> = (0..100).map(|row| row / 10).collect();
    let task = Task::every_row(Side::classes(&point, &labels));
    for metric in [Metric::Cosine, Metric::Euclidean] {
        let found = verify(&task, metric, &VerificationOptions::default()).unwrap();
        assert_eq!((found.auc, found.eer), (0.5, 0.5));
        assert!(found.tar_at_far.iter().all(|point| point.tar == 0.0 && point.threshold.is_none()));
    }
}

#[test]
fn the_result_is_the_same_for_any_number_of_threads() {
    let (g, labels) = (rows(300, 1000, 9), (0..300).map(|row| row % 40).collect::<Vec<u32>>());
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let task = Task::every_row(Side::classes(&g, &labels));
        pool.install(|| verify(&task, Metric::Cosine, &VerificationOptions::default()).unwrap())
    };
    assert_eq!(run(1), run(4));
}

#[test]
fn rates_and_classes_that_say_nothing_are_refused() {
    let g = rows(4, 9, 1);
    let task = |labels| Task::every_row(Side::classes(&g, labels));
    let run = |labels, far| verify(&task(labels), Metric::Cosine, &VerificationOptions { fars: vec![far] });
    assert!(run(&[0, 0, 1, 1], 0.5).is_ok());
    assert!(run(&[0, 0, 1, 1], 1.5).is_err());
    assert!(run(&[0, 0, 1, 1], f64::NAN).is_err());
    assert!(run(&[0, 0, 0, 0], 0.5).unwrap_err().to_string().ends_with("6 and 0 given"));
    assert!(run(&[0, 1, 2, 3], 0.5).is_err());
}
