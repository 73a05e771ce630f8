//! What can keep a server from starting.

/// The result of what happens before the first request.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault in what the caller gave. [`Error::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Of embeddings, their files and their search.
    #[error(transparent)]
    Retrieval(#[from] gallerist_retrieval::Error),
    /// Of the images.
    #[error(transparent)]
    Images(#[from] gallerist_data::Error),
    /// A gallery that compares rows by the inner product.
    #[error(
        "`{gallery}` compares rows by inner product; images are searched by the cosine or the Euclidean distance"
    )]
    Metric {
        /// The gallery.
        gallery: String,
    },
    /// Images that are not those of the gallery.
    #[error("none of the gallery's images is in `{images}`: `{path}` for one is missing")]
    OtherImages {
        /// What was opened.
        images: String,
        /// The first path of the gallery.
        path: String,
    },
    /// An option that cannot be met.
    #[error("{problem}")]
    Option {
        /// What was wanted and what was found.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The address, or the threads, could not be had.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried: `listen on 127.0.0.1:8080`.
        action: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// One line that says what to do, where there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Retrieval(error) => error.hint(),
            Self::Images(error) => error.hint(),
            Self::Metric { .. } => Some("build the index with `--metric cosine`".to_owned()),
            Self::OtherImages { .. } => Some(
                "give the folder or archive that the gallery was embedded from: --images PATH".to_owned(),
            ),
            Self::Option { hint, .. } => hint.clone(),
            Self::Io { source, .. } => (source.kind() == std::io::ErrorKind::AddrInUse)
                .then(|| "another program listens there; choose another --port".to_owned()),
        }
    }
}
