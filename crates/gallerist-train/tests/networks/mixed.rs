//! Mixed precision: networks given images in 16 bits, and products in bf16.

use burn::tensor::{DType, Device};
use gallerist_kernels::{Products, bf16_unit, with_products};
use gallerist_nn::{
    ConvBlocksConfig, FreezeBatchNorm, GlobalPool, NetworkConfig, ResNetConfig, TwoConvConfig,
};

use crate::pass::{Numbers, Off, Pass, rounding, when_moved};

/// Networks, and the shape of their images.
fn networks() -> Vec<(NetworkConfig, [usize; 4])> {
    let resnet = |pool| ResNetConfig { depth: 18, pool, dimensions: 7, ..Default::default() };
    let frozen = NetworkConfig {
        freeze_batch_norm: FreezeBatchNorm::Statistics,
        ..resnet(GlobalPool::Average).into()
    };
    vec![
        (TwoConvConfig::default().into(), [4, 1, 28, 28]),
        (
            ConvBlocksConfig { channels: vec![8, 8], dimensions: 5, ..Default::default() }.into(),
            [4, 1, 16, 16],
        ),
        (resnet(GlobalPool::Gem).into(), [4, 3, 64, 64]),
        (frozen, [4, 3, 64, 64]),
    ]
}

fn plain(config: &NetworkConfig, shape: [usize; 4]) -> Pass {
    Pass::new(&Device::flex(), config, shape, Numbers::In(DType::F32), 1.0).unwrap()
}

/// How far a pass of a value times `scale` is off in these numbers.
fn off(config: &NetworkConfig, shape: [usize; 4], numbers: DType, scale: f64) -> Off {
    let found = Pass::new(&Device::flex(), config, shape, Numbers::In(numbers), scale).unwrap();
    found.off(&plain(config, shape))
}

/// As far as a pass in 16 bits may be off: a layer rounds several times where moving its weights rounds once.
fn bound(config: &NetworkConfig, shape: [usize; 4], numbers: DType) -> Off {
    when_moved(&plain(config, shape), config, shape, 6.0 * rounding(numbers)).unwrap()
}

#[test]
fn outputs_and_gradients_in_16_bits_are_those_in_32_up_to_their_rounding() {
    for (config, shape) in networks() {
        for numbers in [DType::BF16, DType::F16] {
            let found = off(&config, shape, numbers, 1.0);
            let bound = bound(&config, shape, numbers);
            assert!(found.outputs > 0.0, "{}: {numbers:?} rounds nothing", config.name());
            assert!(found.within(bound), "{}, {numbers:?}: {found:?}, bound {bound:?}", config.name());
            assert!(bound.outputs < Off::TELLING, "{}, {numbers:?}: {bound:?} says nothing", config.name());
        }
        let bound = bound(&config, shape, DType::F16);
        assert!(bound.gradient < Off::TELLING, "{}: {bound:?} says nothing", config.name());
    }
}

#[test]
fn products_in_bf16_change_outputs_and_gradients_by_their_rounding() {
    for (config, shape) in networks() {
        let rounded = with_products(Products::Bf16, || plain(&config, shape));
        if bf16_unit().is_none() {
            let found = rounded.off(&with_products(Products::F32, || plain(&config, shape)));
            assert_eq!((found.outputs, found.gradient), (0.0, 0.0), "{}", config.name());
            continue;
        }
        let found = rounded.off(&plain(&config, shape));
        let bound = bound(&config, shape, DType::BF16);
        assert!(found.outputs > 0.0, "{}: nothing is rounded", config.name());
        assert!(found.within(bound), "{}: {found:?}, bound {bound:?}", config.name());
    }
}

#[test]
fn winograds_algorithm_changes_outputs_and_gradients_by_its_rounding() {
    let config = ResNetConfig { depth: 18, dimensions: 7, ..Default::default() }.into();
    let shape = [8, 3, 64, 64];
    let exact = plain(&config, shape);
    let found = with_products(Products::F32, || plain(&config, shape)).off(&exact);
    let bound = when_moved(&exact, &config, shape, 2e-6).unwrap();
    assert!(found.outputs > 0.0, "the algorithm is not used");
    assert!(found.within(bound), "{found:?}, bound {bound:?}");
    assert!(bound.gradient < Off::TELLING, "{bound:?} says nothing");
}

#[test]
fn three_bits_less_than_promised_are_out_of_bounds() {
    for (config, shape) in networks() {
        let found = off(&config, shape, DType::BF16, 1.0);
        assert!(!found.within(bound(&config, shape, DType::F16)), "{}: {found:?}", config.name());
    }
}

#[test]
fn gradients_too_small_for_f16_are_out_of_bounds_and_a_scale_keeps_them() {
    for (config, shape) in networks() {
        let small = 2f64.powi(-20);
        let bound = bound(&config, shape, DType::F16);
        let lost = off(&config, shape, DType::F16, small);
        assert!(!lost.within(bound), "{}: {lost:?}, bound {bound:?}", config.name());
        // Training begins with 65,536.
        let kept = off(&config, shape, DType::F16, small * 65_536.0);
        assert!(kept.within(bound), "{}: {kept:?}, bound {bound:?}", config.name());
    }
}

#[test]
fn gradients_too_large_for_f16_are_out_of_bounds() {
    for (config, shape) in networks() {
        let found = off(&config, shape, DType::F16, 2f64.powi(40));
        assert!(found.gradient.is_infinite(), "{}: {found:?}", config.name());
    }
}
