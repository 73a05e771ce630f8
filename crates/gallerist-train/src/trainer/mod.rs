//! The training loop: [`Trainer`] and its parts.
//!
//! | file | what |
//! | --- | --- |
//! | `start.rs` | from a run file, or a checkpoint, to a trainer |
//! | `run.rs` | the loop over the steps |
//! | `step.rs` | one step: forward, backward, optimiser |
//! | `nonfinite.rs` | steps that are not finite: going back, and what is kept of them |
//! | `batches.rs` | the sampler and the class means that it needs |
//! | `carry.rs` | what the loss has learned of each class, when a run continues with other classes |
//! | `warnings.rs` | what the user is warned of, each once |
//! | `save.rs` | validation and checkpoints |

mod batches;
mod carry;
mod nonfinite;
mod refused;
mod run;
mod save;
mod start;
mod state;
mod step;
mod warnings;

pub use run::RunEnd;
pub use start::{ResumeOptions, TrainerBuilder};
pub use state::Trainer;
