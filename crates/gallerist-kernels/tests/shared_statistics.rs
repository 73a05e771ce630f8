//! Batch norm by the statistics of several ranks is that of the whole batch on one.

use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_collective::{Shared, part};
use gallerist_kernels::{
    Activation, ConvNorm, Shortcut, Statistics, batch_norm, batch_norm_relu_max_pool2, conv_norm_chain,
};
use gallerist_testkit::ranks::with_ranks;

/// What is computed: result, and gradients with respect to the input and the parameters.
type Found = Vec<Vec<f32>>;

const IMAGES: usize = 7;
const CHANNELS: usize = 6;
const SIDE: usize = 8;

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count)
        .map(|i| (((i * 7919 + seed * 104_729) % 2003) as f32 / 1000.0 - 1.0) * (1.0 + (i % 5) as f32))
        .collect()
}

/// The images of `of`, as input.
fn images(of: std::ops::Range<usize>, device: &Device) -> Tensor<4> {
    let all = Tensor::<4>::from_data(
        TensorData::new(values(IMAGES * CHANNELS * SIDE * SIDE, 1), [IMAGES, CHANNELS, SIDE, SIDE]),
        device,
    );
    all.narrow(0, of.start, of.len()).detach().require_grad()
}

fn vector(seed: usize, device: &Device) -> Tensor<1> {
    Tensor::<1>::from_data(TensorData::new(values(CHANNELS, seed), [CHANNELS]), device).require_grad()
}

fn layer(seed: usize, device: &Device) -> ConvNorm {
    let weight = TensorData::new(values(CHANNELS * CHANNELS * 9, seed), [CHANNELS, CHANNELS, 3, 3]);
    ConvNorm {
        weight: Tensor::<4>::from_data(weight, device).require_grad(),
        options: ConvOptions::new([1, 1], [1, 1], [1, 1], 1),
        gamma: vector(seed + 1, device),
        beta: vector(seed + 2, device),
        statistics: Statistics::Batch,
        epsilon: 1e-5,
        activation: Activation::Relu,
    }
}

/// Every kind of batch norm by statistics of the batch, on the images of `of`.
fn pass(of: std::ops::Range<usize>) -> Found {
    let device = Device::flex().autodiff();
    let x = images(of.clone(), &device);
    let layers = [layer(10, &device), layer(20, &device), layer(30, &device)];
    let chain = conv_norm_chain(x.clone(), layers.to_vec(), Shortcut::Input);
    let [gamma, beta] = [vector(40, &device), vector(41, &device)];
    let norm = batch_norm(chain.output, gamma.clone(), beta.clone(), 1e-5, Activation::None);
    let pooled = batch_norm_relu_max_pool2(norm.output, gamma.clone(), beta.clone(), 1e-5);
    // A loss that differs from image to image.
    let [n, c, h, w] = pooled.output.dims();
    let all =
        Tensor::<4>::from_data(TensorData::new(values(IMAGES * c * h * w, 50), [IMAGES, c, h, w]), &device);
    let gradients = (pooled.output.clone() * all.narrow(0, of.start, n)).sum().backward();
    let floats = |data: TensorData| data.try_into_vec::<f32>().unwrap();
    let mut found = vec![floats(pooled.output.into_data()), floats(x.grad(&gradients).unwrap().into_data())];
    // Equal on all ranks: statistics.
    found.extend([norm.mean, norm.variance, pooled.mean, pooled.variance].map(|of| floats(of.into_data())));
    found.extend(chain.moments.into_iter().flatten().flatten().map(|of| floats(of.into_data())));
    for layer in layers {
        found.push(floats(layer.weight.grad(&gradients).unwrap().into_data()));
        found.extend([layer.gamma, layer.beta].map(|of| floats(of.grad(&gradients).unwrap().into_data())));
    }
    found.extend([gamma, beta].map(|of| floats(of.grad(&gradients).unwrap().into_data())));
    found
}

/// The statistics follow result and gradient of the input.
const STATISTICS: std::ops::Range<usize> = 2..12;

fn close(found: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(0f32, |most, value| most.max(value.abs()));
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= 1e-5 * scale.max(1e-3), "{what}: {found} instead of {wanted}");
    }
}

#[test]
fn results_and_gradients_of_ranks_are_those_of_the_whole_batch() {
    let whole = pass(0..IMAGES);
    for size in [1, 2, 3] {
        let found = with_ranks(size, |ranks| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let shared = Shared::new(ranks.clone());
            let of = part(IMAGES, ranks.rank(), size);
            let found = pool.install(|| shared.within(|| pass(of)));
            shared.check().unwrap();
            found
        });
        for i in 0..whole.len() {
            let of_ranks = || found.iter().map(|of_rank| &of_rank[i]);
            if i < STATISTICS.start {
                close(
                    &of_ranks().flatten().copied().collect::<Vec<_>>(),
                    &whole[i],
                    &format!("rows {i}, {size} ranks"),
                );
            } else if STATISTICS.contains(&i) {
                of_ranks()
                    .for_each(|found| close(found, &whole[i], &format!("statistics {i}, {size} ranks")));
                assert!(found.iter().all(|of_rank| of_rank[i] == found[0][i]), "bits of {i}, {size} ranks");
            } else {
                let sum: Vec<f32> = (0..whole[i].len()).map(|j| of_ranks().map(|of| of[j]).sum()).collect();
                close(&sum, &whole[i], &format!("parameter {i}, {size} ranks"));
            }
        }
    }
}

#[test]
fn without_it_statistics_are_those_of_a_rank() {
    let (whole, half) = (pass(0..IMAGES), pass(0..3));
    assert!(whole[STATISTICS.start].iter().zip(&half[STATISTICS.start]).any(|(a, b)| (a - b).abs() > 1e-2));
}
