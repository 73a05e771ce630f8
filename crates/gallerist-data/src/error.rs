//! The errors of the crate.

use std::fmt;
use std::io;
use std::sync::Arc;

/// A fault of the input: a file, a folder, a manifest or a configuration.
///
/// The text says what was wanted, what was found and where; [`Error::hint`]
/// says what to do about it, where there is something to say.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that another process of a distributed run has found.
    #[error("{message}")]
    OfRank {
        /// Its text.
        message: String,
    },
    /// The operating system refused an operation.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// What was tried: `read`, `open`, `list`.
        action: &'static str,
        /// The file or folder.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A source without a single image.
    #[error("no images in `{path}`{}", problem.as_deref().map(|problem| format!("; {problem}")).unwrap_or_default())]
    NoImages {
        /// The folder, archive or manifest.
        path: String,
        /// What the source has instead of images, or why they are not in the set.
        problem: Option<String>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A source whose layout does not say which image belongs to which class.
    #[error("cannot tell the classes of `{path}`: {problem}")]
    Layout {
        /// The folder or archive.
        path: String,
        /// What contradicts what.
        problem: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A manifest that cannot be used.
    #[error("manifest `{path}`{}: {problem}", line_note(*line))]
    Manifest {
        /// The manifest.
        path: String,
        /// One-based line, where the fault has one.
        line: Option<u64>,
        /// What is wrong.
        problem: String,
    },
    /// Corrections of labels that cannot be used.
    #[error("corrections `{path}`, line {line}: {problem}")]
    Corrections {
        /// The file.
        path: String,
        /// One-based line.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// The answers of a one-shot run that cannot be used.
    #[error("answers `{path}`{}: {problem}", line_note(*line))]
    Answers {
        /// The list of answers.
        path: String,
        /// One-based line, where the fault has one.
        line: Option<u64>,
        /// What is wrong.
        problem: String,
    },
    /// An annotation file of a published data set that cannot be used.
    #[error("annotations `{path}`{}: {problem}", line_note(*line))]
    Annotation {
        /// The file.
        path: String,
        /// One-based line, where the file has lines.
        line: Option<u64>,
        /// What is wrong.
        problem: String,
    },
    /// An image source that cannot be used.
    #[error("image source `{name}`: {problem}")]
    Source {
        /// The source.
        name: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A fault of an object store.
    #[error(transparent)]
    Store(#[from] gallerist_store::Error),
    /// An unknown name of a layout.
    #[error("there is no layout `{name}`; there are {known}")]
    UnknownLayout {
        /// The request.
        name: String,
        /// The known names.
        known: String,
    },
    /// An archive that cannot be used.
    #[error("archive `{path}`: {problem}")]
    Archive {
        /// The archive.
        path: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// A file that is no image, or a broken one.
    #[error("cannot decode `{path}`: {problem}")]
    Decode {
        /// The file.
        path: String,
        /// Why not.
        problem: String,
    },
    /// An image was not decoded by its deadline.
    #[error("decoding `{path}` took longer than it may")]
    DecodeDeadline {
        /// The file.
        path: String,
    },
    /// An image that has another content than when it was read first.
    #[error("`{path}` has changed since it was read first")]
    Changed {
        /// The file.
        path: String,
    },
    /// Something needs class labels, and the set has none.
    #[error("{purpose} needs class labels, and `{path}` has none")]
    NoLabels {
        /// The request.
        purpose: &'static str,
        /// The set.
        path: String,
    },
    /// A filter or limit that leaves nothing, or that the set cannot serve.
    #[error("cannot select from `{path}`: {problem}")]
    Selection {
        /// The set.
        path: String,
        /// What was asked and what is there.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A sampler cannot form a single batch.
    #[error("cannot form batches of {wanted} from `{path}`\n  {found}")]
    Batches {
        /// For instance `32 classes x 4 images`.
        wanted: String,
        /// The set.
        path: String,
        /// What the set has.
        found: String,
        /// The nearest settings that work.
        hint: Option<String>,
    },
    /// A sampler has formed batches that cannot be trained.
    #[error("the sampler `{name}`, epoch {epoch}: {problem}")]
    Sampler {
        /// The sampler's name.
        name: String,
        /// The epoch, from 0.
        epoch: u64,
        /// What is wrong with the batches.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A configuration value out of its range.
    #[error("`{field}` must be {wanted}, not {found}")]
    Config {
        /// The field of the run file.
        field: &'static str,
        /// The permitted values.
        wanted: &'static str,
        /// The value found.
        found: String,
    },
    /// Every image that could replace a broken one is broken as well.
    #[error("all {count} images of class `{class}` in `{path}` are broken; the first: {first}")]
    BrokenClass {
        /// Images in the class.
        count: usize,
        /// The class.
        class: String,
        /// The set.
        path: String,
        /// The first failure.
        first: Arc<Error>,
    },
    /// A loader worker panicked: a fault of this program, not of the input.
    #[error("a loader thread panicked in batch {batch}: {message}")]
    Panic {
        /// Index of the batch in the plan.
        batch: u64,
        /// The panic's message.
        message: String,
    },
    /// A broken image where none is tolerated.
    #[error(transparent)]
    Shared(Arc<Error>),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        Error::Io { action, path: path.into(), source }
    }

    /// A folder or archive without a file that ends like an image. `unread` names its pictures of formats that are not read.
    pub(crate) fn no_images(path: &str, skipped: usize, unread: Option<String>) -> Self {
        let names = "images end in .png, .jpg, .jpeg, .jpe, .jfif, .gif, .bmp, .webp, .tif or .tiff";
        let hint = match unread {
            None => names.to_owned(),
            Some(_) => format!("convert them to JPEG or PNG; {names}"),
        };
        let skipped = match skipped {
            0 => None,
            1 => Some("1 other file was skipped".to_owned()),
            n => Some(format!("{n} other files were skipped")),
        };
        let problem = unread.map(|pictures| format!("it has {pictures}")).or(skipped);
        Error::NoImages { path: path.to_owned(), problem, hint: Some(hint) }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Layout { hint, .. } => Some((*hint).to_owned()),
            Error::Manifest { .. } => Some(
                "a manifest starts with the header `path,label` and may have the columns \
                 `camera` and `split`; paths are relative to the manifest"
                    .to_owned(),
            ),
            Error::Corrections { .. } => Some(
                "a row has an image of this set (or only a label, for all its images) and the action `relabel` with a \
                 new_label, `drop`, or none; a row for another set belongs into another file"
                    .to_owned(),
            ),
            Error::Answers { .. } => Some(
                "a line has the paths of a test image and of the training image of its class: \
                 `run01/test/item01.png run01/training/class08.png`"
                    .to_owned(),
            ),
            Error::Archive { hint, .. } => hint.map(str::to_owned),
            Error::NoLabels { .. } => Some(
                "put the images of each class into a folder of their own, or write a manifest \
                 with the header `path,label`"
                    .to_owned(),
            ),
            Error::NoImages { hint, .. }
            | Error::Selection { hint, .. }
            | Error::Batches { hint, .. }
            | Error::Sampler { hint, .. }
            | Error::Source { hint, .. } => hint.clone(),
            Error::Store(error) => error.hint(),
            Error::BrokenClass { .. } => Some("repair these files, or leave the class out".to_owned()),
            Error::Shared(inner) => Some(inner.hint().unwrap_or_else(|| {
                "repair the file or leave it out; without --strict (`data.strict` of the run file), images that cannot be \
                 read are reported, and the others are used"
                    .to_owned()
            })),
            Error::Annotation { .. } => {
                Some("unpack or download the data set again; the file is cut or was changed".to_owned())
            }
            Error::Io { source, path, .. } if source.kind() == io::ErrorKind::NotFound => {
                gallerist_util::text::similar_path(path.as_ref())
            }
            Error::Io { .. }
            | Error::Decode { .. }
            | Error::DecodeDeadline { .. }
            | Error::Changed { .. }
            | Error::Config { .. }
            | Error::UnknownLayout { .. }
            | Error::OfRank { .. }
            | Error::Panic { .. } => None,
        }
    }
}

/// An image that could not be read or decoded.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Index of the image in its [`ImageSet`](crate::ImageSet).
    pub item: u32,
    /// Why, with the file's name.
    pub error: Arc<Error>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

fn line_note(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}
