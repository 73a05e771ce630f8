//! Curves of a run: named series of numbers against the step.
//!
//! This module writes the SVG itself. Plotting libraries write fixed colours and letter sizes into a picture; these
//! charts take their colours from the page (light and dark), keep the size of lines and letters on a phone, and contain
//! their values, so that the reader can point at them.

mod data;
mod draw;
mod lines;
mod log;
mod scale;
mod smooth;

pub use data::{Chart, Point, Scale, Series};
pub(crate) use draw::{Against, figure};
pub(crate) use lines::{COLOURS, DASHES, DOTTED, Line, Lines, dash, drawable, remarks, thinned};
pub use log::{Panel, Record, charts_of};
pub(crate) use scale::Axis;
