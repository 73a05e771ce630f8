//! Sums over rows in a fixed order: the bits do not depend on the width of the vectors.

const LANES: usize = 16;

#[inline(always)]
pub(super) fn sum(a: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = a.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    for lane in 0..rest.len() {
        lanes[lane] += rest[lane];
    }
    total(lanes)
}

/// The sum of `a (b - mean)`.
#[inline(always)]
pub(super) fn dot_centred(a: &[f32], b: &[f32], mean: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for chunk in 0..a.len().min(b.len()) {
        for lane in 0..LANES {
            lanes[lane] += a[chunk][lane] * (b[chunk][lane] - mean);
        }
    }
    for lane in 0..a_rest.len().min(b_rest.len()) {
        lanes[lane] += a_rest[lane] * (b_rest[lane] - mean);
    }
    total(lanes)
}

/// The sum of `(a - mean)^2`.
#[inline(always)]
pub(super) fn squares(a: &[f32], mean: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = a.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let off = chunk[lane] - mean;
            lanes[lane] += off * off;
        }
    }
    for lane in 0..rest.len() {
        let off = rest[lane] - mean;
        lanes[lane] += off * off;
    }
    total(lanes)
}

/// The largest value, NaN left out; the least number for a row without numbers.
#[inline(always)]
pub(super) fn largest(a: &[f32]) -> f32 {
    let mut lanes = [f32::MIN; LANES];
    let (chunks, rest) = a.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    for lane in 0..rest.len() {
        lanes[lane] = if rest[lane] > lanes[lane] { rest[lane] } else { lanes[lane] };
    }
    let mut all = f32::MIN;
    for lane in lanes {
        all = if lane > all { lane } else { all };
    }
    all
}

#[inline(always)]
fn total(lanes: [f32; LANES]) -> f32 {
    let mut total = 0f32;
    for lane in lanes {
        total += lane;
    }
    total
}
