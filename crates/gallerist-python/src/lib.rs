//! The native part of the Python package `gallerist`.
//!
//! The functions here take plain values and NumPy arrays whose dtype and number of dimensions the Python part has made
//! right (`python/gallerist/_arrays.py`). They check sizes and values, release the interpreter's lock while they
//! compute, and return arrays and plain values.

mod arrays;
mod columns;
mod errors;
mod evaluate;
mod figures;
mod files;
mod index;
mod loss;
mod model;
mod search;
mod train;
mod watch;

use pyo3::prelude::*;

#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::columns::where_rows;
    #[pymodule_export]
    use super::evaluate::{check_one_set, evaluate, metrics, protocols};
    #[pymodule_export]
    use super::figures::{embeddings_report, map, run_report};
    #[pymodule_export]
    use super::files::{load, save, write_text};
    #[pymodule_export]
    use super::index::Index;
    #[pymodule_export]
    use super::loss::{Loss, losses, miners};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::search::{check_models, search};
    #[pymodule_export]
    use super::train::{resume, train};
    #[pymodule_export]
    use super::{threads, version};
}

/// The version of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Sets the number of compute threads. Only the first call can set it; the result is the number in use.
#[pyfunction]
fn threads(count: usize) -> PyResult<usize> {
    // The threads are started here, and a fork does not have them.
    errors::check_process()?;
    if count > 0 {
        gallerist::set_threads(count);
    }
    Ok(rayon::current_num_threads())
}
