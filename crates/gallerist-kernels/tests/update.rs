//! Steps of optimisers against their definitions, number by number.

use burn::tensor::{Device, Tensor};
use gallerist_kernels::{AdamW, Sgd, square_sum};

/// Below, at and above the sizes of vectors and of tasks.
const LENGTHS: [usize; 6] = [1, 17, 1000, 16 * 1024, 16 * 1024 + 1, 100_003];

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 31 + seed * 17) % 103) as f32 / 51.0 - 1.0).collect()
}

fn tensor(values: &[f32]) -> Tensor<1> {
    Tensor::from_floats(values, &Device::flex())
}

fn host(x: &Tensor<1>) -> Vec<f32> {
    x.to_data().try_into_vec().unwrap()
}

#[test]
fn sgd_takes_the_steps_of_its_definition() {
    for (momentum, nesterov, weight_decay) in
        [(0.9, false, 0.0), (0.9, true, 0.01), (0.5, false, 0.1), (0.0, false, 0.2), (0.0, false, 0.0)]
    {
        let rule = Sgd { rate: 0.1, momentum, nesterov, weight_decay };
        let [m, d] = [momentum as f32, weight_decay as f32];
        for len in LENGTHS {
            let mut wanted = numbers(len, 1);
            let mut velocity: Option<Vec<f32>> = None;
            let (mut w, mut v) = (tensor(&wanted), None);
            for step in 0..3 {
                let g = numbers(len, 2 + step);
                (w, v) = rule.step(w, tensor(&g), v);
                let g: Vec<f32> =
                    wanted.iter().zip(g).map(|(w, g)| if d > 0.0 { w * d + g } else { g }).collect();
                let new: Vec<f32> = match &velocity {
                    Some(old) => g.iter().zip(old).map(|(g, v)| g + v * m).collect(),
                    None => g.clone(),
                };
                for i in 0..len {
                    let direction = match (m > 0.0, nesterov) {
                        (true, true) => new[i] * m + g[i],
                        (true, false) => new[i],
                        (false, _) => g[i],
                    };
                    wanted[i] -= direction * 0.1;
                }
                velocity = Some(new);
                assert_eq!(host(&w), wanted, "{rule:?}, {len}, step {step}");
            }
            assert_eq!(v.is_some(), momentum > 0.0);
        }
    }
}

#[test]
fn adamw_takes_the_steps_of_its_definition() {
    let rule = AdamW { rate: 0.01, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.05 };
    for len in LENGTHS {
        let mut wanted: Vec<f64> = numbers(len, 1).into_iter().map(f64::from).collect();
        let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
        let (mut w, mut moments) = (tensor(&numbers(len, 1)), None);
        for step in 1..4 {
            let g = numbers(len, 2 + step as usize);
            let (moved, kept) = rule.step(w, tensor(&g), moments, step);
            (w, moments) = (moved, Some(kept));
            for i in 0..len {
                let g = f64::from(g[i]);
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                let [m, v] =
                    [m[i] / (1.0 - 0.9f64.powi(step as i32)), v[i] / (1.0 - 0.999f64.powi(step as i32))];
                wanted[i] = wanted[i] * (1.0 - 0.01 * 0.05) - 0.01 * m / (v.sqrt() + 1e-8);
            }
            for (found, wanted) in host(&w).into_iter().zip(&wanted) {
                assert!((f64::from(found) - wanted).abs() < 1e-5, "{found}, not {wanted}, at step {step}");
            }
        }
    }
}

#[test]
fn a_state_that_others_hold_is_left_as_it_is() {
    let rule = Sgd { rate: 0.1, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    let (w, v) = rule.step(tensor(&[1.0; 3]), tensor(&[1.0; 3]), None);
    let held = v.clone().unwrap();
    let (_, v) = rule.step(w.clone(), tensor(&[1.0; 3]), v);
    assert_eq!(host(&held), [1.0; 3]);
    assert_eq!(host(&v.unwrap()), [1.9; 3]);
    assert_eq!(host(&w), [0.9; 3]);
}

#[test]
fn the_sum_of_squares_does_not_depend_on_the_number_of_threads() {
    for len in LENGTHS {
        let x = numbers(len, 3);
        let wanted: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| host(&square_sum(tensor(&x))))[0]
        };
        let one = with(1);
        assert!((f64::from(one) - wanted).abs() <= 1e-6 * wanted, "{one}, not {wanted}");
        assert!([2, 3, 8].into_iter().all(|threads| with(threads).to_bits() == one.to_bits()));
    }
}
