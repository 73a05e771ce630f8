//! Experiments: the tables and figures of the papers, and your own, as files that are run and compared.
//!
//! An experiment has rows (the settings that are compared), parts (the data sets) and the numbers that a paper prints.
//! Each row is run on each part with several seeds, at one of three [scales](Scale). [`jobs::run`](crate::jobs::run()) trains what is not done
//! yet, [`Table::new`] collects the results.
//!
//! ```toml
//! [experiment]
//! name = "margin"
//! title = "How does the margin change retrieval?"
//! kind = "table"
//! axis = "margin"
//!
//! [[part]]
//! name = "Omniglot"
//! metrics = ["recall@1", "map@r"]
//! small = { base = "small-omniglot", loss = { name = "rll" } }
//!
//! [[row]]
//! name = "margin 0.2"
//! x = 0.2
//! run = { loss = { margin = 0.2 } }
//!
//! [[row]]
//! name = "margin 0.4"
//! x = 0.4
//! run = { loss = { margin = 0.4 } }
//! ```
//!
//! The run file of a row is its base with the keys of the part, of the row, of the row on this part (`on`), and of the row
//! at this scale, in this order. A table of keys is merged into the one before; where `name`, `kind` or `preset` differs, it replaces it.
//!
//! # Example
//!
//! ```no_run
//! use std::{path::Path, sync::atomic::AtomicBool};
//! use gallerist::experiments::{self, Experiment, Plan, Scale, Selection, Table};
//! use gallerist::jobs::{self, Options};
//!
//! let experiment = Experiment::find("rll-cvpr-table-4")?;
//! let plan = Plan::new(&experiment, &Selection { scale: Scale::Small, seeds: 1..=5, ..Selection::default() })?;
//! let options = Options { jobs: 2, ..Options::new(experiments::STORE) };
//! jobs::run(&plan.jobs(&experiment), &options, &mut (), &AtomicBool::new(false))?;
//! print!("{}", Table::new(&experiment, &plan, Path::new(experiments::STORE))?.markdown());
//! # Ok::<(), gallerist::Error>(())
//! ```

mod base;
mod built_in;
mod file;
mod interval;
mod maps;
mod plan;
mod table;
mod write;

pub use file::{About, Experiment, Kind, Maps, Part, Row, Scale, Scaled};
pub use interval::Estimate;
pub use maps::RowMap;
pub use plan::{Plan, PlannedRun, Selection};
pub use table::{Cell, Table, TableColumn, TableRow};

/// The folder in which the command keeps the runs of experiments.
pub const STORE: &str = "runs/experiments";
