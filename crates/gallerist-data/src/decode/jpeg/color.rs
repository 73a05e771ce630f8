//! From the planes of a JPEG to grey or RGB, to the same bits as zune-jpeg.

use super::Plane;
use crate::simd::vectorized;

/// The picture in a plane of grey.
pub(super) fn gray(plane: &Plane, width: usize, height: usize) -> Vec<u8> {
    (0..height).flat_map(|y| &plane.row(y)[..width]).copied().collect()
}

/// RGB from light and two planes of chroma, each at the size or half the size of the picture.
pub(super) fn rgb(planes: [&Plane; 3], width: usize, height: usize) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(3 * width * height);
    rows(planes, width, height, &mut pixels);
    pixels
}

vectorized! {
    fn rows<'a>(planes: [&'a Plane; 3], width: usize, height: usize, pixels: &'a mut Vec<u8>) -> () {
        let [light, blue, red] = planes;
        let mut chroma = [Chroma::new(blue, light), Chroma::new(red, light)];
        let mut row = vec![0; 3 * width];
        for y in 0..height {
            let [blue, red] = &mut chroma;
            convert(&light.row(y)[..width], &blue.row(y)[..width], &red.row(y)[..width], &mut row);
            pixels.extend_from_slice(&row);
        }
    }
}

/// The rows of a plane of chroma at the size of the picture: between two samples, three parts of the
/// near one and one of the far one, first down and then across.
struct Chroma<'a> {
    plane: &'a Plane,
    wide: bool,
    high: bool,
    between: Vec<u8>,
    row: Vec<u8>,
}

#[inline(always)]
fn mixed(near: u8, far: u8) -> u8 {
    ((3 * u16::from(near) + u16::from(far) + 2) >> 2) as u8
}

impl<'a> Chroma<'a> {
    fn new(plane: &'a Plane, light: &Plane) -> Chroma<'a> {
        Chroma {
            plane,
            wide: plane.stride < light.stride,
            high: plane.rows() < light.rows(),
            between: vec![0; plane.stride],
            row: vec![0; light.stride],
        }
    }

    #[inline(always)]
    fn row(&mut self, y: usize) -> &[u8] {
        let narrow = if self.high {
            let near = y / 2;
            let far = if y % 2 == 0 { near.saturating_sub(1) } else { (near + 1).min(self.plane.rows() - 1) };
            let rows = self.plane.row(near).iter().zip(self.plane.row(far));
            for (out, (&near, &far)) in self.between.iter_mut().zip(rows) {
                *out = mixed(near, far);
            }
            &self.between[..]
        } else {
            self.plane.row(y)
        };
        if !self.wide {
            return narrow;
        }
        let last = narrow.len() - 1;
        let (pairs, _) = self.row.as_chunks_mut::<2>();
        let sides = narrow.iter().zip(&narrow[2..]);
        for (pair, (&near, (&left, &right))) in pairs[1..].iter_mut().zip(narrow[1..].iter().zip(sides)) {
            *pair = [mixed(near, left), mixed(near, right)];
        }
        pairs[0] = [narrow[0], mixed(narrow[0], narrow[1])];
        pairs[last] = [mixed(narrow[last], narrow[last - 1]), narrow[last]];
        &self.row
    }
}

/// BT.601 over the full range, with 14 bits.
#[inline(always)]
fn convert(light: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    for (((&y, &b), &r), pixel) in light.iter().zip(blue).zip(red).zip(out.as_chunks_mut::<3>().0) {
        let (y, b, r) = (i32::from(y), i32::from(b) - 128, i32::from(r) - 128);
        let part = |sum: i32| (y + ((sum + 8191) >> 14)).clamp(0, 255) as u8;
        *pixel = [part(22_970 * r), part(-11_700 * r - 5638 * b), part(29_032 * b)];
    }
}
