//! The lists of the steps that run files can name.
//!
//! To add one, write its file and add a line here.

use super::augmentation::Augmentation;
use super::erase::EraseConfig;
use super::jitter::JitterConfig;
use super::preparation::Preparation;
use super::trim::TrimConfig;

gallerist_util::kind! {
    /// A random change of training images: an entry of `steps` in `[augment]`, chosen by its `kind`. It is a
    /// built-in one or one of your own, see [`Augmentation`].
    ///
    /// ```
    /// use gallerist_data::AugmentConfig;
    ///
    /// let text = "steps = [{ kind = \"jitter\", brightness = 0.2 }, { kind = \"erase\" }]";
    /// let config: AugmentConfig = toml::from_str(text).unwrap();
    /// assert_eq!(config.steps[1].name(), "erase");
    /// ```
    pub struct AugmentationConfig(dyn Augmentation), tag = "kind", default = JitterConfig;
    JitterConfig,
    EraseConfig,
}

gallerist_util::kind! {
    /// A step before an image is fitted: an entry of `prepare` in `[image]`, chosen by its `kind`. It is a
    /// built-in one or one of your own, see [`Preparation`].
    pub struct PreparationConfig(dyn Preparation), tag = "kind", default = TrimConfig;
    TrimConfig,
}
