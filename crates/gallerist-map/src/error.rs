//! The errors of this crate.

/// Why no map could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The rows hold a NaN or an infinity.
    #[error(transparent)]
    Rows(#[from] gallerist_retrieval::Error),
    /// There are fewer rows than a neighbourhood needs.
    #[error("t-SNE needs at least {wanted} rows, found {found}")]
    TooFew {
        /// The smallest number of rows.
        wanted: usize,
        /// The number of rows.
        found: usize,
    },
    /// An option is out of its range.
    #[error("{option} must be {wanted}, found {found}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// Its valid range.
        wanted: &'static str,
        /// Its value.
        found: String,
    },
}

impl MapError {
    /// What the user can do about the error, if anything.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Rows(error) => error.hint(),
            Self::TooFew { .. } => {
                Some("use principal components (`pca`), which need no neighbours".to_owned())
            }
            Self::Option { .. } => None,
        }
    }
}
