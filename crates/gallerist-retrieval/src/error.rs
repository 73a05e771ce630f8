//! The errors that a caller can cause, each with what was wanted, what was found and where.

use std::io;
use std::path::{Path, PathBuf};

use gallerist_util::text::shell_word;

use crate::fingerprint;
use crate::index::ItemName;
use crate::search::Metric;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error in the caller's input. [`Error::hint`] says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to read or write.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was attempted: `read`, `write`, `sweep`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file with another format or wrong content: truncated, or changed on disk.
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
    /// A column that a set cannot have.
    #[error("column `{name}`: {problem}")]
    Column {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A condition that cannot be read, or that does not fit the columns.
    #[error("the condition is wrong at character {character}: {problem}{}", pointed(condition, *character))]
    Condition {
        /// The condition; empty if it is long.
        condition: String,
        /// The place, from 1.
        character: usize,
        /// What is wrong.
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
    /// Images, or a folder, where a file of embeddings is wanted.
    #[error("cannot read `{}` as embeddings: it is {what}", path.display())]
    NotEmbeddings {
        /// The folder or file.
        path: PathBuf,
        /// `a folder`, `an archive of images`, `a table`.
        what: &'static str,
    },
    /// A number of values that does not fill rows x columns.
    #[error("a matrix of {rows} x {cols} needs {} values, {found} given", display_product(*rows, *cols))]
    Shape {
        /// The number of rows.
        rows: usize,
        /// The number of columns.
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
    /// Rows of zeros, compared by the cosine.
    #[error(
        "{what}: row {row} is all zeros{}; the cosine of such a row is not defined",
        as_are(*count)
    )]
    ZeroRows {
        /// Which matrix.
        what: &'static str,
        /// The first such row, from 0.
        row: usize,
        /// How many there are.
        count: usize,
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
        /// The name of the values of which each row needs one.
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
    /// A metric whose value is NaN or infinite.
    #[error("the metric `{name}` is {value} for query {query}; every value must be finite")]
    NonFiniteMetric {
        /// The metric.
        name: String,
        /// The query, from 0.
        query: usize,
        /// The value.
        value: f64,
    },
    /// An evaluation that needs information that the images do not have.
    #[error("{what} {problem}")]
    Protocol {
        /// The request.
        what: String,
        /// What it needs and what was found.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Items with another number of dimensions than the index.
    #[error("the items have {items} dimensions, the index has {index}")]
    ItemDimensions {
        /// Columns of the items.
        items: usize,
        /// Dimensions of the index.
        index: usize,
    },
    /// One id for two items.
    #[error("rows {first} and {second} of the items {}", same_id(*id, path.as_deref()))]
    DuplicateId {
        /// The id.
        id: u64,
        /// The first row that has it.
        first: usize,
        /// The second.
        second: usize,
        /// The path of the second, where it has one.
        path: Option<String>,
    },
    /// An item that would take the place of another.
    #[error("{new} would replace {old}, which has {difference}{}", others(*count))]
    Replaces {
        /// How many would replace another.
        count: usize,
        /// The first of them.
        new: Box<ItemName>,
        /// The item that the index holds.
        old: Box<ItemName>,
        /// The difference: what the existing item has and the new one lacks.
        difference: String,
    },
    /// An index whose items have other ids than those of their paths, to which items are to be added under the ids of theirs.
    #[error(
        "the index has ids of its own (item {id} is `{path}`): items that it has already could not be recognized"
    )]
    OwnIds {
        /// The id of one of its items.
        id: u64,
        /// The path of that item.
        path: String,
    },
    /// A change to an index that only reads.
    #[error("the index `{}` is mapped and cannot be changed", path.display())]
    ReadOnly {
        /// Its file.
        path: PathBuf,
    },
    /// Something that an index of its kind, or in its place, cannot do.
    #[error("{index} has no support for {what}")]
    Unsupported {
        /// The request.
        what: &'static str,
        /// The kind or the place of the index.
        index: String,
    },
    /// A file that was changed or cut short while it was mapped.
    #[error("`{}` was changed while it was in use", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A fault of the database that stores an index, or of an object store: unreachable, request refused, unknown answer.
    #[error("{source}")]
    Remote {
        /// The error of the crate that speaks to it.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Embeddings of two models in one gallery.
    #[error("{}", models(first.as_deref(), other.as_deref()))]
    Models {
        /// The fingerprint that the first set names.
        first: Option<String>,
        /// The fingerprint that another set names.
        other: Option<String>,
    },
    /// Rows that are compared in different ways in one gallery.
    #[error("some rows are to be compared by {first}, others by {other}: their lengths differ")]
    Metrics {
        /// The metric that the first set declares.
        first: Metric,
        /// The metric that another set declares.
        other: Metric,
    },
    /// A name that no metric has.
    #[error("a metric must be one of {known}, `{found}` given")]
    UnknownMetric {
        /// The names of all metrics.
        known: String,
        /// The name given.
        found: String,
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

/// The condition with a mark below the place, where both fit into a line.
fn pointed(condition: &str, character: usize) -> String {
    match condition.is_empty() || condition.chars().any(char::is_control) {
        true => String::new(),
        false => format!("\n  {condition}\n  {}^", " ".repeat(character - 1)),
    }
}

/// The file that is probably meant by a run directory, or the command that embeds images.
fn embeddings_of(path: &Path) -> String {
    let has = |name: &str| path.join(name).is_file();
    let files: Vec<&str> =
        ["embeddings.safetensors", "query.safetensors", "gallery.safetensors", "images.safetensors"]
            .into_iter()
            .filter(|n| has(n))
            .collect();
    match files.is_empty() {
        false => {
            let files: Vec<String> = files.iter().map(|name| path.join(name).display().to_string()).collect();
            format!("name the file of this run: {}", files.join(" or "))
        }
        true => format!(
            "to embed images: gallerist embed --run RUN --images {} --out FILE.safetensors",
            shell_word(&path.to_string_lossy())
        ),
    }
}

fn same_id(id: u64, path: Option<&str>) -> String {
    match path {
        Some(path) => format!("are both `{path}` of one source (id {id})"),
        None => format!("have the same id {id}"),
    }
}

fn as_are(count: usize) -> String {
    if count > 1 { format!(", as are {} more", count - 1) } else { String::new() }
}

fn others(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!("\n  in all {count} items would replace others"),
    }
}

fn models(first: Option<&str>, other: Option<&str>) -> String {
    if let (Some(first), Some(other)) = (first, other)
        && fingerprint::differ_in_length(first, other)
    {
        return "some rows are scaled to length 1, others are not: their lengths differ".to_owned();
    }
    let unknown = || "an unknown network".to_owned();
    let first = first.map_or_else(unknown, |first| format!("the network {}", fingerprint::shown(first)));
    let other = other.map_or_else(unknown, fingerprint::shown);
    format!("one set was embedded with {first}, another with {other}")
}

fn display_product(rows: usize, cols: usize) -> String {
    match rows.checked_mul(cols) {
        Some(values) => values.to_string(),
        None => "more than 2^64".to_owned(),
    }
}

impl From<gallerist_store::Error> for Error {
    fn from(error: gallerist_store::Error) -> Self {
        Self::Remote { hint: error.hint(), source: Box::new(error) }
    }
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// One line that says how to fix the error, if the caller can fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NonFiniteMetric { .. } => Some(
                "let RankMetric::value return a finite number for every query, or leave the metric out"
                    .into(),
            ),
            Self::Io { source, action, path } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some(format!("free some space; what `{}` held before is untouched", path.display()))
                }
                io::ErrorKind::NotFound if path.to_str().is_some_and(gallerist_store::is_address) => Some(
                    "embeddings and indexes are files of this machine: copy it here first; only images and shards are read \
                     from object stores"
                        .to_owned(),
                ),
                io::ErrorKind::NotFound if path.to_str().and_then(gallerist_util::text::address).is_some() => Some(
                    "embeddings and indexes are files of this machine; the address of a collection is a gallery of `search`, `serve`, \
                     `evaluate --query` and the commands of `index`"
                        .to_owned(),
                ),
                io::ErrorKind::NotFound if *action == "write" => Some("create the folder first".to_owned()),
                io::ErrorKind::NotFound => gallerist_util::text::similar_path(path),
                _ => gallerist_util::files::NotAFile::of(source).map(gallerist_util::files::NotAFile::hint),
            },
            Self::Format { hint, .. }
            | Self::Protocol { hint, .. }
            | Self::Column { hint, .. }
            | Self::Condition { hint, .. } => hint.clone(),
            Self::NotEmbeddings { path, .. } => Some(embeddings_of(path)),
            Self::Extension { .. } => Some("rename the file, or choose another format".to_owned()),
            Self::NonFinite { .. } => Some(
                "a network that diverged writes such rows; embed again from an earlier checkpoint".to_owned(),
            ),
            Self::TooLong { .. } => {
                Some("normalise the rows, or divide all of them by one constant".to_owned())
            }
            Self::ZeroRows { .. } => {
                Some("leave such rows out, or compare the rows as they are: --metric euclidean".to_owned())
            }
            Self::Dimensions { .. } => Some("embed queries and gallery with the same model".to_owned()),
            Self::Models { first: Some(first), other: Some(other) }
                if fingerprint::differ_in_length(first, other) =>
            {
                Some("embed all of them with the same `embed --normalize`".to_owned())
            }
            Self::Models { .. } => Some(
                "distances between their rows mean nothing; embed all of them with one network".to_owned(),
            ),
            Self::Metrics { .. } => {
                Some("embed all of them with the same `embed --normalize`, or with one run".to_owned())
            }
            Self::Count { what: "labels", .. } => {
                Some("give the labels that were written with these embeddings".to_owned())
            }
            Self::ItemDimensions { .. } => Some("embed the items with the model of the index".to_owned()),
            Self::DuplicateId { .. } => Some("give every item a path or an id of its own".to_owned()),
            Self::Replaces { old, .. } => Some(match old.source {
                Some(_) => "give --replace to put the new items in the place of the old".to_owned(),
                None => "its file was written before sources were kept: give --replace if it is the same \
                         image, or build a new index"
                    .to_owned(),
            }),
            Self::OwnIds { .. } => Some(
                "build it again with ids of the paths (without --ids), or give --ids rows, which adds every row as a new item"
                    .to_owned(),
            ),
            Self::ReadOnly { .. } => Some("open the index without mapping it".to_owned()),
            Self::Changed { .. } => Some(
                "open it again, or give the command again; to replace a file in use, write a new one and rename it over the old"
                    .to_owned(),
            ),
            Self::Remote { hint, .. } => hint.clone(),
            Self::Shape { .. }
            | Self::Count { .. }
            | Self::Empty { .. }
            | Self::TooManyRows { .. }
            | Self::Unsupported { .. }
            | Self::UnknownMetric { .. }
            | Self::Option { .. } => None,
        }
    }
}
