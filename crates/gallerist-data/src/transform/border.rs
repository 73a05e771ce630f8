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

impl Border {
    /// The default for images of so many channels: white for 1 (drawings on paper), the edge's own pixels for 3.
    pub(super) fn of_channels(channels: usize) -> Border {
        match channels {
            1 => Border::Value(1.0),
            _ => Border::Replicate,
        }
    }
}
