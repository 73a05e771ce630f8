//! The faults a caller can cause, each with what was wanted, what was found and where.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault in what the caller gave. [`Error::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to read or write.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was attempted: `read`, `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file that is not what it should be: another format, cut short, changed on disk.
    #[error("cannot read `{}` as {format}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: &'static str,
        /// What was wanted and what was found.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A file name whose extension names no known format.
    #[error("cannot tell the format of `{}`: wanted {wanted}", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
        /// The extensions that are known here.
        wanted: &'static str,
    },
    /// A number of values that does not fill rows x columns.
    #[error("a matrix of {rows} x {cols} needs {} values, {found} given", display_product(*rows, *cols))]
    Shape {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        cols: usize,
        /// Values given.
        found: usize,
    },
    /// A NaN or an infinity.
    #[error("{what}: row {row}, column {col} is {value}; every value must be finite")]
    NonFinite {
        /// Which matrix: `queries`, `gallery`, `embeddings`.
        what: &'static str,
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        col: usize,
        /// The value.
        value: f32,
    },
    /// A row whose squared length leaves the range of f32, so that its scores would overflow.
    #[error(
        "{what}: the squared length of row {row} is {squared_length:.1e}; at most 1e37 can be scored in f32"
    )]
    TooLong {
        /// Which matrix.
        what: &'static str,
        /// The row, from 0.
        row: usize,
        /// Its squared length.
        squared_length: f64,
    },
    /// Queries and gallery of different width.
    #[error("queries have {queries} dimensions, the gallery has {gallery}")]
    Dimensions {
        /// Columns of the queries.
        queries: usize,
        /// Columns of the gallery.
        gallery: usize,
    },
    /// A list that must have one entry per row and has not.
    #[error("{found} {what} for {wanted} {rows}")]
    Count {
        /// What there are too many or too few of: `labels`, `paths`, `cameras`.
        what: &'static str,
        /// Of what there must be one each.
        rows: &'static str,
        /// Entries wanted.
        wanted: usize,
        /// Entries found.
        found: usize,
    },
    /// Nothing to search in, or nothing to search for.
    #[error("{what} has no rows")]
    Empty {
        /// Which matrix.
        what: &'static str,
    },
    /// More rows than an index of 32 bits can name.
    #[error("{what} has {rows} rows; at most {} can be indexed", u32::MAX - 1)]
    TooManyRows {
        /// Which matrix.
        what: &'static str,
        /// Its rows.
        rows: usize,
    },
    /// An option outside its range.
    #[error("{option} must be {wanted}, {found} given")]
    Option {
        /// The option.
        option: &'static str,
        /// Its range.
        wanted: &'static str,
        /// The value given.
        found: String,
    },
}

fn display_product(rows: usize, cols: usize) -> String {
    match rows.checked_mul(cols) {
        Some(values) => values.to_string(),
        None => "more than 2^64".to_owned(),
    }
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// One line that says what to do, where there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { source, action, path } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some(format!("free some space; what `{}` held before is untouched", path.display()))
                }
                io::ErrorKind::NotFound if *action == "write" => Some("create the folder first".to_owned()),
                _ => None,
            },
            Self::Format { hint, .. } => hint.clone(),
            Self::Extension { .. } => Some("rename the file, or choose another format".to_owned()),
            Self::NonFinite { .. } => Some(
                "a network that diverged writes such rows; embed again from an earlier checkpoint".to_owned(),
            ),
            Self::TooLong { .. } => {
                Some("normalise the rows, or divide all of them by one constant".to_owned())
            }
            Self::Dimensions { .. } => Some("embed queries and gallery with the same model".to_owned()),
            Self::Count { what: "labels", .. } => {
                Some("give the labels that were written with these embeddings".to_owned())
            }
            Self::Shape { .. }
            | Self::Count { .. }
            | Self::Empty { .. }
            | Self::TooManyRows { .. }
            | Self::Option { .. } => None,
        }
    }
}
