//! How the images of an epoch are grouped into batches.
//!
//! To add a sampler, write its file with a configuration that implements [`SamplerFactory`], and add a line to the
//! list below.

mod batch_sampler;
mod checked;
mod class_labels;
mod class_means;
mod classes_images;
mod confusable;
mod draw;
mod hard_classes;
mod hard_identities;
mod n_group;
mod random;

pub use batch_sampler::{BatchSampler, Refresh, SamplerFactory};
pub use checked::checked_epoch;
pub use class_labels::{ClassLabels, SmallClasses};
pub use class_means::ClassMeans;
pub use classes_images::{ClassesImages, ClassesImagesConfig};
pub use hard_classes::{HardClasses, HardClassesConfig};
pub use hard_identities::{HardIdentities, HardIdentitiesConfig};
pub use n_group::{NGroup, NGroupConfig};
pub use random::{RandomBatches, RandomBatchesConfig};

gallerist_util::kind! {
    /// The sampler of a run file, chosen by its `kind`: a built-in one or one of your own, see [`SamplerFactory`].
    ///
    /// ```
    /// use gallerist_data::{ClassesImagesConfig, SamplerConfig};
    ///
    /// let text = "kind = \"classes_images\"\nclasses_per_batch = 32\nimages_per_class = 4";
    /// let config: SamplerConfig = toml::from_str(text).unwrap();
    /// assert_eq!(config.batch_size(), 128);
    /// assert_eq!(config.downcast_ref::<ClassesImagesConfig>().unwrap().images_per_class, 4);
    /// ```
    pub struct SamplerConfig(dyn SamplerFactory), tag = "kind", default = ClassesImagesConfig;
    ClassesImagesConfig,
    NGroupConfig,
    RandomBatchesConfig,
    HardIdentitiesConfig,
    HardClassesConfig,
}
