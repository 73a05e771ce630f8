//! The kinds of index on this machine. A new one is a file and a line in the list at the end.

use std::path::Path;

use super::contract::Index;
use super::exact::ExactIndex;
use super::file::{self, Reader};
use super::hnsw::{HnswIndex, HnswOptions};
use super::info::IndexKind;
use super::local::LocalIndex;
use super::store::Store;
use crate::Result;
use crate::search::Metric;

/// Options of the kinds that have any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSettings {
    /// Of [`HnswIndex`].
    pub hnsw: HnswOptions,
}

type Create = fn(usize, Metric, &IndexSettings) -> Result<Box<dyn Index>>;

struct Entry {
    kind: IndexKind,
    create: Create,
    restore: fn(Store, &Reader) -> Result<Box<dyn Index>>,
}

impl Entry {
    const fn of<T: LocalIndex + 'static>(create: Create) -> Self {
        Self { kind: T::INDEX_KIND, create, restore: |store, file| boxed(T::restore(store, file)) }
    }
}

fn boxed(index: Result<impl Index + 'static>) -> Result<Box<dyn Index>> {
    Ok(Box::new(index?))
}

fn entry(name: &str) -> Option<&'static Entry> {
    KINDS.iter().find(|entry| entry.kind.name == name)
}

/// The kinds of index on this machine.
///
/// ```
/// # use gallerist_retrieval::index::index_kinds;
/// assert_eq!(index_kinds().map(|kind| kind.name).collect::<Vec<_>>(), ["exact", "hnsw"]);
/// ```
pub fn index_kinds() -> impl ExactSizeIterator<Item = IndexKind> {
    KINDS.iter().map(|entry| entry.kind)
}

/// An empty index of a kind of this machine, in memory.
///
/// ```
/// use gallerist_retrieval::{index::{IndexSettings, create_index, index_kinds}, search::Metric};
/// for kind in index_kinds() {
///     let index = create_index(kind, 128, Metric::Cosine, &IndexSettings::default())?;
///     assert_eq!(index.info()?.kind, kind);
/// }
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`](crate::Error::Option) for 0 dimensions and for options out of range,
/// [`Error::Unsupported`](crate::Error::Unsupported) for a kind that [`index_kinds`] does not list.
pub fn create_index(
    kind: IndexKind,
    dimensions: usize,
    metric: Metric,
    settings: &IndexSettings,
) -> Result<Box<dyn Index>> {
    match entry(kind.name) {
        Some(entry) => (entry.create)(dimensions, metric, settings),
        None => Err(crate::Error::Unsupported {
            what: "an index on this machine",
            index: format!("the kind `{}`", kind.name),
        }),
    }
}

/// Reads an index of any kind; with `mapped` its rows stay in the file, and it cannot be changed.
///
/// # Errors
/// As [`ExactIndex::open`] and [`ExactIndex::map`].
pub fn open_index(path: impl AsRef<Path>, mapped: bool) -> Result<Box<dyn Index>> {
    file::read(path.as_ref(), mapped, |kind, store, file| match entry(kind) {
        Some(entry) => (entry.restore)(store, file),
        None => Err(file.refuse("its kind is unknown")),
    })
}

/// The list, in the order in which options show it, and what every kind on the list can do.
macro_rules! index_kinds {
    ($($index:ty: $create:expr;)*) => {
        static KINDS: &[Entry] = &[$(Entry::of::<$index>($create)),*];

        $(impl $index {
            /// Reads an index of this kind that was [saved](Index::save).
            ///
            /// # Errors
            /// [`Error::Io`](crate::Error::Io), and [`Error::Format`](crate::Error::Format) for a file that is cut
            /// short, damaged, or no index of this kind.
            pub fn open(path: impl AsRef<Path>) -> Result<Self> {
                read(path.as_ref(), false)
            }

            /// Reads an index of this kind whose rows stay in the file, which may be larger than memory. It cannot
            /// be changed. All of the file is read once, to check it.
            ///
            /// Replacing the file, as [`save`](Index::save) does, changes nothing for this index. After the file
            /// was written to or cut short in place, every search and every look-up of items is refused with
            /// [`Error::Changed`](crate::Error::Changed); see [`MappedMatrix`](crate::file::MappedMatrix).
            ///
            /// # Errors
            /// As [`open`](Self::open).
            pub fn map(path: impl AsRef<Path>) -> Result<Self> {
                read(path.as_ref(), true)
            }
        })*
    };
}

fn read<T: LocalIndex>(path: &Path, mapped: bool) -> Result<T> {
    file::read(path, mapped, |kind, store, file| {
        let wanted = T::INDEX_KIND;
        if kind != wanted.name {
            let found = entry(kind).map_or("an unknown kind", |entry| entry.kind.noun);
            return Err(file::refuse(path, format!("wanted {}, found {found}", wanted.noun), None));
        }
        T::restore(store, file)
    })
}

index_kinds! {
    ExactIndex: |dimensions, metric, _| boxed(ExactIndex::new(dimensions, metric));
    HnswIndex: |dimensions, metric, settings| boxed(HnswIndex::new(dimensions, metric, settings.hnsw));
}
