//! Checks of configured values.

use crate::error::Error;

/// Whether two values are in order and within limits.
pub(super) fn in_order([low, high]: [f32; 2], least: f32, most: f32) -> bool {
    least <= low && low <= high && high <= most
}

pub(super) fn shown([low, high]: [f32; 2]) -> String {
    format!("[{low}, {high}]")
}

pub(super) fn require(
    ok: bool,
    field: &'static str,
    wanted: &'static str,
    found: impl ToString,
) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(Error::Config { field, wanted, found: found.to_string() }) }
}
