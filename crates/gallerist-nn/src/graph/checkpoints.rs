//! Gradient checkpointing: a training pass that keeps few results, and computes the others again for the gradients (Chen et
//! al. 2016, "Training Deep Nets with Sublinear Memory Cost").

use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Tensor};

use super::chain::Value;
use super::network::{Network, Op};
use crate::token_layers::Draw;

/// The results that a training pass has kept, for its backward pass.
///
/// Made by [`Network::forward_checkpointed`].
pub struct Checkpoints {
    network: Network,
    draw: Draw,
    /// The parts of the network, each with the result that it begins with.
    parts: Vec<(Range<usize>, Value<'static>)>,
}

impl Network {
    /// [`forward_training`](Self::forward_training) without a graph of gradients: keeps only the results between the parts of
    /// the network, which are those at which no other result is still in use. In a transformer, a part is one branch of a
    /// block.
    ///
    /// `None` for a network whose batch norms use the statistics of the batch, because a second pass would update the
    /// running ones twice.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward), or if `images` are on a device without autodiff.
    pub fn forward_checkpointed(
        &self,
        images: Tensor<4>,
        draw: Draw,
    ) -> Option<(Vec<Tensor<2>>, Checkpoints)> {
        if !self.can_checkpoint() {
            return None;
        }
        let network = self.valid();
        let mut parts = Vec::new();
        let mut value = Value::Maps(images.inner());
        for part in self.parts() {
            parts.push((part.clone(), value.clone()));
            let mut values = vec![None; self.steps.len()];
            values[part.start - 1] = Some(value);
            network.compute(part.clone(), &mut values, Some(draw));
            if part.end == self.steps.len() {
                let outputs = network.heads_of(&values);
                return Some((outputs, Checkpoints { network: self.clone(), draw, parts }));
            }
            value = values[part.end - 1].take().expect("a part computes its last step").fixed();
        }
        unreachable!("the last part ends with the last step")
    }

    /// Whether [`forward_checkpointed`](Self::forward_checkpointed) is possible: no batch norm uses the statistics of the
    /// batch.
    pub fn can_checkpoint(&self) -> bool {
        self.batch_norms().all(|(_, uses_batch)| !uses_batch)
    }

    /// The steps after the images in parts. A part uses the result of the step before it, and no earlier one.
    fn parts(&self) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = 1;
        for end in 2..self.steps.len() {
            let (before, last) = (0..end - 1, end - 1);
            let alone =
                before.into_iter().all(|i| self.last_use[i] < end) && self.last_use[last] != usize::MAX;
            let has_parameters = |i: usize| !matches!(self.steps[i].op, Op::Fixed(_) | Op::SelfAttention(_));
            if alone && !self.deferred[last] && (start..end).any(has_parameters) {
                parts.push(start..end);
                start = end;
            }
        }
        parts.push(start..self.steps.len());
        parts
    }
}

impl Checkpoints {
    /// The gradients of the parameters, from those of each head; `None`: a head without one.
    pub fn backward(self, of_heads: Vec<Option<Tensor<2>>>) -> GradientsParams {
        let Checkpoints { network, draw, parts } = self;
        let mut all = GradientsAccumulator::new();
        // The gradient by the result of the part.
        let mut above: Option<Value<'static>> = None;
        let is_trained =
            |part: &Range<usize>| network.steps[part.clone()].iter().any(|step| learns(&step.op));
        let Some(first) = parts.iter().position(|(part, _)| is_trained(part)) else {
            return GradientsParams::new();
        };
        // Before the first part that is trained, no gradient is needed.
        for (place, (part, value)) in parts.into_iter().enumerate().skip(first).rev() {
            let begin = value.tracked(first < place);
            let mut values = vec![None; network.steps.len()];
            values[part.start - 1] = Some(begin.clone());
            network.compute(part.clone(), &mut values, Some(draw));
            let sum = if part.end == network.steps.len() {
                let pairs = network.heads_of(&values).into_iter().zip(&of_heads);
                let seeds = pairs.filter_map(|(y, dy)| Some(seed(y, dy.clone()?)));
                seeds.reduce(|sum: Tensor<1>, seed| sum + seed)
            } else {
                let y = values[part.end - 1].take().expect("a part computes its last step");
                above.take().map(|dy| match (y, dy) {
                    (Value::Tokens(y), Value::Tokens(dy)) => seed(y, dy),
                    (Value::Rows(y), Value::Rows(dy)) => seed(y, dy),
                    (y, dy) => seed(y.maps(), dy.maps()),
                })
            };
            drop(values);
            let Some(sum) = sum else { break };
            let mut gradients = sum.backward();
            above = begin.gradient(&gradients);
            all.accumulate(&network, GradientsParams::from_module(&mut gradients, &network));
        }
        all.grads()
    }
}

/// Whether an operation has a parameter that is trained.
fn learns(op: &Op) -> bool {
    struct Learns(bool);
    impl ModuleVisitor for Learns {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 |= param.is_require_grad();
        }
    }
    let mut found = Learns(false);
    op.visit(&mut found);
    found.0
}

/// A number whose derivative by `y` is `dy`.
fn seed<const D: usize>(y: Tensor<D>, dy: Tensor<D>) -> Tensor<1> {
    let dy = Tensor::from_inner(dy).cast(DType::F32);
    (y.cast(DType::F32) * dy).sum()
}

impl Value<'_> {
    /// Maps, rows or tokens: chains are computed.
    fn fixed(self) -> Value<'static> {
        match self {
            Value::Rows(rows) => Value::Rows(rows),
            Value::Tokens(tokens) => Value::Tokens(tokens),
            other => Value::Maps(other.maps()),
        }
    }

    /// The beginning of a graph of gradients, which are also those by this value if they are `wanted`.
    fn tracked(self, wanted: bool) -> Value<'static> {
        match self {
            Value::Rows(rows) => Value::Rows(Tensor::from_inner(rows).set_require_grad(wanted)),
            Value::Tokens(tokens) => Value::Tokens(Tensor::from_inner(tokens).set_require_grad(wanted)),
            other => Value::Maps(Tensor::from_inner(other.maps()).set_require_grad(wanted)),
        }
    }

    /// The gradient by this value.
    fn gradient(self, gradients: &burn::tensor::Gradients) -> Option<Value<'static>> {
        Some(match self {
            Value::Rows(rows) => Value::Rows(rows.grad(gradients)?),
            Value::Tokens(tokens) => Value::Tokens(tokens.grad(gradients)?),
            other => Value::Maps(other.maps().grad(gradients)?),
        })
    }
}
