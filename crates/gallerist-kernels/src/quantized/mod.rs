//! Layers over maps of bytes: networks that only embed, in int8.
//!
//! A value `x` of a layer is the byte `round(x / step) + zero`, with a step and a zero for each layer ([`Scale`]). A weight
//! is a signed byte times a step for each output channel. Products of bytes are summed in 32 bits, without rounding, so that
//! the results do not depend on the instructions: with AMX or AVX-512 VNNI ([`x86`]) they are those of the portable code, to the bit.
//!
//! A layer ends in f32: the sum becomes a value, to which bias and shortcut are added and the activation applied, and that
//! becomes a byte of the next layer's input ([`Ending`]).
//!
//! Maps have the channels innermost and a border ([`Layout`]), which holds the byte of 0, so that no window is outside.

mod dense;
mod depthwise;
mod ending;
mod layout;
mod lines;
mod maps;
mod portable;
mod scale;
mod task;
mod unit;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(test)]
mod tests;

pub(crate) use dense::{Dense, Taps};
pub(crate) use depthwise::Depthwise;
pub(crate) use ending::Scales;
pub(crate) use layout::Layout;
pub(crate) use lines::MOST_TAPS;
pub(crate) use maps::{Windows, add, concat, dequantize, quantize};
pub(crate) use scale::Scale;
pub(crate) use task::{Out, Position, Row, Steps};
pub use unit::int8_unit;
