//! Numbers that are in memory, or stay in a file.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::AnyBitPattern;

use crate::Result;
use crate::file::map::{FileMap, numbers};

/// Numbers in memory, or in a part of a mapped file.
pub(super) enum Values<T> {
    Owned(Vec<T>),
    Mapped(Arc<FileMap>, Range<usize>),
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self::Owned(Vec::new())
    }
}

impl<T: AnyBitPattern> Values<T> {
    /// The numbers in `range` of `map`, left where they are; `None` when they are not aligned, or
    /// of another byte order than this machine's.
    pub(super) fn mapped(map: &Arc<FileMap>, range: Range<usize>) -> Option<Self> {
        numbers::<T>(map.get(range.clone())?)?;
        Some(Self::Mapped(Arc::clone(map), range))
    }

    /// Returns an error if the file was changed or truncated, so that the data read so far are invalid.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Owned(_) => Ok(()),
            Self::Mapped(map, _) => map.check(),
        }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::Owned(values) => values,
            Self::Mapped(map, range) => numbers(&map[range.clone()]).expect("checked when it was mapped"),
        }
    }

    /// The numbers, to be changed.
    ///
    /// # Panics
    /// When they are mapped: callers check first that the index may be changed.
    pub(super) fn owned(&mut self) -> &mut Vec<T> {
        match self {
            Self::Owned(values) => values,
            Self::Mapped(..) => panic!("a mapped index is not changed"),
        }
    }
}
