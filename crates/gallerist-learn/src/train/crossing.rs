//! Where the embeddings of a batch leave the device that computed them.
//!
//! The network computes on the device of the run. What comes behind its outputs (losses, their parameters, cross-batch
//! memories, miners, what the log says of a batch) is on the processor: a batch of embeddings is small, all of it needs their
//! values on the host, ranks and near distances want products that are not rounded to TF32, and the processor's losses
//! need no `n x n` matrix. So one copy goes each way in a step: the outputs, and their gradient.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use crate::network::Network;

/// The outputs of a network, on its device and on the processor.
pub(super) struct Crossing {
    /// Tracked by the network's graph; empty where the processor is the device, and one graph is enough.
    of_network: Vec<Tensor<2>>,
    /// What the objective sees.
    outputs: Vec<Tensor<2>>,
}

impl Crossing {
    /// The outputs brought to `host`, a device with gradients, as f32.
    pub(super) fn new(outputs: Vec<Tensor<2>>, host: &Device) -> Self {
        if outputs.iter().all(|output| output.device() == *host) {
            return Crossing { of_network: Vec::new(), outputs };
        }
        let bring = |output: &Tensor<2>| {
            let data = output.clone().detach().into_data().convert_dtype(DType::F32);
            Tensor::from_data(data, host).require_grad()
        };
        Crossing { outputs: outputs.iter().map(bring).collect(), of_network: outputs }
    }

    /// What the objective sees: one `[n, d]` per head.
    pub(super) fn outputs(&self) -> &[Tensor<2>] {
        &self.outputs
    }

    /// The gradients of `value` with respect to the network, times `scale`, and to `objective`.
    ///
    /// Where the processor is the device there is no scale: its gradients are f32.
    pub(super) fn backward<M: Module>(
        self,
        value: Tensor<1>,
        network: &Network,
        objective: &M,
        scale: f64,
    ) -> (GradientsParams, GradientsParams) {
        let mut gradients = value.backward();
        if self.of_network.is_empty() {
            assert_eq!(scale, 1.0, "a scaled loss on the processor");
            let of_network = GradientsParams::from_module(&mut gradients, network);
            return (of_network, GradientsParams::from_module(&mut gradients, objective));
        }
        let of_objective = GradientsParams::from_module(&mut gradients, objective);
        let mut seed: Option<Tensor<1>> = None;
        for (output, seen) in self.of_network.into_iter().zip(&self.outputs) {
            // A head that no loss looks at has none.
            let Some(gradient) = seen.grad(&gradients) else { continue };
            let gradient = Tensor::<2>::from_data(gradient.into_data(), &output.device().inner());
            // The derivative of the sum of output times constant is the constant.
            let term = (output.cast(DType::F32) * Tensor::from_inner(gradient.mul_scalar(scale))).sum();
            seed = Some(match seed {
                Some(sum) => sum + term,
                None => term,
            });
        }
        let of_network = match seed {
            Some(seed) => GradientsParams::from_module(&mut seed.backward(), network),
            None => GradientsParams::new(),
        };
        (of_network, of_objective)
    }
}
