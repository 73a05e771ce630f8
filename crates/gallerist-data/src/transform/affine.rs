//! The affine map that translates, rotates, shears, scales and mirrors an image.

use super::config::{AugmentConfig, FurtherView};
use super::crop::{Window, draw_window};
use crate::size::Size;
use gallerist_util::random::Random;

/// Pixel (column, row) of the output samples the position `x + dx . (column, row)`, `y + dy . (column, row)` of the
/// stored image. Pixel centres have integer coordinates.
pub(super) struct AffineMap {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) dx: [f64; 2],
    pub(super) dy: [f64; 2],
}

impl AffineMap {
    /// Draws the map from the network's input, of `size`, to the stored image. Every random number is drawn, also if it is
    /// not used, so that one setting does not change the numbers of another.
    pub(super) fn draw(augment: &AugmentConfig, stored: Size, size: Size, random: &mut Random) -> AffineMap {
        let mut symmetric = |limit: f32| random.between(-f64::from(limit), f64::from(limit));
        let angle = symmetric(augment.rotation_degrees).to_radians();
        let shear_x = symmetric(augment.shear_degrees).to_radians().tan();
        let shear_y = symmetric(augment.shear_degrees).to_radians().tan();
        let shift_x = symmetric(augment.shift) * size.width as f64;
        let shift_y = symmetric(augment.shift) * size.height as f64;
        let scale = random.between(augment.scale[0].into(), augment.scale[1].into());
        let mirror = if random.chance(augment.flip.into()) { -1.0 } else { 1.0 };
        let window = draw_window(&augment.crop, stored, size, random);
        Self::of_window(forward(angle, scale, [shear_x, shear_y], mirror), [shift_x, shift_y], &window, size)
    }

    /// The map of a further view of an image in evaluation, from the network's input, of `size`, to `window` of the stored image.
    pub(super) fn of_view(view: &FurtherView, window: &Window, size: Size) -> AffineMap {
        let angle = f64::from(view.rotation_degrees).to_radians();
        Self::of_window(forward(angle, view.scale.into(), [0.0; 2], 1.0), [0.0; 2], window, size)
    }

    /// The inverse of a linear map about the centre, and a shift, both in pixels of the output.
    fn of_window(
        [[a, b], [c, d]]: [[f64; 2]; 2],
        [shift_x, shift_y]: [f64; 2],
        window: &Window,
        size: Size,
    ) -> AffineMap {
        // Its inverse leads from the output to the window. The determinant is
        // scale^2 (1 - sx sy), which the permitted shear keeps above 0.06 scale^2.
        let det = a * d - b * c;
        let (zoom_x, zoom_y) = (window.width / size.width as f64, window.height / size.height as f64);
        let dx = [zoom_x * d / det, zoom_x * -b / det];
        let dy = [zoom_y * -c / det, zoom_y * a / det];
        // Output position 0 is half a pixel inside the first pixel's corner.
        let u = 0.5 - size.width as f64 / 2.0 - shift_x;
        let v = 0.5 - size.height as f64 / 2.0 - shift_y;
        AffineMap {
            x: window.left + window.width / 2.0 + dx[0] * u + dx[1] * v - 0.5,
            y: window.top + window.height / 2.0 + dy[0] * u + dy[1] * v - 0.5,
            dx,
            dy,
        }
    }
}

/// Forward, about the centre, in pixels of the output: scale, then shear [1 sx; sy 1], then mirror, then rotate.
fn forward(angle: f64, scale: f64, [shear_x, shear_y]: [f64; 2], mirror: f64) -> [[f64; 2]; 2] {
    let (sin, cos) = angle.sin_cos();
    let shear = [[scale, scale * shear_x], [scale * shear_y, scale]];
    [
        [cos * mirror * shear[0][0] - sin * shear[1][0], cos * mirror * shear[0][1] - sin * shear[1][1]],
        [sin * mirror * shear[0][0] + cos * shear[1][0], sin * mirror * shear[0][1] + cos * shear[1][1]],
    ]
}
