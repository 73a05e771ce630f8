//! The switch is global: its test has a program of its own.

use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Tensor};
use gallerist_kernels::{
    Activation, ConvNorm, Shortcut, Statistics, batch_norm_fixed, batch_norm_relu_max_pool2, conv_norm_chain,
    conv2d, global_average_pool, is_enabled, max_pool2d, release_memory, set_enabled,
};

/// A little of everything, so that both paths of every door are taken.
fn embed() -> Vec<f32> {
    let device = Device::flex();
    let x =
        Tensor::<1, burn::tensor::Int>::arange(0..2 * 3 * 8 * 8, &device).float().reshape([2, 3, 8, 8]).sin();
    let weight = Tensor::<4>::ones([4, 3, 3, 3], &device) / 9.0;
    let x = conv2d(x, weight, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
    let (ones, zeros) = (Tensor::<1>::ones([4], &device), Tensor::<1>::zeros([4], &device));
    let x = batch_norm_relu_max_pool2(x, ones.clone(), zeros.clone(), 1e-5).output;
    let x = max_pool2d(x, MaxPoolOptions::new([2, 2]));
    let x = batch_norm_fixed(
        x,
        ones.clone(),
        zeros.clone(),
        zeros.clone(),
        ones.clone(),
        1e-5,
        Activation::Relu6,
    );
    let layer = ConvNorm {
        weight: Tensor::ones([4, 1, 3, 3], &device) / 9.0,
        options: ConvOptions::new([1, 1], [1, 1], [1, 1], 4),
        gamma: ones,
        beta: zeros,
        statistics: Statistics::Batch,
        epsilon: 1e-5,
        activation: Activation::None,
    };
    let x = conv_norm_chain(x, vec![layer; 2], Shortcut::Input).output;
    global_average_pool(x).into_data().try_to_vec().unwrap()
}

#[test]
fn both_positions_of_the_switch_give_the_same_values() {
    assert!(is_enabled());
    let with = embed();
    release_memory();
    set_enabled(false);
    assert!(!is_enabled());
    let without = embed();
    set_enabled(true);
    assert_eq!(with.len(), 8);
    for (with, without) in with.iter().zip(&without) {
        // Six layers of values below 3.
        assert!((with - without).abs() < 1e-5, "{with} {without}");
    }
}
