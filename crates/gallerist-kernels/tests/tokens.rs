//! The layers of transformers against the engine's operations in f64, which share no code with the kernels.

use burn::tensor::{DType, Device, Tensor, TensorData};
use std::sync::Arc;

use gallerist_kernels::{Gelu, Rotary, gated_silu, gelu, layer_norm, linear_tokens, self_attention};

fn values(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Values that f32 has.
            f64::from(((state >> 40) as u32) as f32 / (1u32 << 23) as f32 - 1.0)
        })
        .collect()
}

fn tensor<const D: usize>(shape: [usize; D], seed: u64, dtype: DType) -> Tensor<D> {
    let data = TensorData::new(values(shape.iter().product(), seed), shape);
    Tensor::from_data(data, (&Device::flex().autodiff(), dtype)).require_grad()
}

fn host<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().convert::<f64>().try_into_vec().unwrap()
}

/// Off by at most `tolerance` of the largest value.
fn assert_near(found: &[Vec<f64>], wanted: &[Vec<f64>], tolerance: f64, what: &str) {
    for (place, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found.len(), wanted.len(), "{what}");
        let largest = wanted.iter().fold(0f64, |a, w| a.max(w.abs()));
        let off = found.iter().zip(wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f64::max);
        assert!(off <= tolerance * largest, "{what}, result {place}: off by {off:e} of {largest:e}");
    }
}

fn attention(shape: [usize; 3], heads: usize, rotary: Option<&Arc<Rotary>>, dtype: DType) -> Vec<Vec<f64>> {
    let [n, count, width] = shape;
    let x = tensor([n, count, 3 * width], 1, dtype);
    let y = self_attention(x.clone().mul_scalar(3.0), heads, rotary);
    assert_eq!(y.dims(), shape);
    let gradients = (y.clone() * tensor(shape, 2, dtype).detach()).sum().backward();
    vec![host(y), host(x.grad(&gradients).unwrap())]
}

#[test]
fn attention_and_its_gradient_are_those_of_f64() {
    // One token, sides around whole vectors, heads of odd widths.
    let cases = [
        ([1, 1, 1], 1),
        ([2, 5, 6], 2),
        ([1, 16, 32], 1),
        ([3, 17, 40], 2),
        ([2, 50, 192], 3),
        ([1, 197, 64], 1),
    ];
    for (shape, heads) in cases {
        let [found, wanted] = [DType::F32, DType::F64].map(|dtype| attention(shape, heads, None, dtype));
        // With one token the gradients by query and key are 0.
        assert_near(&found, &wanted, 5e-6, &format!("attention {shape:?}, {heads} heads"));
    }
}

#[test]
fn attention_with_rotary_positions_and_its_gradient_are_those_of_f64() {
    for ([n, first, rows, columns], width, heads) in
        [([2, 0, 1, 3], 8, 2), ([1, 5, 7, 7], 64, 1), ([3, 1, 4, 6], 60, 3)]
    {
        let rotary = Arc::new(Rotary::of_grid(first, [rows, columns], width / heads, 100.0));
        let shape = [n, first + rows * columns, width];
        let of = |dtype| attention(shape, heads, Some(&rotary), dtype);
        let plain = attention(shape, heads, None, DType::F32);
        let [found, wanted] = [DType::F32, DType::F64].map(of);
        assert_near(&found, &wanted, 5e-6, &format!("attention {shape:?}, {heads} heads, rotary"));
        assert_ne!(found, plain);
    }
}

#[test]
fn tokens_of_other_images_change_no_bit() {
    let all = tensor([3, 9, 3 * 8], 1, DType::F32);
    let y = host(self_attention(all.clone(), 2, None));
    for image in 0..3 {
        let one = host(self_attention(all.clone().narrow(0, image, 1), 2, None));
        assert_eq!(one, y[image * 72..][..72]);
    }
}

#[test]
fn large_scores_do_not_overflow_and_nan_stays() {
    let device = Device::flex();
    let x = Tensor::<3>::from_floats([[[300.0, 300.0, 1.0], [-300.0, -300.0, 2.0]]], &device);
    assert_eq!(host(self_attention(x.clone(), 1, None)), [1.0, 2.0]);
    let x = Tensor::<3>::from_floats([[[f32::NAN, 0.0, 1.0], [0.0, 0.0, 3.0]]], &device);
    let y = host(self_attention(x, 1, None));
    assert!(y[0].is_nan() && y[1] == 2.0, "{y:?}");
}

fn norm(shape: [usize; 3], dtype: DType) -> Vec<Vec<f64>> {
    let (weight, bias) = (tensor([shape[2]], 2, dtype), tensor([shape[2]], 3, dtype));
    let x = tensor(shape, 1, dtype);
    // A mean that is large next to the deviation.
    let y = layer_norm(x.clone().add_scalar(4.0), weight.clone(), bias.clone(), 1e-6);
    let gradients = (y.clone() * tensor(shape, 4, dtype).detach()).sum().backward();
    let of = |x: &Tensor<1>| host(x.grad(&gradients).unwrap());
    vec![host(y), host(x.grad(&gradients).unwrap()), of(&weight), of(&bias)]
}

#[test]
fn layer_norm_and_its_gradients_are_those_of_f64() {
    for shape in [[1, 3, 5], [2, 5, 17], [1, 1, 384], [3, 197, 192], [2, 2, 40_000]] {
        let [found, wanted] = [DType::F32, DType::F64].map(|dtype| norm(shape, dtype));
        assert_near(&found, &wanted, 2e-5, &format!("layer norm {shape:?}"));
    }
}

#[test]
fn equal_values_of_a_row_have_finite_gradients() {
    let device = Device::flex().autodiff();
    let x = Tensor::<2>::ones([2, 8], &device).require_grad();
    let y = layer_norm(x.clone(), Tensor::ones([8], &device), Tensor::zeros([8], &device), 1e-6);
    assert!(host(y.clone()).iter().all(|&v| v == 0.0));
    let gradients = y.square().sum().backward();
    assert!(host(x.grad(&gradients).unwrap()).iter().all(|v| v.is_finite()));
}

#[test]
fn gated_activations_and_their_gradients_are_those_of_f64() {
    for (shape, half) in [([1, 1, 2], 1), ([2, 3, 34], 17), ([3, 197, 1024], 512), ([2, 2, 40_000], 20_000)] {
        let run = |dtype: DType| {
            let x = tensor(shape, 1, dtype);
            let y = gated_silu(x.clone().mul_scalar(8.0));
            let gradients =
                (y.clone() * tensor([shape[0], shape[1], half], 2, dtype).detach()).sum().backward();
            vec![host(y), host(x.grad(&gradients).unwrap())]
        };
        assert_near(&run(DType::F32), &run(DType::F64), 1e-6, &format!("{shape:?}"));
    }
}

#[test]
fn activations_and_their_gradients_are_those_of_f64() {
    for kind in [Gelu::Exact, Gelu::Tanh, Gelu::Quick] {
        let run = |dtype: DType| {
            let x = tensor([7, 3000], 1, dtype);
            let y = gelu(x.clone().mul_scalar(8.0), kind);
            let gradients = (y.clone() * tensor([7, 3000], 2, dtype).detach()).sum().backward();
            vec![host(y), host(x.grad(&gradients).unwrap())]
        };
        assert_near(&run(DType::F32), &run(DType::F64), 1e-6, &format!("{kind:?}"));
    }
}

#[test]
fn a_linear_layer_of_tokens_is_a_product() {
    for with_bias in [true, false] {
        let run = |dtype: DType| {
            let (x, weight) = (tensor([3, 10, 24], 1, dtype), tensor([24, 33], 2, dtype));
            let bias = tensor([33], 3, dtype);
            let y = linear_tokens(x.clone(), weight.clone(), with_bias.then(|| bias.clone()));
            let gradients = (y.clone() * tensor([3, 10, 33], 4, dtype).detach()).sum().backward();
            let mut found = vec![host(y), host(x.grad(&gradients).unwrap())];
            found.push(host(weight.grad(&gradients).unwrap()));
            found.extend(with_bias.then(|| host(bias.grad(&gradients).unwrap())));
            found
        };
        assert_near(&run(DType::F32), &run(DType::F64), 3e-6, "linear");
    }
}
