//! The transfer of embeddings between the device of the network and the CPU.
//!
//! The network runs on the device of the run. Everything after its outputs (losses, their parameters, cross-batch
//! memories, miners, logged statistics) runs on the CPU: a batch of embeddings is small, most of this needs
//! the values on the host, ranks and small distances need products that are not rounded to TF32, and the losses on the CPU
//! need no `n x n` matrix. Each step copies the outputs to the CPU and their gradient back.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use gallerist_nn::{AnyEmbedder, Checkpoints};

/// The outputs of a network, on its device and on the CPU.
pub(super) struct Crossing {
    of_network: OfNetwork,
    /// The input of the objective.
    outputs: Vec<Tensor<2>>,
}

/// How the gradients of the outputs become those of the network.
enum OfNetwork {
    /// On the CPU a single graph suffices.
    OneGraph,
    /// The outputs that the graph of the network tracks.
    Own(Vec<Tensor<2>>),
    /// There is no graph; the parts of the network are computed again.
    Checkpoints { checkpoints: Box<Checkpoints>, device: Device },
}

impl Crossing {
    /// The `outputs` of a pass with gradient checkpointing, copied to `host`.
    pub(super) fn checkpointed(outputs: Vec<Tensor<2>>, checkpoints: Checkpoints, host: &Device) -> Self {
        let device = outputs[0].device();
        let outputs = outputs.iter().map(|output| bring(output, host)).collect();
        let checkpoints = Box::new(checkpoints);
        Crossing { outputs, of_network: OfNetwork::Checkpoints { checkpoints, device } }
    }

    /// Copies the outputs to `host`, a device with autodiff, as f32.
    pub(super) fn new(outputs: Vec<Tensor<2>>, host: &Device) -> Self {
        if outputs.iter().all(|output| output.device() == *host) {
            return Crossing { of_network: OfNetwork::OneGraph, outputs };
        }
        Self::copied(outputs, host)
    }

    /// The outputs copied to `host`, whatever their device.
    fn copied(outputs: Vec<Tensor<2>>, host: &Device) -> Self {
        Crossing {
            outputs: outputs.iter().map(|output| bring(output, host)).collect(),
            of_network: OfNetwork::Own(outputs),
        }
    }

    /// The input of the objective: one `[n, d]` per head.
    pub(super) fn outputs(&self) -> &[Tensor<2>] {
        &self.outputs
    }

    /// The gradients of `value` with respect to the network, times `scale`, and to `objective`.
    ///
    /// On the CPU there is no scale, because its gradients are f32.
    pub(super) fn backward<M: Module>(
        self,
        value: Tensor<1>,
        network: &AnyEmbedder,
        objective: &M,
        scale: f64,
    ) -> (GradientsParams, GradientsParams) {
        let mut gradients = value.backward();
        // A head without a loss has no gradient.
        let of_output = |seen: &Tensor<2>, device: &Device| {
            let gradient = seen.grad(&gradients)?;
            Some(Tensor::<2>::from_data(gradient.into_data(), device).mul_scalar(scale))
        };
        let of_network = match self.of_network {
            OfNetwork::OneGraph => {
                assert_eq!(scale, 1.0, "a scaled loss on the processor");
                GradientsParams::from_module(&mut gradients, network)
            }
            OfNetwork::Own(outputs) => {
                let pairs = outputs.into_iter().zip(&self.outputs);
                let terms = pairs.filter_map(|(output, seen)| {
                    let gradient = of_output(seen, &output.device().inner())?;
                    // The derivative of the sum of output times constant is the constant.
                    Some((output.cast(DType::F32) * Tensor::from_inner(gradient)).sum())
                });
                match terms.reduce(|sum: Tensor<1>, term| sum + term) {
                    Some(seed) => GradientsParams::from_module(&mut seed.backward(), network),
                    None => GradientsParams::new(),
                }
            }
            OfNetwork::Checkpoints { checkpoints, device } => {
                let of_heads = self.outputs.iter().map(|seen| of_output(seen, &device)).collect();
                checkpoints.backward(of_heads)
            }
        };
        (of_network, GradientsParams::from_module(&mut gradients, objective))
    }
}

/// The output on `host`, as the beginning of a graph.
fn bring(output: &Tensor<2>, host: &Device) -> Tensor<2> {
    let data = output.clone().detach().into_data().convert_dtype(DType::F32);
    Tensor::from_data(data, host).require_grad()
}

#[cfg(test)]
mod tests {
    use burn::module::{ModuleVisitor, Param};
    use burn::tensor::TensorData;

    use super::*;
    use gallerist_nn::{BnInceptionConfig, InceptionHead, InputShape, NetworkConfig};
    use gallerist_tensor::pairwise::{host, l2_normalize};

    /// Gradients of a loss of two of a network's three heads, by way of a crossing.
    fn gradients(crossing: fn(Vec<Tensor<2>>, &Device) -> Crossing, scale: f64) -> Vec<Vec<f64>> {
        struct Collect(GradientsParams, Vec<Vec<f64>>);
        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.1.extend(self.0.get::<D>(param.id).map(|gradient| host(&gradient)));
            }
        }
        let device = Device::flex().autodiff();
        let heads = vec![InceptionHead::L, InceptionHead::M, InceptionHead::H];
        let config: NetworkConfig = BnInceptionConfig { dimensions: 4, heads, ..Default::default() }.into();
        let shape = [2, 3, 160, 160];
        let network = config.init(InputShape { channels: 3, height: 160, width: 160 }, 1, &device).unwrap();
        let values = (0..shape.iter().product()).map(|i: usize| (i as f32).sin()).collect::<Vec<_>>();
        let images = Tensor::<4>::from_data(TensorData::new(values, shape), &device);
        let crossing = crossing(network.forward(images), &device);
        let [first, _, last] = crossing.outputs() else { panic!("three heads") };
        let value = l2_normalize(first.clone()).mul(l2_normalize(last.clone())).sum().reshape([1]);
        let (of_network, of_none) = crossing.backward(value, &network, &Vec::<AnyEmbedder>::new(), scale);
        assert!(of_none.is_empty());
        let mut visitor = Collect(of_network, Vec::new());
        network.visit(&mut visitor);
        assert!(!visitor.1.is_empty());
        visitor.1
    }

    #[test]
    fn gradients_that_crossed_are_those_of_one_graph() {
        assert_eq!(gradients(Crossing::copied, 1.0), gradients(Crossing::new, 1.0));
    }

    #[test]
    fn a_scale_is_in_every_gradient() {
        let plain = gradients(Crossing::new, 1.0);
        for (scaled, plain) in
            gradients(Crossing::copied, 1024.0).iter().flatten().zip(plain.iter().flatten())
        {
            assert!((scaled / 1024.0 - plain).abs() <= 1e-6 * plain.abs() + 1e-12, "{scaled} and {plain}");
        }
    }
}
