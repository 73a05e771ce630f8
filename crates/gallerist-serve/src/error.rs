//! Errors before a server starts.

/// The result of preparing and running a server.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a server cannot start. [`Error::hint`] says how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of embeddings, their files or their search.
    #[error(transparent)]
    Retrieval(#[from] gallerist_retrieval::Error),
    /// An error of the images.
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
    /// None of the images belongs to the gallery.
    #[error("none of the gallery's images is in `{images}`: `{path}` for one is missing")]
    OtherImages {
        /// The source of the images.
        images: String,
        /// The path of the first item of the gallery.
        path: String,
    },
    /// An option does not fit.
    #[error("{problem}")]
    Option {
        /// What was wanted and what was found.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A gallery that is being opened again cannot be changed.
    #[error("the gallery is being opened again, and cannot be changed at this moment")]
    Reopening,
    /// The file of a gallery is not the one that was read, so that a change would overwrite what another program wrote.
    #[error(
        "the file of the gallery was changed or moved since the server read it, so that it is not overwritten"
    )]
    Outdated,
    /// The system does not provide the address or the threads.
    #[error("cannot {action}: {source}")]
    Io {
        /// The failed action: `listen on 127.0.0.1:8080`.
        action: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl Error {
    /// One line that says how to fix the error, if the user can fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Retrieval(error) => error.hint(),
            Self::Images(error) => error.hint(),
            Self::Metric { .. } => Some("build the index with `--metric cosine`".to_owned()),
            Self::OtherImages { .. } => Some(
                "give the folder or archive that the gallery was embedded from: --images PATH".to_owned(),
            ),
            Self::Option { hint, .. } => hint.clone(),
            Self::Reopening => Some("try again in a few seconds".to_owned()),
            Self::Outdated => Some(
                "open the file again, by SIGHUP or POST /api/v1/reload, and repeat the change".to_owned(),
            ),
            Self::Io { source, .. } => (source.kind() == std::io::ErrorKind::AddrInUse)
                .then(|| "another program listens there; choose another --port".to_owned()),
        }
    }
}
