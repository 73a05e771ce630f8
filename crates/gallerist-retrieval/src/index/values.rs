//! Numbers that are in memory, or stay in a file.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::file::map::FileMap;

/// Types of which every four bytes are a value.
///
/// # Safety
/// Every bit pattern must be valid, and there must be no padding.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: every four bytes are an f32.
unsafe impl Plain for f32 {}
// SAFETY: every four bytes are a u32.
unsafe impl Plain for u32 {}

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

impl<T: Plain> Values<T> {
    /// The numbers in `range` of `map`, left where they are; `None` when they are not aligned, or
    /// of another byte order than this machine's.
    pub(super) fn mapped(map: &Arc<FileMap>, range: Range<usize>) -> Option<Self> {
        map.get(range.clone())
            .filter(|bytes| cfg!(target_endian = "little") && whole::<T>(bytes).is_some())?;
        Some(Self::Mapped(Arc::clone(map), range))
    }

    /// Refuses what was read so far if the file was changed or cut short meanwhile.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Owned(_) => Ok(()),
            Self::Mapped(map, _) => map.check(),
        }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::Owned(values) => values,
            Self::Mapped(map, range) => whole(&map[range.clone()]).expect("checked when it was mapped"),
        }
    }

    /// The numbers, to be changed.
    ///
    /// # Panics
    /// When they are mapped: whoever changes an index asks first whether it may.
    pub(super) fn owned(&mut self) -> &mut Vec<T> {
        match self {
            Self::Owned(values) => values,
            Self::Mapped(..) => panic!("a mapped index is not changed"),
        }
    }
}

fn whole<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: every bit pattern is a valid T; `align_to` takes care of alignment and length.
    let (before, values, after) = unsafe { bytes.align_to::<T>() };
    (before.is_empty() && after.is_empty()).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_bytes_are_numbers() {
        let numbers = [1.5f32, -2.0, 3.25];
        // A place that is aligned for sure.
        let mut bytes = [0u8; 32];
        let start = bytes.as_ptr().align_offset(4);
        for (at, number) in numbers.iter().enumerate() {
            bytes[start + 4 * at..][..4].copy_from_slice(&number.to_ne_bytes());
        }
        assert_eq!(whole::<f32>(&bytes[start..start + 12]), Some(&numbers[..]));
        assert_eq!(whole::<f32>(&bytes[start..start]), Some(&[][..]));
        assert!(whole::<f32>(&bytes[start..start + 11]).is_none());
        assert!(whole::<u32>(&bytes[start + 1..start + 13]).is_none());
    }
}
