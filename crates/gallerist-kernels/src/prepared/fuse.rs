//! Layers that become part of the convolution before them.

use super::step::{Convolution, Layer, Step, users};
use crate::norm::Activation;

/// The steps after fusion, and the outputs among them.
pub(super) fn fuse(steps: Vec<Step>, outputs: &[usize]) -> (Vec<Step>, Vec<usize>) {
    let users = users(steps.iter().map(|step| &step.inputs[..]), outputs);
    let mut fused = Fused { steps: Vec::with_capacity(steps.len()), of: Vec::new(), users };
    for step in steps {
        let of = fused.push(step);
        fused.of.push(of);
    }
    let outputs = outputs.iter().map(|&i| fused.of[i]).collect();
    (fused.steps, outputs)
}

struct Fused {
    steps: Vec<Step>,
    /// The new step of each old one so far.
    of: Vec<usize>,
    /// The number of users of each old step.
    users: Vec<usize>,
}

impl Fused {
    /// Adds an old step; returns the new step of its result.
    fn push(&mut self, step: Step) -> usize {
        let Step { layer, inputs } = step;
        match &layer {
            Layer::Affine { scale, shift } => {
                if let Some((index, conv, then, 1)) = self.open_conv(inputs[0])
                    && *then == Activation::None
                {
                    scale_outputs(conv, scale, shift);
                    return index;
                }
            }
            Layer::Activation(activation) => {
                if let Some((index, _, then, _)) = self.open_conv(inputs[0])
                    && *then == Activation::None
                {
                    *then = *activation;
                    return index;
                }
            }
            Layer::Add => {
                // The later of the two: the other one is there when it is computed.
                let places = [0, 1].map(|i| self.of[inputs[i]]);
                let later = usize::from(places[1] > places[0]);
                if places[0] != places[1]
                    && let Some((index, conv, then, 1)) = self.open_conv(inputs[later])
                    && *then == Activation::None
                    && (conv.groups == 1 || conv.weight.1[1] > 1)
                {
                    self.steps[index].inputs.push(places[1 - later]);
                    return index;
                }
            }
            _ => {}
        }
        let inputs = inputs.iter().map(|&i| self.of[i]).collect();
        self.steps.push(Step { layer, inputs });
        self.steps.len() - 1
    }

    /// The convolution that ends with the old step `i`, if nothing but the next step uses its result, and the number of its
    /// inputs.
    fn open_conv(&mut self, i: usize) -> Option<(usize, &mut Convolution, &mut Activation, usize)> {
        let index = self.of[i];
        let alone = self.users[i] == 1;
        let Step { layer, inputs } = &mut self.steps[index];
        match layer {
            Layer::Conv(conv, then) if alone => Some((index, conv, then, inputs.len())),
            _ => None,
        }
    }
}

/// `(convolution + bias) * scale + shift` as a convolution.
fn scale_outputs(conv: &mut Convolution, scale: &[f32], shift: &[f32]) {
    let (weight, shape) = &mut conv.weight;
    assert_eq!(shape[0], scale.len(), "channels of a convolution and of the factors after it");
    let per_output = shape[1..].iter().product();
    for (weight, scale) in weight.chunks_exact_mut(per_output).zip(scale) {
        weight.iter_mut().for_each(|weight| *weight *= scale);
    }
    for (bias, (scale, shift)) in conv.bias.iter_mut().zip(scale.iter().zip(shift)) {
        *bias = *bias * scale + shift;
    }
}
