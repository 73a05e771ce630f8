//! Networks against PyTorch (`bench/networks/golden.py`) and against reference features.

#[path = "../common/formula.rs"]
mod formula;
mod golden;
mod layers;
mod mixed;
#[path = "../common/pass.rs"]
mod pass;
mod reference;
mod steps;
mod vit;
