//! ONNX's operator `Resize` with `mode = cubic`, which rten computes as linear.
//!
//! Vision transformers that were exported for images of any size interpolate their positions with it.

use rten_onnx::onnx::NodeProto;

/// The most numbers of a resized tensor.
const MAX_NUMBERS: usize = 1 << 28;

/// How a node resizes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cubic {
    coordinates: Coordinates,
    /// The parameter of the cubic kernel.
    a: f64,
    /// Whether places outside of the tensor have no weight, instead of the values at its edge.
    excludes_outside: bool,
    /// Whether the kernel is as much wider as the result is smaller.
    is_antialiased: bool,
    /// The axes that are resized, negative from the last one; `None`: all.
    axes: Option<Vec<i64>>,
}

/// Where a place of the result lies in the tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// The wanted size, per axis that is resized.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Sizes(Vec<i32>),
    Scales(Vec<f32>),
}

impl Cubic {
    /// How `node` resizes; `None` if it is another operator, or has a setting that is not supported.
    pub(crate) fn of(node: &NodeProto) -> Option<Self> {
        if node.op_type.as_deref() != Some("Resize")
            || !matches!(node.domain.as_deref(), None | Some("" | "ai.onnx"))
        {
            return None;
        }
        let attribute = |name: &str| node.attribute.iter().find(|of| of.name.as_deref() == Some(name));
        let text = |name: &str| attribute(name).and_then(|of| of.s.as_deref());
        let flag = |name: &str| attribute(name).and_then(|of| of.i).unwrap_or(0) != 0;
        let coordinates = match text("coordinate_transformation_mode") {
            None | Some("half_pixel") => Coordinates::HalfPixel,
            Some("half_pixel_symmetric") => Coordinates::HalfPixelSymmetric,
            Some("pytorch_half_pixel") => Coordinates::PytorchHalfPixel,
            Some("align_corners") => Coordinates::AlignCorners,
            Some("asymmetric") => Coordinates::Asymmetric,
            Some(_) => return None,
        };
        let is_stretched = matches!(text("keep_aspect_ratio_policy"), None | Some("stretch"));
        let has_size =
            (3..=4).contains(&node.input.len()) && node.input.last().is_some_and(|name| !name.is_empty());
        let (excludes_outside, is_antialiased) = (flag("exclude_outside"), flag("antialias"));
        if text("mode") != Some("cubic")
            || (is_antialiased && !excludes_outside)
            || !is_stretched
            || !has_size
            || node.output.len() != 1
        {
            return None;
        }
        Some(Self {
            coordinates,
            a: attribute("cubic_coeff_a").and_then(|of| of.f).map_or(-0.75, f64::from),
            excludes_outside,
            is_antialiased,
            axes: attribute("axes").map(|of| of.ints.clone()),
        })
    }

    /// The shape and the numbers of a tensor after it was resized.
    ///
    /// # Errors
    ///
    /// When shape, axes and target do not fit together, or the result has more than 2^28 numbers.
    pub(crate) fn apply(
        &self,
        shape: &[usize],
        x: Vec<f32>,
        target: &Target,
    ) -> Result<(Vec<usize>, Vec<f32>), String> {
        let rank = shape.len();
        let count = match target {
            Target::Sizes(sizes) => sizes.len(),
            Target::Scales(scales) => scales.len(),
        };
        let all: Vec<i64> = (0..rank as i64).collect();
        let axes = self.axes.as_deref().unwrap_or(&all);
        let wrong = || format!("Resize has {count} sizes for {} axes of a tensor {shape:?}", axes.len());
        if count != axes.len() {
            return Err(wrong());
        }
        let (mut shape, mut values) = (shape.to_vec(), x);
        for (place, &axis) in axes.iter().enumerate() {
            let axis = usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok();
            let axis = axis.filter(|&axis| axis < rank && shape[axis] > 0).ok_or_else(wrong)?;
            let length = shape[axis];
            let (size, scale) = match target {
                Target::Sizes(sizes) => (f64::from(sizes[place]), f64::from(sizes[place]) / length as f64),
                Target::Scales(scales) => {
                    (f64::from((length as f32 * scales[place]).floor()), f64::from(scales[place]))
                }
            };
            let others: usize =
                shape.iter().enumerate().map(|(at, side)| if at == axis { 1 } else { *side }).product();
            if !(1.0..=(MAX_NUMBERS / others.max(1)) as f64).contains(&size) {
                return Err(format!(
                    "Resize would give {size} x {others} numbers, and 1 to {MAX_NUMBERS} are supported"
                ));
            }
            let size = size as usize;
            if size == length && scale == 1.0 {
                continue;
            }
            let taps: Vec<_> = (0..size).map(|at| self.taps(at, length, size, scale)).collect();
            values = along(&values, length, shape[axis + 1..].iter().product(), &taps);
            shape[axis] = size;
        }
        Ok((shape, values))
    }

    /// The places of an axis that a place of the result is the sum of, with their weights.
    fn taps(&self, at: usize, length: usize, size: usize, scale: f64) -> Vec<(usize, f32)> {
        let (at, last) = (at as f64, length as i64 - 1);
        let half_pixel = (at + 0.5) / scale - 0.5;
        let place = match self.coordinates {
            Coordinates::HalfPixel => half_pixel,
            Coordinates::HalfPixelSymmetric => {
                let adjustment = size as f64 / (scale * length as f64);
                length as f64 / 2.0 * (1.0 - adjustment) + half_pixel
            }
            Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if size == 1 => 0.0,
            Coordinates::PytorchHalfPixel => half_pixel,
            Coordinates::AlignCorners => at * last as f64 / (size - 1) as f64,
            Coordinates::Asymmetric => at / scale,
        };
        let a = self.a;
        let kernel = |x: f64| match x.abs() {
            x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            _ => 0.0,
        };
        let width = if self.is_antialiased { (1.0 / scale).max(1.0) } else { 1.0 };
        let [first, end] = [place - 2.0 * width, place + 2.0 * width].map(|edge| edge.ceil() as i64);
        let is_used = |of: &i64| !self.excludes_outside || (0..=last).contains(of);
        let taps = (first..end).filter(is_used).map(|of| (of, kernel((of as f64 - place) / width)));
        let taps: Vec<(i64, f64)> = taps.collect();
        let sum = if self.excludes_outside { taps.iter().map(|(_, weight)| weight).sum() } else { 1.0 };
        taps.into_iter().map(|(of, weight)| (of.clamp(0, last) as usize, (weight / sum) as f32)).collect()
    }
}

/// Weighted sums along an axis of `length` places, whose neighbours are `stride` numbers apart.
fn along(x: &[f32], length: usize, stride: usize, taps: &[Vec<(usize, f32)>]) -> Vec<f32> {
    let mut sums = vec![0.0; x.len() / length * taps.len()];
    let blocks =
        x.chunks_exact((length * stride).max(1)).zip(sums.chunks_exact_mut((taps.len() * stride).max(1)));
    for (x, sums) in blocks {
        for (row, taps) in sums.chunks_exact_mut(stride).zip(taps) {
            for &(place, weight) in taps {
                for (sum, value) in row.iter_mut().zip(&x[place * stride..]) {
                    *sum += weight * value;
                }
            }
        }
    }
    sums
}
