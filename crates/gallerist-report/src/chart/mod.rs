//! Curves of a run: named series of numbers against the step.
//!
//! A chart is drawn as SVG written here, not by a plotting library: libraries
//! write fixed colours and letter sizes into the picture, while these charts
//! take their colours from the page (light and dark), keep lines and letters at
//! their size on a phone, and hold their values for the reader to point at.

mod data;
mod draw;
mod lines;
mod log;
mod scale;
mod smooth;

pub use data::{Chart, Point, Scale, Series};
pub(crate) use draw::{Against, figure};
pub(crate) use lines::{COLOURS, DOTTED, Line, Lines, drawable, remarks, thinned};
pub use log::{Panel, Record, charts_of};
pub(crate) use scale::Axis;
