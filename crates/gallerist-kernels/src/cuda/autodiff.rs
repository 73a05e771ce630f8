//! The operations with gradients.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Cube, TensorMetadata};
use burn::tensor::Shape;
use burn::tensor::ops::ConvOptions;

use super::operations::{CudaGradients, CudaOps};
use crate::norm::Activation;
use crate::tokens::Gelu;

type Plain = FloatTensor<Cube>;
type Tracked = FloatTensor<Autodiff<Cube>>;

/// Registers the gradients of the parents that need one. A macro, because the engine does not export the type of a node.
macro_rules! register {
    ($gradients:expr, $parents:expr, $found:expr) => {
        for (node, gradient) in $parents.into_iter().zip($found) {
            if let Some(node) = node {
                $gradients.register::<Cube>(node.id, gradient);
            }
        }
    };
}

#[derive(Debug)]
struct Convolution;

impl Backward<Cube, 2> for Convolution {
    type State = (NodeId, NodeId, ConvOptions<2>);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let (x, weight, options) = ops.state;
        let x = checkpointer.retrieve_node_output::<Plain>(x);
        let weight = checkpointer.retrieve_node_output::<Plain>(weight);
        let [of_x, of_weight] = ops.parents;
        if let Some(node) = of_x {
            let sides = x.shape().dims();
            let dx = Cube::cuda_conv2d_input(weight.clone(), dy.clone(), sides, options.clone());
            gradients.register::<Cube>(node.id, dx);
        }
        if let Some(node) = of_weight {
            let dw = Cube::cuda_conv2d_weight(x, dy, weight.shape().dims(), options);
            gradients.register::<Cube>(node.id, dw);
        }
    }
}

#[derive(Debug)]
struct Matmul;

impl Backward<Cube, 2> for Matmul {
    type State = (NodeId, NodeId);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let left = checkpointer.retrieve_node_output::<Plain>(ops.state.0);
        let right = checkpointer.retrieve_node_output::<Plain>(ops.state.1);
        let transposed = |x: Plain| {
            let rank = x.shape().num_dims();
            Cube::float_swap_dims(x, rank - 2, rank - 1)
        };
        let [of_left, of_right] = ops.parents;
        if let Some(node) = of_left {
            gradients.register::<Cube>(node.id, Cube::cuda_matmul(dy.clone(), transposed(right)));
        }
        if let Some(node) = of_right {
            gradients.register::<Cube>(node.id, Cube::cuda_matmul(transposed(left), dy));
        }
    }
}

/// What the gradients of a batch norm need.
#[derive(Clone, Debug)]
struct NormState {
    x: NodeId,
    gamma: NodeId,
    moments: Plain,
    epsilon: f64,
    activation: Activation,
}

/// The gradients of gamma and beta are the rows of one matrix.
fn rows(parameters: Plain) -> [Plain; 2] {
    let channels = parameters.shape()[1];
    [0, 1].map(|row| {
        let row = Cube::float_slice(parameters.clone(), &[(row..row + 1).into(), (0..channels).into()]);
        Cube::float_reshape(row, Shape::from([channels]))
    })
}

#[derive(Debug)]
struct BatchNorm;

impl Backward<Cube, 3> for BatchNorm {
    type State = NormState;

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let NormState { x, gamma, moments, epsilon, activation } = ops.state;
        let x = checkpointer.retrieve_node_output::<Plain>(x);
        let gamma = checkpointer.retrieve_node_output::<Plain>(gamma);
        let (dx, parameters) = Cube::cuda_batch_norm_gradient(x, dy, gamma, moments, epsilon, activation);
        let [dgamma, dbeta] = rows(parameters);
        register!(gradients, ops.parents, [dx, dgamma, dbeta]);
    }
}

#[derive(Debug)]
struct BatchNormAdd;

impl Backward<Cube, 4> for BatchNormAdd {
    /// The result of the forward pass comes second.
    type State = (NormState, Plain);

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let (NormState { x, gamma, moments, epsilon, activation }, y) = ops.state;
        let x = checkpointer.retrieve_node_output::<Plain>(x);
        let gamma = checkpointer.retrieve_node_output::<Plain>(gamma);
        let (dx, dadded, parameters) =
            Cube::cuda_batch_norm_add_gradient(x, y, dy, gamma, moments, epsilon, activation);
        let [dgamma, dbeta] = rows(parameters);
        register!(gradients, ops.parents, [dx, dadded, dgamma, dbeta]);
    }
}

#[derive(Debug)]
struct LayerNorm;

impl Backward<Cube, 3> for LayerNorm {
    /// The input, the weight, and the moments of the rows.
    type State = (NodeId, NodeId, Plain);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let (x, weight, moments) = ops.state;
        let x = checkpointer.retrieve_node_output::<Plain>(x);
        let weight = checkpointer.retrieve_node_output::<Plain>(weight);
        let (dx, parameters) = Cube::cuda_layer_norm_gradient(x, dy, weight, moments);
        let [dweight, dbias] = rows(parameters);
        register!(gradients, ops.parents, [dx, dweight, dbias]);
    }
}

#[derive(Debug)]
struct SelfAttention;

impl Backward<Cube, 1> for SelfAttention {
    /// Queries, keys and values, the softmax of the scores, and the number of heads.
    type State = (NodeId, Plain, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let (qkv, weights, heads) = ops.state;
        let qkv = checkpointer.retrieve_node_output::<Plain>(qkv);
        let [of_qkv] = ops.parents;
        if let Some(node) = of_qkv {
            gradients.register::<Cube>(node.id, Cube::cuda_attention_gradient(qkv, weights, dy, heads));
        }
    }
}

#[derive(Debug)]
struct MlpActivation;

impl Backward<Cube, 1> for MlpActivation {
    type State = (NodeId, Gelu);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let (x, kind) = ops.state;
        let x = checkpointer.retrieve_node_output::<Plain>(x);
        let [of_x] = ops.parents;
        if let Some(node) = of_x {
            gradients.register::<Cube>(node.id, Cube::cuda_gelu_gradient(x, dy, kind));
        }
    }
}

#[derive(Debug)]
struct AddBias;

impl Backward<Cube, 2> for AddBias {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let dy = gradients.consume::<Cube>(&ops.node);
        let [of_x, of_bias] = ops.parents;
        if let Some(node) = of_bias {
            gradients.register::<Cube>(node.id, Cube::cuda_column_sums(dy.clone()));
        }
        if let Some(node) = of_x {
            gradients.register::<Cube>(node.id, dy);
        }
    }
}

impl<C: CheckpointStrategy> CudaOps for Autodiff<Cube, C> {
    fn cuda_conv2d(x: Tracked, weight: Tracked, options: ConvOptions<2>) -> Tracked {
        let y = Cube::cuda_conv2d(x.primitive().clone(), weight.primitive().clone(), options.clone());
        match Convolution.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, weight) = (preparation.checkpoint(&x), preparation.checkpoint(&weight));
                preparation.finish((x, weight, options), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn cuda_matmul(left: Tracked, right: Tracked) -> Tracked {
        let y = Cube::cuda_matmul(left.primitive().clone(), right.primitive().clone());
        match Matmul.prepare::<C>([left.node(), right.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (left, right) = (preparation.checkpoint(&left), preparation.checkpoint(&right));
                preparation.finish((left, right), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn cuda_batch_norm(
        x: Tracked,
        gamma: Tracked,
        beta: Tracked,
        epsilon: f64,
        activation: Activation,
    ) -> (Tracked, Tracked) {
        let [plain_x, plain_gamma, plain_beta] = [&x, &gamma, &beta].map(|tensor| tensor.primitive().clone());
        let (y, moments) = Cube::cuda_batch_norm(plain_x, plain_gamma, plain_beta, epsilon, activation);
        let nodes = [x.node(), gamma.node(), beta.node()];
        let y = match BatchNorm.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, gamma) = (preparation.checkpoint(&x), preparation.checkpoint(&gamma));
                let state = NormState { x, gamma, moments: moments.clone(), epsilon, activation };
                preparation.finish(state, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        };
        (y, Tracked::new(moments))
    }

    fn cuda_batch_norm_add(
        x: Tracked,
        added: Tracked,
        gamma: Tracked,
        beta: Tracked,
        epsilon: f64,
        activation: Activation,
    ) -> (Tracked, Tracked) {
        let [plain_x, plain_added, plain_gamma, plain_beta] =
            [&x, &added, &gamma, &beta].map(|tensor| tensor.primitive().clone());
        let (y, moments) =
            Cube::cuda_batch_norm_add(plain_x, plain_added, plain_gamma, plain_beta, epsilon, activation);
        let nodes = [x.node(), added.node(), gamma.node(), beta.node()];
        let y = match BatchNormAdd.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, gamma) = (preparation.checkpoint(&x), preparation.checkpoint(&gamma));
                let state = NormState { x, gamma, moments: moments.clone(), epsilon, activation };
                preparation.finish((state, y.clone()), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        };
        (y, Tracked::new(moments))
    }

    fn cuda_layer_norm(x: Tracked, weight: Tracked, bias: Tracked, epsilon: f64) -> (Tracked, Tracked) {
        let [plain_x, plain_weight, plain_bias] =
            [&x, &weight, &bias].map(|tensor| tensor.primitive().clone());
        let (y, moments) = Cube::cuda_layer_norm(plain_x, plain_weight, plain_bias, epsilon);
        let y =
            match LayerNorm.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
                OpsKind::Tracked(mut preparation) => {
                    let (x, weight) = (preparation.checkpoint(&x), preparation.checkpoint(&weight));
                    preparation.finish((x, weight, moments.clone()), y)
                }
                OpsKind::UnTracked(preparation) => preparation.finish(y),
            };
        (y, Tracked::new(moments))
    }

    fn cuda_attention(qkv: Tracked, heads: usize) -> (Tracked, Tracked) {
        let (y, weights) = Cube::cuda_attention(qkv.primitive().clone(), heads);
        let y = match SelfAttention.prepare::<C>([qkv.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let qkv = preparation.checkpoint(&qkv);
                preparation.finish((qkv, weights.clone(), heads), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        };
        (y, Tracked::new(weights))
    }

    fn cuda_gelu(x: Tracked, kind: Gelu) -> Tracked {
        let y = Cube::cuda_gelu(x.primitive().clone(), kind);
        match MlpActivation.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let x = preparation.checkpoint(&x);
                preparation.finish((x, kind), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn cuda_add_bias(x: Tracked, bias: Tracked) -> Tracked {
        let y = Cube::cuda_add_bias(x.primitive().clone(), bias.primitive().clone());
        match AddBias.prepare::<C>([x.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish((), y),
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }
}
