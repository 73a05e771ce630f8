//! How images are prepared for a network.

use gallerist_data::{ImageConfig, Size};

/// How the images were prepared that weights were trained on. In the words of a run file's `[image]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessing {
    /// Height and width.
    pub size: Size,
    /// 1 (grey) or 3 (colour).
    pub channels: usize,
    /// Subtracted from each channel.
    pub mean: Vec<f32>,
    /// Divides each channel.
    pub std: Vec<f32>,
    /// Value of a white pixel before `mean` and `std`.
    pub range: f32,
    /// Blue first, red last.
    pub bgr: bool,
    /// Black and white exchanged.
    pub invert: bool,
}

impl Preprocessing {
    /// Colour images of this side and these statistics, white being 1 (RGB).
    pub(super) const fn rgb(side: usize) -> Self {
        Preprocessing {
            size: Size::square(side),
            channels: 3,
            mean: Vec::new(),
            std: Vec::new(),
            range: 1.0,
            bgr: false,
            invert: false,
        }
    }

    /// Whether images prepared as `image` says have other values.
    pub fn differs(&self, image: &ImageConfig) -> bool {
        // Means and deviations are of values up to `range`: 0.5 of 1 is 127.5 of 255.
        let each = |values: &[f32], range: f32| -> Vec<f32> {
            let channels = image.channels.max(values.len());
            (0..channels).map(|i| values[if values.len() == 1 { 0 } else { i }] / range).collect()
        };
        let differ = |ours: &[f32], theirs: &[f32]| {
            let (ours, theirs) = (each(ours, self.range), each(theirs, image.range));
            ours.len() != theirs.len() || ours.iter().zip(&theirs).any(|(a, b)| (a - b).abs() > 1e-5)
        };
        differ(&self.mean, &image.mean)
            || differ(&self.std, &image.std)
            || (self.bgr, self.invert) != (image.bgr, image.invert)
    }

    /// Puts it into `[image]`.
    pub fn apply(&self, image: &mut ImageConfig) {
        image.channels = self.channels;
        image.mean.clone_from(&self.mean);
        image.std.clone_from(&self.std);
        (image.range, image.bgr, image.invert) = (self.range, self.bgr, self.invert);
    }
}

impl From<&ImageConfig> for Preprocessing {
    fn from(image: &ImageConfig) -> Self {
        Preprocessing {
            size: image.size,
            channels: image.channels,
            mean: image.mean.clone(),
            std: image.std.clone(),
            range: image.range,
            bgr: image.bgr,
            invert: image.invert,
        }
    }
}

/// `RGB 224, mean 0.485 0.456 0.406, std 0.229 0.224 0.225`.
impl std::fmt::Display for Preprocessing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let order = match (self.channels, self.bgr) {
            (1, _) => "grey",
            (_, true) => "BGR",
            (_, false) => "RGB",
        };
        let Size { height, width } = self.size;
        match height == width {
            true => write!(f, "{order} {height}")?,
            false => write!(f, "{order} {height} x {width}")?,
        }
        if self.range != 1.0 {
            write!(f, ", range {}", self.range)?;
        }
        for (name, values, usual) in [("mean", &self.mean, 0.0), ("std", &self.std, 1.0)] {
            if values.iter().any(|&value| value != usual) {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(f, ", {name} {}", values.join(" "))?;
            }
        }
        if self.invert {
            write!(f, ", inverted")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_of_pixels_are_no_difference_in_whatever_range() {
        let weights =
            Preprocessing { mean: vec![0.485, 0.456, 0.406], std: vec![0.229], ..Preprocessing::rgb(224) };
        let mut image = ImageConfig::new(224, 3);
        (image.mean, image.std) = (vec![123.675, 116.28, 103.53], vec![58.395]);
        image.range = 255.0;
        assert!(!weights.differs(&image));
        image.range = 1.0;
        assert!(weights.differs(&image));
        weights.apply(&mut image);
        assert!(!weights.differs(&image));
        image.mean[2] = 0.5;
        assert!(weights.differs(&image));
    }
}
