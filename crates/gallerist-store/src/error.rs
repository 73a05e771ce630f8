//! What can go wrong with a store.

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault of a store, or of its address. [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{address}`: {problem}")]
pub struct Error {
    /// What was tried: `open`, `read`, `write`, `list`, `remove`.
    pub action: &'static str,
    /// The address of the store or the object.
    pub address: String,
    /// What the store answered.
    pub problem: String,
    hint: Option<String>,
    is_too_large: bool,
}

impl Error {
    pub(crate) fn new(
        action: &'static str,
        address: impl Into<String>,
        problem: impl Into<String>,
        hint: Option<&str>,
    ) -> Self {
        Error {
            action,
            address: address.into(),
            problem: problem.into(),
            hint: hint.map(str::to_owned),
            is_too_large: false,
        }
    }

    #[cfg(feature = "clients")]
    pub(crate) fn too_large(address: String, problem: String) -> Self {
        Error { is_too_large: true, ..Error::new("read", address, problem, None) }
    }

    /// Whether an object has more bytes than are read: the store itself has no fault.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}
