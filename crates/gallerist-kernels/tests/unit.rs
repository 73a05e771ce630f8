//! Rows of length 1 against their definition in f64 and against the engine.

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_kernels::unit_rows;

fn values(count: usize) -> Vec<f64> {
    let mut state = 1u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from((state >> 40) as u32) / f64::from(1u32 << 23) - 1.0
        })
        .collect()
}

fn tensor(values: &[f64], shape: [usize; 2], dtype: DType) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (&Device::flex().autodiff(), dtype))
}

fn host(x: Tensor<2>) -> Vec<f64> {
    x.into_data().convert::<f64>().try_into_vec().unwrap()
}

/// The rows and the gradient of the sum of `weights` times the rows.
fn run(x: &[f64], weights: &[f64], shape: [usize; 2], dtype: DType) -> (Vec<f64>, Vec<f64>) {
    let x = tensor(x, shape, dtype).require_grad();
    let y = unit_rows(x.clone());
    let gradients = (y.clone() * tensor(weights, shape, dtype)).sum().backward();
    (host(y), host(x.grad(&gradients).unwrap()))
}

fn definition(x: &[f64], weights: &[f64], columns: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut dx) = (Vec::new(), Vec::new());
    for (row, weights) in x.chunks(columns).zip(weights.chunks(columns)) {
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        let unit: Vec<f64> = row.iter().map(|v| if length > 0.0 { v / length } else { 0.0 }).collect();
        let along: f64 = unit.iter().zip(weights).map(|(u, w)| u * w).sum();
        let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
        dx.extend(unit.iter().zip(weights).map(|(u, w)| factor * (w - along * u)));
        y.extend(unit);
    }
    (y, dx)
}

fn assert_near(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let largest = wanted.iter().fold(0f64, |a, w| a.max(w.abs()));
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= tolerance * largest, "{what}: {found}, wanted {wanted}");
    }
}

#[test]
fn rows_and_gradients_are_those_of_the_definition() {
    for shape in [[1, 1], [1, 15], [3, 16], [7, 17], [1100, 33], [5, 512], [2, 20_000]] {
        let count = shape[0] * shape[1];
        let all = values(2 * count);
        let (mut x, weights) = (all[..count].to_vec(), &all[count..]);
        // A row of zeros among others.
        x[..shape[1]].fill(0.0);
        for length in [1.0, 1e-12, 1e12] {
            let x: Vec<f64> = x.iter().map(|v| v * length).collect();
            let wanted = definition(&x, weights, shape[1]);
            for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-12)] {
                let found = run(&x, weights, shape, dtype);
                assert_near(&found.0, &wanted.0, tolerance, &format!("{shape:?} x {length}"));
                // A row of one column has no gradient; what is left of it is rounding.
                if shape[1] > 1 {
                    let what = format!("gradient, {shape:?} x {length}");
                    assert_near(&found.1, &wanted.1, 10.0 * tolerance, &what);
                }
                assert!(found.0[..shape[1]].iter().chain(&found.1[..shape[1]]).all(|&v| v == 0.0));
            }
        }
    }
}

#[test]
fn a_value_that_is_not_finite_makes_its_row_nan() {
    for value in [f64::NAN, f64::INFINITY] {
        let x = tensor(&[1.0, value, 0.0, 3.0, 4.0, 0.0], [2, 3], DType::F32);
        let y = host(unit_rows(x));
        assert!(y[..3].iter().all(|v| v.is_nan()), "{y:?}");
        assert_near(&y[3..], &[0.6, 0.8, 0.0], 1e-7, "the other row");
    }
    assert!(host(unit_rows(tensor(&[f64::NAN, 0.0], [1, 2], DType::F32))).iter().all(|v| v.is_nan()));
}

#[test]
fn strided_rows_and_expanded_gradients_are_read_right() {
    let (x, ones) = (values(12), vec![1.0; 12]);
    let t = tensor(&x, [4, 3], DType::F32).require_grad();
    let gradients = unit_rows(t.clone().transpose()).sum().backward();
    let turned: Vec<f64> = (0..12).map(|at| x[at % 4 * 3 + at / 4]).collect();
    let (_, wanted) = definition(&turned, &ones, 4);
    let wanted: Vec<f64> = (0..12).map(|at| wanted[at % 3 * 4 + at / 3]).collect();
    assert_near(&host(t.grad(&gradients).unwrap()), &wanted, 1e-5, "transposed");
}

#[test]
fn rows_that_are_used_twice_get_both_gradients() {
    let x = values(10);
    let t = tensor(&x, [2, 5], DType::F32).require_grad();
    let y = unit_rows(t.clone());
    let gradients = (y.clone().sum() + y.mul_scalar(2.0).sum() + unit_rows(t.clone()).sum()).backward();
    let (_, wanted) = definition(&x, &[4.0; 10], 5);
    assert_near(&host(t.grad(&gradients).unwrap()), &wanted, 1e-5, "four times");
}
