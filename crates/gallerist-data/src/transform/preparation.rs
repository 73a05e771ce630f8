//! The interface of steps before an image is fitted.

use gallerist_util::registry::Part;

use crate::error::Error;
use crate::image::Image;

/// A step that every image takes, in training and in evaluation, before it is brought to its stored size.
///
/// Implement it for a step of your own: a function of the image and of the values of the configuration, and of
/// nothing else. Its results are kept in memory and, where the run file says so, on disk;
/// [`PreparationConfig::register`](crate::PreparationConfig::register) gives it a name for `prepare` in `[image]`.
///
/// # Example
///
/// ```
/// use gallerist_data::{Image, ImageConfig, Named, Preparation, PreparationConfig, Transform};
/// use serde::{Deserialize, Serialize};
///
/// /// Sets dark pixels to black.
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields, default)]
/// struct Clean {
///     threshold: u8,
/// }
///
/// impl Named for Clean {
///     const NAME: &'static str = "clean";
/// }
///
/// impl Preparation for Clean {
///     fn apply(&self, image: Image) -> Image {
///         let (width, height, channels) = (image.width(), image.height(), image.channels());
///         let clean = |v| if v < self.threshold { 0 } else { v };
///         Image::new(width, height, channels, image.into_pixels().into_iter().map(clean).collect())
///     }
/// }
///
/// PreparationConfig::register::<Clean>().unwrap();
/// let text = "size = 2\nchannels = 1\nprepare = [{ kind = \"clean\", threshold = 60 }]";
/// let config: ImageConfig = toml::from_str(text).unwrap();
/// let image = Transform::evaluation(&config)?.fit(Image::new(2, 2, 1, vec![10, 50, 60, 200]));
/// assert_eq!(image.pixels(), [0, 0, 60, 200]);
/// # Ok::<(), gallerist_data::Error>(())
/// ```
pub trait Preparation: Part {
    /// The changed image, of any size, with 1 or 3 channels.
    fn apply(&self, image: Image) -> Image;

    /// Refuses values out of their range; default: none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the field.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the step needs every pixel of the file (the default). Otherwise a large JPEG may come at a reduced
    /// size, which is much faster.
    fn needs_whole_image(&self) -> bool {
        true
    }
}
