//! Measures the convolutions of common networks, one by one: forward and both gradients.
//!
//! ```text
//! RAYON_NUM_THREADS=2 cargo run --release -p gallerist-kernels --example conv_bench -- [REPETITIONS] [PRODUCTS]
//! ```
//!
//! `PRODUCTS` are `f32` (the default), `f32-direct` or `bf16` ([`gallerist_kernels::Products`]).
//!
//! Prints GFLOP/s of the fastest call of each, and the total time of the fastest calls.

use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Distribution, Tensor};
use gallerist_kernels::{
    Activation, ConvNorm, Products, Shortcut, Statistics, conv_norm_chain, profile, with_products,
};

/// Images, height and width, channels in and out, window, stride, groups.
const SHAPES: [[usize; 7]; 22] = [
    [8, 224, 3, 64, 7, 2, 1],
    [8, 56, 64, 64, 1, 1, 1],
    [8, 56, 64, 64, 3, 1, 1],
    [8, 56, 64, 256, 1, 1, 1],
    [8, 56, 256, 64, 1, 1, 1],
    [8, 56, 128, 128, 3, 2, 1],
    [8, 56, 256, 512, 1, 2, 1],
    [8, 28, 128, 128, 3, 1, 1],
    [8, 28, 128, 512, 1, 1, 1],
    [8, 28, 512, 128, 1, 1, 1],
    [8, 28, 256, 256, 3, 2, 1],
    [8, 14, 256, 256, 3, 1, 1],
    [8, 14, 256, 1024, 1, 1, 1],
    [8, 14, 1024, 256, 1, 1, 1],
    [8, 7, 512, 512, 3, 1, 1],
    [8, 7, 512, 2048, 1, 1, 1],
    [8, 7, 2048, 512, 1, 1, 1],
    [16, 57, 64, 192, 3, 1, 1],
    [16, 28, 64, 96, 3, 1, 1],
    [16, 14, 576, 128, 1, 1, 1],
    [16, 14, 576, 96, 1, 1, 1],
    [16, 7, 1024, 352, 1, 1, 1],
];

fn main() {
    let repetitions = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repetitions"));
    let products = std::env::args().nth(2).map_or(Products::F32, |name| {
        let mut all = Products::ALL.iter().copied();
        all.find(|products| products.name() == name).expect("the name of products")
    });
    if products == Products::Bf16 {
        println!("products in bf16 by {}", gallerist_kernels::bf16_unit().unwrap_or("f32"));
    }
    with_products(products, || measure(repetitions));
}

fn measure(repetitions: usize) {
    let device = Device::flex().autodiff();
    let (mut total, mut work) = (0.0, 0);
    for [images, side, inputs, outputs, kernel, stride, groups] in SHAPES {
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let maps = random([images, inputs, side, side]);
        // As in a network: normalised and activated maps go in, and the result is normalised. The first layer
        // only makes these maps.
        let shapes = [[inputs, 1, 1, 1], [outputs, inputs / groups, kernel, kernel]];
        let options = [
            ConvOptions::new([1, 1], [0, 0], [1, 1], inputs),
            ConvOptions::new([stride; 2], [kernel / 2; 2], [1, 1], groups),
        ];
        let weights = shapes.map(random);
        profile::start();
        for _ in 0..repetitions {
            let layer = |i: usize| ConvNorm {
                weight: weights[i].clone().require_grad(),
                options: options[i].clone(),
                gamma: Tensor::ones([shapes[i][0]], &device),
                beta: Tensor::zeros([shapes[i][0]], &device),
                statistics: Statistics::Batch,
                epsilon: 1e-5,
                activation: Activation::Relu,
            };
            let x = maps.clone().require_grad();
            conv_norm_chain(x, vec![layer(0), layer(1)], Shortcut::None).output.sum().backward();
        }
        for timing in profile::stop() {
            if timing.multiply_adds == 0 || timing.sizes.ends_with(&format!("{inputs} groups")) {
                continue;
            }
            let once = timing.multiply_adds / timing.calls;
            let rate = 2e-9 * once as f64 / timing.fastest;
            println!(
                "{rate:6.1} GF/s {:7.2} ms {}: {}",
                1e3 * timing.fastest,
                timing.operation,
                timing.sizes
            );
            (total, work) = (total + timing.fastest, work + once);
        }
    }
    println!("{:6.1} GF/s {:7.2} ms all", 2e-9 * work as f64 / total, 1e3 * total);
}
