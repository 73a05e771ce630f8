//! Collective operations of the ranks of a distributed run.
//!
//! A rank is one of the processes that train together. [`Collective`] has what they need of each other: gathering,
//! sums, broadcasts. [`world`] gives the ranks of this process: those of the MPI launcher that started it, or one.
//!
//! A sum is accumulated in f64 in the order of the ranks and rounded once. Its bits depend on the values and on how they
//! are divided among the ranks; they do not depend on the MPI library, its algorithms or the network, and all ranks get
//! the same.
//!
//! # Example
//!
//! ```
//! use gallerist_collective::{Collective, Single};
//!
//! let mut gradient = [1.0, 2.0];
//! Single.all_reduce(&mut gradient)?;
//! assert_eq!(gradient, [1.0, 2.0]);
//! # Ok::<(), gallerist_collective::Error>(())
//! ```

mod collective;
mod error;
#[cfg(all(feature = "mpi", unix))]
mod mpi;
mod numbers;
mod placement;
mod shared;
mod single;
mod sum;
mod world;

pub use collective::{Collective, part};
pub use error::{Error, Result};
pub use numbers::{bytes_of, numbers_of};
pub use shared::Shared;
pub use single::Single;
pub use world::{launched_ranks, world};
