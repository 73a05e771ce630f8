//! Bytes of a file as numbers, without a copy.

use bytemuck::AnyBitPattern;

/// `bytes` as little-endian numbers; `None` when they cannot be used in place: they are not aligned, not
/// a whole number of them, or the machine has another byte order.
pub(crate) fn numbers<T: AnyBitPattern>(bytes: &[u8]) -> Option<&[T]> {
    if bytes.is_empty() {
        return Some(&[]);
    }
    let usable = size_of::<T>() == 1 || cfg!(target_endian = "little");
    bytemuck::try_cast_slice(bytes).ok().filter(|_| usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_bytes_are_numbers() {
        let values = [1.5f32, -2.0, 3.25];
        // A place that is aligned for sure.
        let mut bytes = [0u8; 32];
        let start = bytes.as_ptr().align_offset(4);
        for (at, value) in values.iter().enumerate() {
            bytes[start + 4 * at..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        let little = cfg!(target_endian = "little");
        assert_eq!(numbers::<f32>(&bytes[start..start + 12]), little.then_some(&values[..]));
        assert_eq!(numbers::<f32>(&bytes[start..start]), Some(&[][..]));
        assert!(numbers::<f32>(&bytes[start..start + 11]).is_none());
        assert!(numbers::<u32>(&bytes[start + 1..start + 13]).is_none());
        assert_eq!(numbers::<f32>(&bytes[start + 1..start + 1]), Some(&[][..]));
        assert_eq!(numbers::<i8>(&bytes[start + 1..start + 4]).map(<[i8]>::len), Some(3));
    }
}
