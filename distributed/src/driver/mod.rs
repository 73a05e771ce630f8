//! The commands: which jobs are run, and how their results are put together.

pub mod duplicates;
pub mod evaluate;
pub mod search;

mod columns;
mod gallery;
mod hash;

pub use gallery::Gallery;

/// Queries that one job ranks at most: what a process holds of them, and of their results.
const QUERIES_PER_JOB: usize = 1 << 14;

/// Receives how much of the work is done, and warnings.
pub trait Progress {
    /// `done` of `all` queries, or steps.
    fn done(&mut self, done: usize, all: usize);

    /// What the user should know. The default ignores it.
    fn warning(&mut self, _message: &str) {}
}

impl Progress for () {
    fn done(&mut self, _: usize, _: usize) {}
}
