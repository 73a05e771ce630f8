//! The largest network.

/// The largest number of a network's parameters: 4 GiB in f32.
pub const MAX_PARAMETERS: usize = 1 << 30;

/// `13,180`, with its size in GiB of f32 where that is 0.1 or more.
pub fn numbers_in_words(numbers: u128) -> String {
    let grouped = gallerist_util::text::grouped(numbers);
    let gib = numbers as f64 * 4.0 / (1u64 << 30) as f64;
    if gib < 0.1 { grouped } else { format!("{grouped} ({gib:.1} GiB in f32)") }
}
