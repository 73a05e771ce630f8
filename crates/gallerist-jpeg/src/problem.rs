//! Why a file is refused, and how a walk is ended.

/// Why a file is refused.
pub(crate) type Problem = &'static str;

pub(crate) const CUT: Problem = "truncated JPEG: it ends before its end marker";
pub(crate) const HEADER: Problem = "corrupt JPEG: a broken header";
pub(crate) const TOO_SHORT: Problem = "corrupt JPEG: a scan ends before its last block";
pub(crate) const TOO_LONG: Problem = "corrupt JPEG: data are left over after the last block of a scan";
pub(crate) const CODE: Problem = "corrupt JPEG: a code that its tables do not have";
pub(crate) const RUN: Problem = "corrupt JPEG: a run of coefficients beyond the end of its block";
pub(crate) const VALUE: Problem = "corrupt JPEG: a coefficient that no picture has";
pub(crate) const RESTART: Problem = "corrupt JPEG: a restart marker is missing or out of order";
pub(crate) const TWICE: Problem = "corrupt JPEG: a component is coded twice";
pub(crate) const TABLES: Problem = "corrupt JPEG: more than 1,000 tables";
/// The [`Interrupt`] has ended the walk.
pub(crate) const STOPPED: Problem = "stopped";

/// Ends a walk that takes too long.
pub trait Interrupt {
    /// Called for each segment of the headers; true ends the walk.
    fn at_segment(&self) -> bool;

    /// Called for each row of blocks; true ends the walk.
    fn at_row(&self) -> bool;
}

/// No limit on the time.
pub struct Never;

impl Interrupt for Never {
    fn at_segment(&self) -> bool {
        false
    }

    fn at_row(&self) -> bool {
        false
    }
}
