//! Files of weights: what is read, what is refused, and what becomes of their tensors.

mod files;
#[path = "../common/formula.rs"]
mod formula;
mod load;
