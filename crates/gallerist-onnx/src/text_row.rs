//! What a text tower returns.

/// The longest text that is read, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 16;

/// The most tokens of a text.
#[cfg(feature = "engine")]
pub(crate) const MAX_TOKENS: usize = 1 << 16;

/// The row of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextRow {
    /// The row, as the model returns it.
    pub row: Vec<f32>,
    /// The number of tokens that the text was cut to; `None` for a text that fits.
    pub cut_to: Option<usize>,
}
