//! Layers of transformers: attention, layer norm and the activations of their MLPs, with their gradients.

pub(crate) mod attention;
pub(crate) mod gated;
pub(crate) mod gelu;
mod lanes;
pub(crate) mod layer_norm;
mod rotary;

pub use gelu::Gelu;
pub use rotary::Rotary;
