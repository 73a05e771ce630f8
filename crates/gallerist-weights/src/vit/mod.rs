//! Weights of vision transformers: the names of other programs, positions for another size of images, and what a file
//! tells of its network.

mod identify;
mod names;
mod positions;

pub(crate) use identify::describe;
pub(crate) use names::{rename_for_timm, renamed};
pub(crate) use positions::fit_positions;
