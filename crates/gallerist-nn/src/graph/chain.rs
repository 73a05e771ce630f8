//! Convolutions and batch norms that are computed as one operation.

use burn::tensor::{DType, Tensor};
use gallerist_kernels::{ConvNorm, Shortcut, conv_norm_chain};

use crate::layers::{Activation, BatchNorm, Conv};

/// Convolutions, batch norms and what follows, to be computed as one operation.
#[derive(Clone)]
pub(super) struct Chain<'a> {
    /// The step of the input.
    from: usize,
    x: Tensor<4>,
    layers: Vec<ConvNorm>,
    norms: Vec<&'a BatchNorm>,
    /// The convolution that waits for its batch norm.
    conv: Option<&'a Conv>,
    shortcut: Shortcut,
}

impl<'a> Chain<'a> {
    pub(super) fn new(from: usize, x: Tensor<4>) -> Self {
        Chain { from, x, layers: Vec::new(), norms: Vec::new(), conv: None, shortcut: Shortcut::None }
    }

    pub(super) fn with_conv(self, conv: &'a Conv) -> Self {
        Chain { conv: Some(conv), ..self }
    }

    pub(super) fn with_norm(mut self, norm: &'a BatchNorm) -> Self {
        let conv = self.conv.take().expect("a chain's batch norm follows a convolution");
        self.layers.push(norm.after(conv, &self.x));
        self.norms.push(norm);
        self
    }

    /// With the result of step `from` added.
    pub(super) fn with_shortcut(self, from: usize, maps: Tensor<4>) -> Self {
        let shortcut = if from == self.from { Shortcut::Input } else { Shortcut::Maps(maps) };
        Chain { shortcut, ..self }
    }

    pub(super) fn with_activation(mut self, activation: Activation) -> Self {
        self.layers.last_mut().expect("a chain has a layer").activation = activation;
        self
    }

    pub(super) fn run(self) -> Tensor<4> {
        let out = conv_norm_chain(self.x, self.layers, self.shortcut);
        for (norm, moments) in self.norms.into_iter().zip(out.moments) {
            if let Some(moments) = moments {
                norm.update(moments);
            }
        }
        out.output
    }
}

/// The result of a step.
#[derive(Clone)]
pub(super) enum Value<'a> {
    Maps(Tensor<4>),
    Rows(Tensor<2>),
    Tokens(Tensor<3>),
    Chain(Box<Chain<'a>>),
}

impl<'a> Value<'a> {
    pub(super) fn dtype(&self) -> DType {
        match self {
            Value::Maps(maps) => maps.dtype(),
            Value::Rows(rows) => rows.dtype(),
            Value::Tokens(tokens) => tokens.dtype(),
            Value::Chain(chain) => chain.x.dtype(),
        }
    }

    /// Whether a chain may take these maps: it sums in their dtype.
    pub(super) fn fits_chain(&self) -> bool {
        match self {
            Value::Maps(maps) => gallerist_kernels::sums_in_f32(maps),
            Value::Chain(_) => true,
            other => other.dtype() == DType::F32,
        }
    }

    pub(super) fn maps(self) -> Tensor<4> {
        match self {
            Value::Maps(maps) => maps,
            Value::Chain(chain) => chain.run(),
            Value::Rows(rows) => panic!("feature maps are wanted, rows {:?} are found", rows.dims()),
            Value::Tokens(tokens) => panic!("feature maps are wanted, tokens {:?} are found", tokens.dims()),
        }
    }

    pub(super) fn tokens(self) -> Tensor<3> {
        match self {
            Value::Tokens(tokens) => tokens,
            other => panic!("tokens are wanted, feature maps {:?} are found", other.maps().dims()),
        }
    }

    pub(super) fn rows(self) -> Tensor<2> {
        match self {
            Value::Rows(rows) => rows,
            Value::Maps(maps) => panic!("rows are wanted, feature maps {:?} are found", maps.dims()),
            Value::Tokens(tokens) => panic!("rows are wanted, tokens {:?} are found", tokens.dims()),
            Value::Chain(_) => panic!("rows are wanted, feature maps are found"),
        }
    }

    /// A chain that continues from this result of step `from`.
    pub(super) fn chain(self, from: usize) -> Chain<'a> {
        match self {
            Value::Chain(chain) => *chain,
            other => Chain::new(from, other.maps()),
        }
    }

    /// The chain itself if the next step continues it, otherwise its result.
    pub(super) fn of_chain(chain: Chain<'a>, deferred: bool) -> Self {
        if deferred { Value::Chain(Box::new(chain)) } else { Value::Maps(chain.run()) }
    }
}
