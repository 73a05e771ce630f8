//! Mixed precision: networks given images in 16 bits, and products in bf16.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_kernels::{bf16_unit, with_bf16_products};
use gallerist_learn::network::{
    ConvBlocksConfig, GlobalPool, InputShape, NetworkConfig, ResNetConfig, TwoConvConfig,
};

use crate::formula;

/// Outputs, and the gradient of every parameter, of a network given images in `numbers`.
fn pass(config: &NetworkConfig, shape: [usize; 4], numbers: DType) -> (Vec<f64>, Vec<Vec<f64>>) {
    struct Collect(GradientsParams, Vec<Vec<f64>>);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            assert_eq!(param.val().dtype(), DType::F32, "parameters and running statistics stay f32");
            let Some(gradient) = self.0.get::<D>(param.id) else { return };
            assert_eq!(gradient.dtype(), DType::F32, "gradients arrive as f32");
            self.1.push(host(gradient));
        }
    }
    let device = Device::flex().autodiff();
    let [_, channels, height, width] = shape;
    let network = config.init(InputShape { channels, height, width }, 7, &device).unwrap();
    let values = formula::unit("input", shape.iter().product()).into_iter().map(|u| (2.0 * u - 1.0) as f32);
    let images = Tensor::<4>::from_data(TensorData::new(values.collect::<Vec<_>>(), shape), &device);
    let outputs = network.forward(images.cast(numbers));
    assert!(outputs.iter().all(|output| output.dtype() == DType::F32), "embeddings are f32");
    let value = outputs.iter().map(|output| output.clone().square().mean()).reduce(|a, b| a + b).unwrap();
    let mut visitor = Collect(GradientsParams::from_grads(value.backward(), &network), Vec::new());
    network.visit(&mut visitor);
    (outputs.into_iter().flat_map(host).collect(), visitor.1)
}

fn host<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.detach().into_data().convert::<f64>().try_into_vec().unwrap()
}

/// Length of the difference over the length of what is wanted.
fn off(found: &[f64], wanted: &[f64]) -> f64 {
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    length(&mut found.iter().zip(wanted).map(|(f, w)| f - w)) / length(&mut wanted.iter().copied())
}

#[test]
fn outputs_and_gradients_in_16_bits_are_those_in_32_up_to_their_rounding() {
    for (config, shape, deep) in networks() {
        let (wanted, of_wanted) = pass(&config, shape, DType::F32);
        // Half a unit in the last place is 2^-9 for bf16 and 2^-12 for f16.
        for (numbers, unit) in [(DType::BF16, 2f64.powi(-9)), (DType::F16, 2f64.powi(-12))] {
            let found = pass(&config, shape, numbers);
            let what = format!("{}, {numbers:?}", config.name());
            assert_near(&what, (&wanted, &of_wanted), found, unit, deep);
        }
    }
}

#[test]
fn products_in_bf16_change_outputs_and_gradients_by_their_rounding() {
    for (config, shape, deep) in networks() {
        let (wanted, of_wanted) = pass(&config, shape, DType::F32);
        let found = with_bf16_products(|| pass(&config, shape, DType::F32));
        if bf16_unit().is_none() {
            assert_eq!(found, (wanted, of_wanted));
            continue;
        }
        let what = format!("{}, products in bf16", config.name());
        assert_near(&what, (&wanted, &of_wanted), found, 2f64.powi(-9), deep);
    }
}

/// Networks, and whether they are deep.
fn networks() -> [(NetworkConfig, [usize; 4], bool); 3] {
    [
        (TwoConvConfig::default().into(), [4, 1, 28, 28], false),
        (
            ConvBlocksConfig { channels: vec![8, 8], dimensions: 5, ..Default::default() }.into(),
            [4, 1, 16, 16],
            false,
        ),
        (
            ResNetConfig { depth: 18, pool: GlobalPool::Gem, dimensions: 7, ..Default::default() }.into(),
            [4, 3, 64, 64],
            true,
        ),
    ]
}

/// Asserts that outputs and gradients differ from those `wanted`, and by no more than roundings by a `unit` do.
///
/// In a deep network rounding carries many values across 0 before a ReLU; their share grows with the rounding, each
/// moves the gradient by a step, and so the length of the difference grows with the root of it.
fn assert_near(
    what: &str,
    (wanted, of_wanted): (&[f64], &[Vec<f64>]),
    (outputs, gradients): (Vec<f64>, Vec<Vec<f64>>),
    unit: f64,
    deep: bool,
) {
    let found = off(&outputs, wanted);
    assert!(found > 0.0, "{what} rounds nothing");
    assert!(found < if deep { 100.0 } else { 40.0 } * unit, "{what}: outputs off by {found:.1e}");
    let found = off(&gradients.concat(), &of_wanted.concat());
    let most = if deep { 12.0 * unit.sqrt() } else { 100.0 * unit };
    assert!(found < most, "{what}: gradients off by {found:.1e}");
}
