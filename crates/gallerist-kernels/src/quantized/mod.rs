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
mod maps;
mod scale;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(test)]
mod tests;

pub(crate) use dense::{Dense, Out, Position, Taps};
pub(crate) use depthwise::{Depthwise, MOST_TAPS, Row, Steps};
pub(crate) use ending::Scales;
pub(crate) use layout::Layout;
pub(crate) use maps::{Windows, add, concat, dequantize, quantize};
pub(crate) use scale::Scale;

/// How bytes are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Portable,
    /// AVX-512 VNNI.
    Vectors,
    /// The same, and the matrix unit (AMX) for products of many terms.
    Matrix,
}

/// The fastest unit of this CPU. The others below it can be used, too.
fn fastest() -> Unit {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return x86::fastest();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return Unit::Portable;
}

/// The instructions that multiply bytes on this CPU: `"AMX and AVX-512 VNNI"`, `"AVX-512 VNNI"`, or `None` if int8 is slower than
/// `f32` there.
pub fn int8_unit() -> Option<&'static str> {
    match fastest() {
        Unit::Portable => None,
        Unit::Vectors => Some("AVX-512 VNNI"),
        Unit::Matrix => Some("AMX and AVX-512 VNNI"),
    }
}

/// 64 bytes, aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([i8; 64]);

/// Vectors of a panel of columns, or of a block of channels.
const VECTORS: usize = 4;

/// Columns of a vector: sums of 32 bits.
const LANES: usize = 16;

/// Where lane `lane` of vector `vector` is among the columns of a whole panel or block whose results become bytes: vectors are
/// packed to bytes within each quarter, which then hold columns one after the other.
const fn interleaved(vector: usize, lane: usize) -> usize {
    LANES * (lane / 4) + 4 * vector + lane % 4
}
