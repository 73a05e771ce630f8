//! Ten training steps give PyTorch's losses (fixtures/networks/steps.json, written by bench/networks/steps.py).

use std::collections::BTreeMap;
use std::path::Path;

use burn::optim::GradientsParams;
use burn::tensor::Device;
use gallerist_kernels::{Products, with_products};
use gallerist_nn::{MobileNetV2Config, NetworkConfig, VitConfig, VitOutput};
use gallerist_train::optim::{Optimizer, OptimizerConfig, Part};
use serde::Deserialize;

use crate::formula;
use crate::golden::{Golden, efficientnet_lite0, efficientnets, inception, mobilenets_v3, resnet_50_srt};
use crate::vit::{clip, dinov2, dinov3, siglip, small};

#[derive(Deserialize)]
struct Steps {
    input: [usize; 4],
    learning_rate: f64,
    losses: Vec<f64>,
    /// How far each loss moves, relative to itself, when the weights move by a part in ten million.
    off: Vec<f64>,
}

/// Also by Winograd's algorithm, if the network has convolutions that it suits.
fn check_all_products(name: &str, config: impl Into<NetworkConfig> + Clone) {
    for products in [Products::F32Direct, Products::F32] {
        with_products(products, || check(name, config.clone()));
    }
}

fn check(name: &str, config: impl Into<NetworkConfig>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/networks/steps.json");
    let mut all: BTreeMap<String, Steps> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let golden = all.remove(name).unwrap();
    let device = Device::flex().autodiff();
    let (mut network, _) = Golden::read(name).network(config, &device);
    let mut optimizer = Optimizer::new(&OptimizerConfig { momentum: 0.9, ..Default::default() });
    let mut found = Vec::new();
    for step in 0..golden.losses.len() {
        let outputs = network.forward(formula::symmetric(&format!("input {step}"), golden.input, &device));
        let distances = outputs.into_iter().map(|y| {
            let target = formula::symmetric("target", y.dims(), &device);
            (y - target).powi_scalar(2).mean()
        });
        let loss = distances.reduce(|sum, loss| sum + loss).unwrap();
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(golden.learning_rate, Part::Network, network, gradients);
        found.push(loss.into_scalar::<f64>());
    }
    for (step, ((found, wanted), off)) in found.iter().zip(&golden.losses).zip(&golden.off).enumerate() {
        // A step rounds a few dozen times where the fixture's trials move the weights once.
        let tolerance = 1e-5 + 30.0 * off;
        assert!(
            (found - wanted).abs() <= tolerance * wanted,
            "{name}, step {}: a loss of {found} instead of {wanted}, more than {tolerance:.0e} off",
            step + 1
        );
    }
}

#[test]
fn resnet_50_takes_pytorchs_steps() {
    check_all_products("resnet50-srt", resnet_50_srt());
}

#[test]
fn mobilenet_v2_takes_pytorchs_steps() {
    check("mobilenet_v2", MobileNetV2Config { dimensions: 32, ..Default::default() });
}

#[test]
fn efficientnet_lite_takes_pytorchs_steps() {
    check("efficientnet_lite0-tf", efficientnet_lite0());
}

#[test]
fn networks_with_squeeze_and_excitation_take_pytorchs_steps() {
    let (name, config) = mobilenets_v3()[0].clone();
    check(name, config);
    let (name, config) = efficientnets()[0].clone();
    check(name, config);
}

#[test]
fn bn_inception_takes_pytorchs_steps() {
    check_all_products("bn_inception", inception(32));
}

#[test]
fn vision_transformers_take_pytorchs_steps() {
    check("vit-98", VitConfig { patch: 14, depth: 3, ..small() });
    check("vit-dinov2", VitConfig { output: VitOutput::ClassAndMean, ..dinov2() });
    check("vit-dinov3", dinov3());
    check("vit-clip", clip());
    check("vit-siglip-gradients", siglip());
}
