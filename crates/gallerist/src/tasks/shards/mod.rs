//! Embedding the shards of a manifest, each by a process of its own.

mod options;
mod origin;
mod parts;

use std::path::Path;
use std::sync::Arc;

use gallerist_data::{Broken, Error as DataError, ImageSet, OpenOptions};
use gallerist_retrieval::Matrix;
use gallerist_retrieval::shards::{Shard, ShardFolder, ShardOrigin, ShardRecord, UnreadImage};
use gallerist_train::model::Model;
use gallerist_util::text::{absolute, absolute_or_address};

use super::embed::{open_model, report_broken, threshold_of_run};
use crate::observer::working;
use crate::text::count;
use crate::{Observer, Result};
pub use options::{DEFAULT_PART_IMAGES, ShardFormat, ShardOptions};
use parts::{Part, Parts};

/// A shard that is embedded.
#[derive(Clone, Debug)]
pub struct EmbeddedShard {
    /// What it was made of, with its rows and the images that could not be read.
    pub record: ShardRecord,
    /// Whether it was whole before, so that nothing was done.
    pub was_whole: bool,
    /// Images of a process that was stopped, which were not embedded again.
    pub resumed: usize,
}

/// Embeds the images of a shard of a manifest into a folder: `shard-00007-of-01000.safetensors`, and its record
/// `shard-00007-of-01000.json`.
///
/// The manifest is a CSV or TSV file with the header `path,label[,camera][,split]` and further columns, as for
/// [`embed`](crate::embed). Its lines are divided into equal parts of bytes; a shard has the lines that begin in its part,
/// and reads no others. The same call always gives the same file. A shard that is whole is left as it is. After a
/// process was killed, the same call continues where its last part ends, and gives the same bytes.
///
/// [`ShardFolder::check`] verifies the shards of a folder and joins them.
///
/// # Example
///
/// ```no_run
/// use std::path::Path;
/// use gallerist::ShardOptions;
/// use gallerist::retrieval::shards::{Shard, ShardFolder};
///
/// let (run, list, out) = (Path::new("runs/first"), Path::new("images.csv"), Path::new("shards"));
/// for index in 0..4 {
///     let shard = Shard::new(index, 4).expect("one of four");
///     gallerist::embed_shard(run, list, shard, out, &ShardOptions::default(), &mut ())?;
/// }
/// ShardFolder::open(out)?.check()?.join(Path::new("gallery.json"))?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// As [`embed`](crate::embed), except that a shard may have no image; when the folder has this shard from another network,
/// manifest or other options; for options that do not fit.
pub fn embed_shard(
    run: &Path,
    manifest: &Path,
    shard: Shard,
    out: &Path,
    options: &ShardOptions,
    observer: &mut dyn Observer,
) -> Result<EmbeddedShard> {
    origin::check(options)?;
    let folder = ShardFolder::open(out)?;
    folder.prepare(&ShardRecord::file_name(shard))?;
    let manifest = absolute_or_address(manifest);
    let model = open_model(run, &options.embed, observer)?;
    let origin = origin::of(&model, &manifest, shard, options)?;
    if let Some(record) = whole(&folder, shard, &origin, observer)? {
        // A process that was killed may have left them.
        Parts::remove(&folder, shard)?;
        return Ok(EmbeddedShard { record, was_whole: true, resumed: 0 });
    }
    folder.create("")?;
    let name = |path: &Path| path.to_string_lossy().into_owned();
    let mut record = ShardRecord::new(shard, origin, name(&manifest), name(&absolute(run)));
    let images = OpenOptions { shard: Some(shard), ..options.embed.images.clone() };
    let opened =
        working(observer, "reading the images' names", || ImageSet::open_with(&[&manifest], &images));
    let images = match opened {
        Ok(images) => Some(Arc::new(images)),
        Err(DataError::NoImages { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let mut resumed = 0;
    if let Some(images) = &images {
        let mut parts = Parts::open(&folder, shard, &record.origin, images.len())?;
        resumed = parts.images();
        if resumed > 0 {
            observer.note(&format!("resumes after {} of {}", count(resumed, "image"), images.len()));
        }
        embed_rest(&model, images, &mut parts, options.part_images.max(1), observer)?;
        let rows = parts.rows();
        record.broken.clone_from(&rows.broken);
        if !rows.items.is_empty() {
            let (items, cols) = (&rows.items, rows.values.len() / rows.items.len());
            let embeddings = Matrix::new(items.len(), cols, rows.values)?;
            let mut set = model.set_of_rows(images, items, embeddings)?;
            if let Some(name) = &options.embed.source {
                set.name_source(name.clone());
            }
            set.run = Some(record.run.clone());
            set.threshold = threshold_of_run(run, &set)?;
            record.rows = set.embeddings.rows() as u64;
            record.dimensions = set.embeddings.cols();
            let file = file_name(shard, options.format);
            record.file = Some(folder.save(&file, |path| match options.precision {
                None => set.save(path),
                Some(code) => set.save_compact(path, code),
            })?);
        }
    }
    folder.write(&ShardRecord::file_name(shard), &record.to_bytes())?;
    Parts::remove(&folder, shard)?;
    Ok(EmbeddedShard { record, was_whole: false, resumed })
}

fn file_name(shard: Shard, format: ShardFormat) -> String {
    format!("{}.{}", shard.name(), format.name())
}

/// The record of the shard, if it is whole. One of another origin is an error.
fn whole(
    folder: &ShardFolder,
    shard: Shard,
    origin: &ShardOrigin,
    observer: &mut dyn Observer,
) -> Result<Option<ShardRecord>> {
    let Some(bytes) = folder.read(&ShardRecord::file_name(shard))? else { return Ok(None) };
    let problem = match ShardRecord::parse(&bytes, shard) {
        Ok(record) => {
            origin::check_same(&record.origin, origin, folder.path(), shard)?;
            match record.file.as_ref().map(|file| folder.verify(file)).transpose()?.flatten() {
                None => return Ok(Some(record)),
                Some(problem) => problem,
            }
        }
        Err(problem) => problem,
    };
    observer.warning(&format!("shard {shard} is embedded again: {problem}"));
    Ok(None)
}

/// Embeds the images that no part has.
fn embed_rest(
    model: &Model,
    images: &Arc<ImageSet>,
    parts: &mut Parts<'_>,
    part_images: usize,
    observer: &mut dyn Observer,
) -> Result<()> {
    images.notes().iter().for_each(|note| observer.warning(note));
    let (start, all) = (parts.images(), images.len());
    let mut broken: Vec<Broken> = Vec::new();
    let mut part = Part::default();
    observer.embedding("embedding", start, all);
    let threads = model.config().train.loader_threads;
    let embedded = model.embed_batches(images, start, part_images, threads, &mut |batch| {
        part.images += batch.items.len() + batch.broken.len();
        part.rows.items.extend(batch.items);
        part.rows.values.extend(batch.rows);
        part.rows.broken.extend(batch.broken.iter().map(|one| UnreadImage {
            image: images.path(one.item as usize).to_owned(),
            reason: one.error.to_string(),
        }));
        broken.extend(batch.broken);
        let done = parts.images() + part.images;
        observer.embedding("embedding", done, all);
        if done == all {
            parts.add(std::mem::take(&mut part));
        } else if part.images >= part_images {
            parts.keep(std::mem::take(&mut part))?;
        }
        Ok(())
    });
    observer.phase_done();
    embedded?;
    report_broken(&broken, observer);
    Ok(())
}
