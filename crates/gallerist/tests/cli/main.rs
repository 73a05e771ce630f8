//! The real program: one file per command.

#[path = "../common/mod.rs"]
mod common;
mod data;
mod evaluate;
mod help;
mod loss;
mod program;
mod resume;
mod train;
mod weights;
