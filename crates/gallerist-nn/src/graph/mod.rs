//! A network as data: a list of steps, each an operation on the results of earlier ones.
//!
//! Every network of this crate is described once, by calls on a `Builder`, and the description
//! gives everything: shapes, initial weights, names, the forward pass, the exchange with other
//! programs (crate `gallerist-weights`) and the export to ONNX. A layer's name is its name in the
//! PyTorch implementation whose weights are in circulation, so that parameters need no table of
//! names.

mod builder;
mod chain;
mod checkpoints;
mod network;
mod prepared;
mod tokens;

pub(crate) use builder::{Builder, Kernel, Node, Padding};
pub use checkpoints::Checkpoints;
pub use network::{Fixed, FixedKind, Network, Op, Shape, Slot, Step};
pub use prepared::Prepared;
