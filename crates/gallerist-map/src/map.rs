//! The points of a map.

/// Points in the plane.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingMap {
    /// One point per row, in the order of the rows.
    pub points: Vec<[f32; 2]>,
    /// The method and its main option, for a caption: `t-SNE, perplexity 30`.
    pub method: String,
    /// Where the map differs from what the options ask for, one sentence each.
    pub notes: Vec<String>,
}
