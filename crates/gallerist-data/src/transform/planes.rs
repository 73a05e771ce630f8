//! From interleaved pixels to normalised planes.

/// Writes the first 1 or 3 values of pixels, times a factor and plus an offset each, into the planes of
/// `out`, which are `area` apart, from place `start` on.
#[inline(always)]
pub(super) fn separate<T: Copy + Into<f32>, const L: usize>(
    pixels: &[[T; L]],
    normal: &[(f32, f32)],
    (area, start): (usize, usize),
    out: &mut [f32],
) {
    let mut lines = out.chunks_mut(area).map(|plane| &mut plane[start..start + pixels.len()]);
    let mut line = || lines.next().expect("a plane for each channel");
    match *normal {
        // At once: one after the other they would be gathered value by value.
        [(f0, o0), (f1, o1), (f2, o2)] => {
            for (((v0, v1), v2), pixel) in line().iter_mut().zip(line()).zip(line()).zip(pixels) {
                *v0 = pixel[0].into() * f0 + o0;
                *v1 = pixel[1].into() * f1 + o1;
                *v2 = pixel[2].into() * f2 + o2;
            }
        }
        _ => {
            let (factor, offset) = normal[0];
            for (value, pixel) in line().iter_mut().zip(pixels) {
                *value = pixel[0].into() * factor + offset;
            }
        }
    }
}
