//! Colour jitter.

use serde::{Deserialize, Serialize};

use super::augmentation::{Augmentation, Planes};
use super::check::require;
use crate::error::Error;
use gallerist_util::random::Random;
use gallerist_util::registry::Named;

/// Random brightness, contrast, saturation and hue, in random order, as torchvision's `ColorJitter`.
///
/// A factor of brightness, contrast and saturation is uniform in `[max(0, 1 - v), 1 + v]`: brightness
/// scales the colours, contrast draws them to the mean grey, saturation each to its own grey. The hue
/// turns by a share of the circle, uniform in plus or minus `hue`. Grey images have no saturation and
/// hue. Colours stay within black and white after each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JitterConfig {
    /// Brightness; default 0 (unchanged).
    pub brightness: f32,
    /// Contrast; default 0.
    pub contrast: f32,
    /// Saturation; default 0.
    pub saturation: f32,
    /// Hue, at most 0.5 (half the circle); default 0.
    pub hue: f32,
}

impl Named for JitterConfig {
    const NAME: &'static str = "jitter";
}

impl Augmentation for JitterConfig {
    fn apply(&self, image: &mut Planes<'_>, random: &mut Random) {
        self.draw(random).apply(image);
    }

    fn check(&self) -> Result<(), Error> {
        for (field, v, most) in [
            ("jitter.brightness", self.brightness, 10.0),
            ("jitter.contrast", self.contrast, 10.0),
            ("jitter.saturation", self.saturation, 10.0),
            ("jitter.hue", self.hue, 0.5),
        ] {
            let wanted = if most < 1.0 { "between 0 and 0.5" } else { "between 0 and 10" };
            require((0.0..=most).contains(&v), field, wanted, v)?;
        }
        Ok(())
    }
}

impl JitterConfig {
    /// What happens to one image. Every number is drawn whether it is used or not.
    fn draw(&self, random: &mut Random) -> Jitter {
        let mut factor = |v: f32| random.between(f64::from(1.0 - v).max(0.0), f64::from(1.0 + v)) as f32;
        Jitter {
            brightness: factor(self.brightness),
            contrast: factor(self.contrast),
            saturation: factor(self.saturation),
            hue: random.between((-self.hue).into(), self.hue.into()) as f32,
            order: random.permutation(4),
        }
    }
}

/// A change of colours.
struct Jitter {
    brightness: f32,
    contrast: f32,
    saturation: f32,
    hue: f32,
    /// The order of brightness (0), contrast (1), saturation (2) and hue (3).
    order: Vec<u32>,
}

impl Jitter {
    /// Changes planes of values from 0 to 1.
    fn apply(&self, image: &mut Planes<'_>) {
        match image.rgb() {
            None => self.apply_to_grey(image.values()),
            Some([red, green, blue]) => self.apply_to_colours(red, green, blue),
        }
    }

    fn apply_to_grey(&self, plane: &mut [f32]) {
        for &step in &self.order {
            match step {
                0 => plane.iter_mut().for_each(|v| *v = (*v * self.brightness).min(1.0)),
                1 => {
                    let mean = mean(plane.iter().copied());
                    plane.iter_mut().for_each(|v| *v = mix(*v, mean, self.contrast));
                }
                _ => {}
            }
        }
    }

    fn apply_to_colours(&self, red: &mut [f32], green: &mut [f32], blue: &mut [f32]) {
        for &step in &self.order {
            match step {
                0 => each(red, green, blue, |p| p.map(|v| (v * self.brightness).min(1.0))),
                1 => {
                    let pixels = red.iter().zip(green.iter()).zip(blue.iter());
                    let mean = mean(pixels.map(|((r, g), b)| grey([*r, *g, *b])));
                    each(red, green, blue, |p| p.map(|v| mix(v, mean, self.contrast)));
                }
                2 => each(red, green, blue, |p| p.map(|v| mix(v, grey(p), self.saturation))),
                _ => each(red, green, blue, |p| turn(p, self.hue)),
            }
        }
    }
}

fn each(red: &mut [f32], green: &mut [f32], blue: &mut [f32], change: impl Fn([f32; 3]) -> [f32; 3]) {
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        [*r, *g, *b] = change([*r, *g, *b]);
    }
}

/// Luma with torchvision's weights.
fn grey([r, g, b]: [f32; 3]) -> f32 {
    0.2989 * r + 0.587 * g + 0.114 * b
}

fn mean(values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let count = values.len() as f64;
    (values.map(f64::from).sum::<f64>() / count) as f32
}

/// `share` of `v` and the rest of `other`, within black and white.
fn mix(v: f32, other: f32, share: f32) -> f32 {
    (share * v + (1.0 - share) * other).clamp(0.0, 1.0)
}

/// A colour with its hue turned by a share of the circle; value and saturation (of HSV) stay.
fn turn([r, g, b]: [f32; 3], share: f32) -> [f32; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    if range == 0.0 {
        return [r, g, b];
    }
    let hue = if most == r {
        (g - b) / range
    } else if most == g {
        (b - r) / range + 2.0
    } else {
        (r - g) / range + 4.0
    };
    let hue = hue + 6.0 * share;
    // How far a channel is below the largest, for red, green, blue (HSV to RGB, the closed form).
    [5.0, 3.0, 1.0].map(|n: f32| {
        let k = (n + hue).rem_euclid(6.0);
        most - range * k.min(4.0 - k).clamp(0.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    /// Six colours as planes: a red, a green, a grey, a blue, a green of full saturation, white.
    const COLOURS: [f32; 18] = [
        0.9, 0.1, 0.3, 0.25, 0.0, 1.0, //
        0.2, 0.6, 0.3, 0.1, 1.0, 1.0, //
        0.1, 0.5, 0.3, 0.95, 0.4, 1.0,
    ];

    /// torchvision 0.29.2, `functional.adjust_*` on these colours, one after the other.
    #[test]
    fn colours_change_as_torchvision_changes_them() {
        let cases = [
            (
                Jitter {
                    brightness: 1.3,
                    contrast: 0.6,
                    saturation: 1.7,
                    hue: 0.15,
                    order: vec![1, 3, 2, 0],
                },
                [
                    0.989568, 0.259788, 0.494996, 1.0, 0.0, 1.0, 1.0, 0.458688, 0.494996, 0.151404, 0.902585,
                    1.0, 0.0, 0.922788, 0.494996, 1.0, 1.0, 1.0,
                ],
            ),
            (
                Jitter {
                    brightness: 0.7,
                    contrast: 1.5,
                    saturation: 0.3,
                    hue: -0.4,
                    order: vec![0, 3, 1, 2],
                },
                [
                    0.12927, 0.292356, 0.143392, 0.407041, 0.447309, 0.878341, 0.178591, 0.197856, 0.143392,
                    0.614941, 0.183788, 0.878341, 0.361291, 0.154836, 0.143392, 0.36717, 0.183788, 0.878341,
                ],
            ),
        ];
        let size = Size { height: 1, width: 6 };
        for (jitter, expected) in cases {
            let mut planes = COLOURS;
            jitter.apply(&mut Planes::new(&mut planes, size, false));
            let mut reversed: Vec<f32> = COLOURS.chunks(6).rev().flatten().copied().collect();
            jitter.apply(&mut Planes::new(&mut reversed, size, true));
            for (i, (found, expected)) in planes.iter().zip(expected).enumerate() {
                assert!((found - expected).abs() < 2e-6, "{i}: {found}, not {expected}");
                assert_eq!(*found, reversed[(2 - i / 6) * 6 + i % 6]);
            }
        }
        let mut grey = [0.1, 0.5, 0.9, 0.6];
        let jitter =
            Jitter { brightness: 1.4, contrast: 0.5, saturation: 9.0, hue: 0.4, order: vec![3, 0, 2, 1] };
        jitter.apply(&mut Planes::new(&mut grey, Size { height: 1, width: 4 }, false));
        for (found, expected) in grey.iter().zip([0.405, 0.685, 0.835, 0.755]) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
    }
}
