//! What determines the embeddings of a shard.

use std::collections::BTreeMap;
use std::path::Path;

use gallerist_data::{LabelFrom, ManifestPart};
use gallerist_nn::Products;
use gallerist_retrieval::Code;
use gallerist_retrieval::shards::{Shard, ShardOrigin};
use gallerist_train::model::Model;
use gallerist_util::named_values::NamedValue;

use super::options::{ShardFormat, ShardOptions};
use crate::{Error, Result};

/// Refuses options that manifests with shards, or the format, do not have.
pub(super) fn check(options: &ShardOptions) -> Result<()> {
    let images = &options.embed.images;
    let refuse = |message: &str, hint: &str| Err(Error::new(message, Some(hint)));
    if images.layout.is_some() || images.crop_boxes {
        return refuse(
            "shards are of a manifest, which has no other layout and no bounding boxes",
            "leave out --layout and --crop-boxes",
        );
    }
    if !images.relabel.is_empty() {
        return refuse(
            "corrections of labels name images of the whole manifest, and a shard has a part of them",
            "correct the labels in the manifest, and leave out --relabel",
        );
    }
    match (options.format, options.precision) {
        (ShardFormat::Parquet, Some(_)) => {
            refuse("a Parquet file holds f32 only", "leave out --precision, or give --format safetensors")
        }
        (ShardFormat::Parquet, None) if !cfg!(feature = "arrow") => refuse(
            "cannot write Parquet files: this program was built without Parquet and Arrow",
            "build it with `cargo build --release --features arrow`, or leave out --format",
        ),
        _ => Ok(()),
    }
}

/// The origin of a shard that is embedded with these options.
pub(super) fn of(
    model: &Model,
    manifest: &Path,
    shard: Shard,
    options: &ShardOptions,
) -> Result<ShardOrigin> {
    let part = ManifestPart::read(manifest, shard)?;
    let (embed, images) = (&options.embed, &options.embed.images);
    let mut named = BTreeMap::from([
        ("format", options.format.name().to_owned()),
        ("precision", options.precision.map_or("f32", Code::name).to_owned()),
    ]);
    if let Some(normalize) = embed.normalize {
        named.insert("normalize", if normalize { "yes" } else { "no" }.to_owned());
    }
    if let Some(split) = &images.split {
        named.insert("split", split.clone());
    }
    if images.label_from != LabelFrom::default() {
        named.insert("label-from", images.label_from.to_string());
    }
    if let Some(source) = &embed.source {
        named.insert("source", source.clone());
    }
    if embed.products.is_some() || model.products() != Products::default() {
        named.insert("products", model.products().option());
    }
    if let Some(checkpoint) = embed.checkpoint {
        named.insert("checkpoint", checkpoint.option());
    }
    if !embed.heads.is_empty() {
        named.insert("head", embed.heads.join(","));
    }
    if let Some(combine) = embed.combine {
        named.insert("combine", combine.option());
    }
    Ok(ShardOrigin {
        manifest_bytes: part.manifest_bytes,
        lines_sha256: part.sha256,
        model: model.fingerprint().to_owned(),
        metric: model.metric(),
        options: named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    })
}

/// Refuses what is in the folder from another network, manifest or with other options.
pub(super) fn check_same(
    found: &ShardOrigin,
    wanted: &ShardOrigin,
    folder: &Path,
    shard: Shard,
) -> Result<()> {
    match found.difference(wanted) {
        None => Ok(()),
        Some(difference) => Err(Error::new(
            format!("`{}` has shard {shard} already, with {difference}", folder.display()),
            Some(&format!("give another --out, or remove the files `{}*` to embed it again", shard.name())),
        )),
    }
}
