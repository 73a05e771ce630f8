//! One forward and backward pass of a network, and how far two passes are apart; for tests and `examples/gpu_check.rs`.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_data::Random;
use gallerist_nn::{InputShape, NetworkConfig};

/// What a network gives for fixed images and weights.
pub(crate) struct Pass {
    /// The outputs in training, one head after the other.
    pub(crate) outputs: Vec<f64>,
    /// The gradient of a sum of the outputs with fixed signs, by parameter.
    pub(crate) gradients: Vec<Vec<f64>>,
}

/// Lengths of differences over the lengths of what is wanted; infinite if a value is not a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Off {
    /// Of all outputs.
    pub(crate) outputs: f64,
    /// Of the whole gradient.
    pub(crate) gradient: f64,
    /// Of the gradient of a single parameter, the largest. Parameters whose gradient is nothing but rounding (less than
    /// a ten-thousandth of the longest) are left out.
    pub(crate) worst: f64,
}

impl Off {
    /// A bound above this says nothing: unrelated gradients are about 1.4 apart.
    pub(crate) const TELLING: f64 = 0.5;

    /// Whether nothing is further off than the bound, where that says something.
    pub(crate) fn within(self, bound: Off) -> bool {
        let pairs =
            [(self.outputs, bound.outputs), (self.gradient, bound.gradient), (self.worst, bound.worst)];
        pairs.into_iter().all(|(off, bound)| off <= bound || bound > Self::TELLING && off.is_finite())
    }
}

/// Half a unit in the last place of 1: what rounding moves a number by at most, relative to itself.
pub(crate) fn rounding(numbers: DType) -> f64 {
    let bits = match numbers {
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        _ => panic!("{numbers:?} is not computed in"),
    };
    2f64.powi(-bits)
}

/// Arithmetic of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers {
    /// Images in these, and what the layers make of it.
    In(DType),
    /// f32, with images and weights moved by up to this part of themselves, at random by this seed.
    Moved(f64, u64),
}

impl Pass {
    /// Of the network with the weights of seed 1, of a value times `scale` whose gradients are divided by it again.
    pub(crate) fn new(
        device: &Device,
        config: &NetworkConfig,
        shape: [usize; 4],
        numbers: Numbers,
        scale: f64,
    ) -> gallerist_train::Result<Pass> {
        let device = device.clone().autodiff();
        let [_, channels, height, width] = shape;
        let mut network = config.init(InputShape { channels, height, width }, 1, &device)?;
        let images = TensorData::new(uniform("images", shape.iter().product()), shape);
        let mut images = Tensor::<4>::from_data(images, &device);
        match numbers {
            Numbers::In(DType::F32) => {}
            Numbers::In(numbers) => images = images.cast(numbers),
            Numbers::Moved(part, seed) => {
                let mut mover = Mover { part, seed, moved: 0 };
                images = mover.moved(images);
                network = network.map(&mut mover);
            }
        }
        let outputs = network.forward(images);
        assert!(outputs.iter().all(|output| output.dtype() == DType::F32), "embeddings are f32");
        let value = outputs.iter().map(|output| {
            let [n, d] = output.dims();
            let signs = TensorData::new(uniform("signs", n * d), [n, d]);
            (output.clone() * Tensor::<2>::from_data(signs, &device).mul_scalar(scale)).sum()
        });
        let value = value.reduce(|a, b| a + b).expect("a network has a head");
        let gradients = GradientsParams::from_grads(value.backward(), &network);
        let mut collect = Collect { gradients, scale, values: Vec::new() };
        network.visit(&mut collect);
        let outputs = outputs.into_iter().flat_map(host).collect();
        Ok(Pass { outputs, gradients: collect.values })
    }

    /// How far this pass is from another.
    pub(crate) fn off(&self, wanted: &Pass) -> Off {
        assert_eq!(self.gradients.len(), wanted.gradients.len(), "parameters with a gradient");
        let longest = wanted.gradients.iter().map(|gradient| length(gradient)).fold(0.0, f64::max);
        let each = self.gradients.iter().zip(&wanted.gradients);
        let each = each.filter(|(_, wanted)| length(wanted) > 1e-4 * longest);
        Off {
            outputs: off(&self.outputs, &wanted.outputs),
            gradient: off(&self.gradients.concat(), &wanted.gradients.concat()),
            worst: each.map(|(found, wanted)| off(found, wanted)).fold(0.0, f64::max),
        }
    }
}

/// How far `wanted`, in f32 on the processor, is off at most when images and weights are moved by up to `part` of
/// themselves: four times at random.
///
/// This measures how sensitive a network is. Batch norm and depth magnify rounding; and each value that is carried across 0
/// before a ReLU moves the gradient by a step: their number grows with the rounding, and so the length of the difference
/// grows with its root.
pub(crate) fn when_moved(
    wanted: &Pass,
    config: &NetworkConfig,
    shape: [usize; 4],
    part: f64,
) -> gallerist_train::Result<Off> {
    let mut most = Off { outputs: 0.0, gradient: 0.0, worst: 0.0 };
    for seed in 0..4 {
        let off = Pass::new(&Device::flex(), config, shape, Numbers::Moved(part, seed), 1.0)?.off(wanted);
        most = Off {
            outputs: most.outputs.max(off.outputs),
            gradient: most.gradient.max(off.gradient),
            worst: most.worst.max(off.worst),
        };
    }
    Ok(most)
}

/// Moves tensors by noise of its own for each.
struct Mover {
    part: f64,
    seed: u64,
    moved: usize,
}

impl Mover {
    fn moved<const D: usize>(&mut self, x: Tensor<D>) -> Tensor<D> {
        let shape = x.dims();
        let noise = uniform(&format!("noise {} {}", self.seed, self.moved), shape.iter().product());
        self.moved += 1;
        let noise = Tensor::<D>::from_data(TensorData::new(noise, shape), &x.device());
        x.clone() + x * noise.mul_scalar(self.part)
    }
}

impl ModuleMapper for Mover {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D < 2 {
            return param;
        }
        param.map(|weight| Tensor::from_inner(self.moved(weight.inner())).require_grad())
    }
}

struct Collect {
    gradients: GradientsParams,
    scale: f64,
    values: Vec<Vec<f64>>,
}

impl ModuleVisitor for Collect {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        assert_eq!(param.val().dtype(), DType::F32, "parameters and running statistics stay f32");
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        assert_eq!(gradient.dtype(), DType::F32, "gradients arrive as f32");
        self.values.push(host(gradient).into_iter().map(|g| g / self.scale).collect());
    }
}

/// Numbers in `[-1, 1)`, the same for a name.
pub(crate) fn uniform(name: &str, count: usize) -> Vec<f32> {
    let mut random = Random::new(1, name, 0, 0);
    (0..count).map(|_| random.between(-1.0, 1.0) as f32).collect()
}

/// A tensor's values.
pub(crate) fn host<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.detach().into_data().convert::<f64>().try_into_vec().expect("converted to f64")
}

fn length(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Length of the difference over the length of what is wanted.
fn off(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let difference: Vec<f64> = found.iter().zip(wanted).map(|(f, w)| f - w).collect();
    let off = length(&difference) / length(wanted).max(1e-12);
    if off.is_nan() { f64::INFINITY } else { off }
}
