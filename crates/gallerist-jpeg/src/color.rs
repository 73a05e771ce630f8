//! From the planes of a JPEG to grey or RGB, to the same bits as zune-jpeg.

use std::cmp::Ordering;

use crate::plane::Plane;
use gallerist_util::vectorized;

/// The picture in a plane of grey.
pub(crate) fn gray(plane: &Plane, width: usize, height: usize) -> Vec<u8> {
    (0..height).flat_map(|y| &plane.row(y)[..width]).copied().collect()
}

/// RGB from light and two planes of chroma, each at the size, half or twice the size of the picture.
pub(crate) fn rgb(planes: [&Plane; 3], width: usize, height: usize) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(3 * width * height);
    rows(planes, width, height, &mut pixels);
    pixels
}

vectorized! {
    fn rows<'a>(planes: [&'a Plane; 3], width: usize, height: usize, pixels: &'a mut Vec<u8>) -> () {
        let [light, blue, red] = planes;
        let mut chroma = [Chroma::new(blue, light), Chroma::new(red, light)];
        // Up to the end of the last block: whole vectors, where the picture would leave a rest for every row.
        let mut row = vec![0; 3 * light.stride];
        for y in 0..height {
            let [blue, red] = &mut chroma;
            convert(light.row(y), blue.row(y), red.row(y), &mut row);
            pixels.extend_from_slice(&row[..3 * width]);
        }
    }
}

/// The rows of a plane of chroma at the size of the picture.
///
/// Enlarged: between two samples, three parts of the near one and one of the far one, first down and
/// then across. Where a reduced picture has more samples of chroma, the mean of two.
struct Chroma<'a> {
    plane: &'a Plane,
    columns: Ordering,
    rows: Ordering,
    /// One row between two of the plane, its first and last sample repeated at the ends.
    between: Vec<u8>,
    row: Vec<u8>,
}

#[inline(always)]
fn mixed(near: u8, far: u8) -> u8 {
    ((3 * u16::from(near) + u16::from(far) + 2) >> 2) as u8
}

#[inline(always)]
fn mean(a: u8, b: u8) -> u8 {
    ((u16::from(a) + u16::from(b) + 1) >> 1) as u8
}

impl<'a> Chroma<'a> {
    fn new(plane: &'a Plane, light: &Plane) -> Chroma<'a> {
        Chroma {
            plane,
            columns: plane.stride.cmp(&light.stride),
            rows: plane.rows().cmp(&light.rows()),
            between: vec![0; plane.stride + 2],
            row: vec![0; light.stride],
        }
    }

    #[inline(always)]
    fn row(&mut self, y: usize) -> &[u8] {
        let Chroma { plane, columns, rows, between, row } = self;
        let last = plane.stride;
        let inside = &mut between[1..=last];
        match rows {
            Ordering::Equal if columns.is_eq() => return plane.row(y),
            Ordering::Equal => inside.copy_from_slice(plane.row(y)),
            Ordering::Less => {
                let near = y / 2;
                let far = if y.is_multiple_of(2) {
                    near.saturating_sub(1)
                } else {
                    (near + 1).min(plane.rows() - 1)
                };
                combine(plane.row(near), plane.row(far), mixed, inside);
            }
            Ordering::Greater => combine(plane.row(2 * y), plane.row(2 * y + 1), mean, inside),
        }
        match columns {
            Ordering::Equal => &between[1..=last],
            Ordering::Less => {
                (between[0], between[last + 1]) = (between[1], between[last]);
                let sides = between.iter().zip(&between[2..]);
                for (pair, (&near, (&left, &right))) in
                    row.as_chunks_mut::<2>().0.iter_mut().zip(between[1..].iter().zip(sides))
                {
                    *pair = [mixed(near, left), mixed(near, right)];
                }
                row
            }
            Ordering::Greater => {
                let pairs = between[1..=last].as_chunks::<2>().0;
                row.iter_mut().zip(pairs).for_each(|(out, &[a, b])| *out = mean(a, b));
                row
            }
        }
    }
}

#[inline(always)]
fn combine(a: &[u8], b: &[u8], of: impl Fn(u8, u8) -> u8, out: &mut [u8]) {
    for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = of(a, b);
    }
}

/// BT.601 over the full range, with 14 bits.
#[inline(always)]
fn convert(light: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    let clamp = |v: i16| v.clamp(0, 255) as u8;
    // v * factor / 2^14 to the nearest; no product is half way between two.
    let times = |v: i16, factor: i16| (((i32::from(8 * v) * i32::from(factor)) >> 16) as i16 + 1) >> 1;
    for (((&y, &b), &r), pixel) in light.iter().zip(blue).zip(red).zip(out.as_chunks_mut::<3>().0) {
        let (y, b, r) = (i16::from(y), i16::from(b) - 128, i16::from(r) - 128);
        let green = (-11_700 * i32::from(r) - 5638 * i32::from(b) + 8191) >> 14;
        *pixel = [clamp(y + times(r, 22_970)), clamp(y + green as i16), clamp(y + times(b, 29_032))];
    }
}
