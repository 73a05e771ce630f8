//! The border of a warped image.

use serde::{Deserialize, Serialize};

/// The values outside of a warped image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Border {
    /// The nearest pixel of the edge.
    Replicate,
    /// One brightness, from 0 (black) to 1 (white), before inversion.
    Value(f32),
}
