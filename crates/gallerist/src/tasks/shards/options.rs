//! How a shard is embedded.

use gallerist_retrieval::Code;

use crate::tasks::embed::EmbedOptions;

/// Options of [`embed_shard`](crate::embed_shard). The default writes `.safetensors` files in f32.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// The network and the images, as for [`embed`](crate::embed). `images.layout`, `images.crop_boxes` and
    /// `images.relabel` are not for manifests with shards.
    pub embed: EmbedOptions,
    /// The format of the file.
    pub format: ShardFormat,
    /// bf16 or int8 instead of f32; not in Parquet files.
    pub precision: Option<Code>,
    /// Images after which rows are kept on disk, so that a killed process resumes there; at least 1.
    pub part_images: usize,
}

impl Default for ShardOptions {
    fn default() -> Self {
        ShardOptions {
            embed: EmbedOptions::default(),
            format: ShardFormat::default(),
            precision: None,
            part_images: DEFAULT_PART_IMAGES,
        }
    }
}

/// The default of [`ShardOptions::part_images`].
pub const DEFAULT_PART_IMAGES: usize = 4096;

gallerist_util::named_values! {
    /// The format of the files of shards.
    #[derive(Default)]
    pub enum ShardFormat {
        /// `.safetensors`, with a checksum.
        #[default]
        Safetensors = "safetensors", "Embeddings, labels, paths and columns, with a checksum";
        /// `.parquet`; needs the feature `arrow`.
        Parquet = "parquet", "A table for other programs; needs a build with --features arrow";
    }
}
