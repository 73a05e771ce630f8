//! The ranks of this process.

use std::sync::{Arc, OnceLock};

#[cfg(not(all(feature = "mpi", unix)))]
use crate::Error;
use crate::{Collective, Result, Single};

/// Variables with the number of ranks that launchers set: Open MPI's `mpirun`, MPICH's and Intel's (and `srun
/// --mpi=pmi2`), MVAPICH's.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

/// The number of ranks with which a launcher has started this process; `None` where no launcher has.
pub fn launched_ranks() -> Option<usize> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    // `srun --mpi=pmix` says only the rank; Slurm has the size.
    let of_slurm = || std::env::var_os("PMIX_RANK").and_then(|_| number("SLURM_STEP_NUM_TASKS"));
    SIZES.iter().find_map(|name| number(name)).or_else(of_slurm)
}

/// The ranks of this process: those of its launcher, or [`Single`]. Every call gives the same.
///
/// # Errors
///
/// [`Error::Unavailable`] where a launcher has started several ranks of a program that was built without the feature
/// `mpi`, so that each would do the whole work, and where MPI cannot be initialised.
pub fn world() -> Result<Arc<dyn Collective>> {
    static WORLD: OnceLock<Result<Arc<dyn Collective>>> = OnceLock::new();
    WORLD.get_or_init(open).clone()
}

fn open() -> Result<Arc<dyn Collective>> {
    match launched_ranks() {
        None => Ok(Arc::new(Single)),
        #[cfg(all(feature = "mpi", unix))]
        Some(_) => Ok(Arc::new(crate::mpi::Mpi::init()?)),
        #[cfg(not(all(feature = "mpi", unix)))]
        Some(1) => Ok(Arc::new(Single)),
        #[cfg(not(all(feature = "mpi", unix)))]
        Some(size) => {
            Err(Error::Unavailable { size, reason: "it was built without the feature `mpi`".into() })
        }
    }
}
