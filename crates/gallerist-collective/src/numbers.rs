//! Numbers as bytes, in the order of this machine.

use bytemuck::Pod;

/// The bytes of numbers.
///
/// ```
/// use gallerist_collective::{bytes_of, numbers_of};
/// assert_eq!(numbers_of::<f32>(bytes_of(&[0.5f32, 2.0])), [0.5, 2.0]);
/// ```
pub fn bytes_of<T: Pod>(numbers: &[T]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

/// The numbers of bytes, which need not be aligned.
///
/// # Panics
///
/// If there are bytes left.
pub fn numbers_of<T: Pod>(bytes: &[u8]) -> Vec<T> {
    let mut numbers = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut numbers).copy_from_slice(bytes);
    numbers
}
