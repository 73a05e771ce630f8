//! Opens the galleries of a running server again.

use gallerist_util::sync::{Arc, Mutex, PoisonError};

use crate::http::Galleries;
use crate::reloaded::{Outcome, Reloaded};
use crate::state::{Contents, Shared, State};
use crate::{Options, Result};

/// Opens a gallery by its name on the server.
pub(crate) type Reopen = Box<dyn Fn(&str) -> Result<Contents> + Send + Sync>;

/// What a server answers with, and how it is replaced.
pub(crate) struct Reloader {
    reopen: Reopen,
    galleries: Arc<Galleries>,
    shared: Shared,
    options: Options,
    /// The states that answer now. Held while galleries are opened.
    served: Mutex<Vec<Arc<State>>>,
}

impl Reloader {
    pub(crate) fn new(
        reopen: Reopen,
        galleries: Arc<Galleries>,
        shared: Shared,
        options: Options,
        served: Vec<Arc<State>>,
    ) -> Self {
        Self { reopen, galleries, shared, options, served: Mutex::new(served) }
    }

    /// Opens the galleries whose files have changed, or all of them, and reads the certificate again; `only` the gallery of
    /// that name. A gallery that cannot be opened, or whose tags cannot be read, stays as it was.
    pub(crate) fn reload(&self, all: bool, only: Option<&str>) -> Vec<Reloaded> {
        // A second call waits, and then finds the files that have changed since.
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = self.shared.certificate.as_ref().map(|certificate| certificate.read_again())
        {
            (self.options.note)(&format!("the certificate stays as it was: {error}"));
        }
        let is_meant = |state: &State| only.is_none_or(|name| *state.name == *name);
        let galleries = served.iter_mut().enumerate().filter(|(_, state)| is_meant(state));
        let reloaded = galleries.map(|(at, state)| {
            // The file of tags may have changed alone.
            let outcome = match state.saved.read_again() {
                Err(fault) => Outcome::Failed { problem: fault.to_string(), hint: None },
                Ok(()) if all || state.is_outdated() => self.open(at, state),
                Ok(()) => Outcome::Unchanged,
            };
            Reloaded { gallery: state.name.to_string(), outcome }
        });
        let reloaded: Vec<Reloaded> = reloaded.collect();
        for Reloaded { gallery, outcome } in &reloaded {
            match outcome {
                Outcome::Reloaded { items } => {
                    (self.options.note)(&format!("the gallery `{gallery}` was opened again: {items} items"))
                }
                Outcome::Unchanged => {}
                Outcome::Failed { problem, .. } => (self.options.note)(&format!(
                    "the gallery `{gallery}` cannot be opened again, and stays as it was: {problem}"
                )),
            }
        }
        reloaded
    }

    fn open(&self, at: usize, state: &mut Arc<State>) -> Outcome {
        let name = state.name.to_string();
        // Changes by clients would be lost between reading the file and replacing the gallery.
        state.gallery.freeze(true);
        let opened = (self.reopen)(&name)
            .and_then(|contents| State::new(&name, contents, &self.options, &self.shared));
        match opened {
            Ok(new) => {
                self.galleries.replace(at, &new);
                let old = std::mem::replace(state, new);
                old.analysis.stop();
                let items = state.gallery.count();
                Outcome::Reloaded { items }
            }
            Err(error) => {
                state.gallery.freeze(false);
                Outcome::Failed { problem: error.to_string(), hint: error.hint() }
            }
        }
    }
}
