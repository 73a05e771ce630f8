//! Blocks of rows and their products: what the kernels read and write.

/// Rows of the gallery that are multiplied at a time.
pub(crate) const BLOCK: usize = 64;
/// Queries that are multiplied at a time.
pub(crate) const QUERIES: usize = 4;

/// The products of a query with the rows of a block.
pub(crate) type Products = [f32; BLOCK];

/// The queries of a call: 1 or [`QUERIES`] rows of the same length.
pub(crate) enum Codes<'a> {
    Bf16 { queries: &'a [&'a [u16]], rows: &'a [u16] },
    Int8 { queries: &'a [&'a [i8]], rows: &'a [i8] },
}

/// What turns the products of a query with a block into keys.
pub(crate) struct Keys<'a> {
    /// Multiplies every product: the query's scale.
    pub(crate) scale: f32,
    /// Added to every key: the query's bias.
    pub(crate) bias: f32,
    /// A factor per row of the block.
    pub(crate) factors: &'a [f32; BLOCK],
    /// A bias per row of the block.
    pub(crate) biases: &'a [f32; BLOCK],
}
