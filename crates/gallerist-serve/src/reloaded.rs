//! What became of a gallery that was to be opened again.

/// A gallery of a server after [`Reload::now`](crate::Reload::now).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Its name on the server.
    pub gallery: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a gallery that was to be opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Requests are answered with the new gallery.
    Reloaded {
        /// The number of its items.
        items: usize,
    },
    /// Its files are the same.
    Unchanged,
    /// It cannot be opened, or its tags cannot be read. The old gallery stays in service.
    Failed {
        /// Why.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
}
