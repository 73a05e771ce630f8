//! The parts of a shard that is not whole yet: a process that was killed resumes after the last.

use gallerist_retrieval::shards::{Shard, ShardFolder, ShardOrigin, UnreadImage};
use gallerist_retrieval::{EmbeddingSet, Matrix};
use serde::{Deserialize, Serialize};

use super::origin::check_same;
use crate::Result;

/// Rows of a shard.
#[derive(Default)]
pub(super) struct Rows {
    /// Per row the index of its image.
    pub(super) items: Vec<u32>,
    /// The rows, one after the other.
    pub(super) values: Vec<f32>,
    pub(super) broken: Vec<UnreadImage>,
}

/// Rows of images that follow each other.
#[derive(Default)]
pub(super) struct Part {
    /// Images, with and without a row.
    pub(super) images: usize,
    pub(super) rows: Rows,
}

/// All rows so far.
pub(super) struct Parts<'a> {
    folder: &'a ShardFolder,
    shard: Shard,
    origin: &'a ShardOrigin,
    /// Parts on disk.
    kept: usize,
    all: Part,
}

/// What is known of a part. It is written after the rows.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartRecord {
    origin: ShardOrigin,
    /// The first image.
    start: usize,
    images: usize,
    /// Per row the index of its image.
    items: Vec<u32>,
    broken: Vec<UnreadImage>,
}

impl<'a> Parts<'a> {
    /// The parts that are in the folder, of a shard of `images` images. A damaged part and those after it are left out.
    pub(super) fn open(
        folder: &'a ShardFolder,
        shard: Shard,
        origin: &'a ShardOrigin,
        images: usize,
    ) -> Result<Self> {
        let mut parts = Parts { folder, shard, origin, kept: 0, all: Part::default() };
        while let Some(bytes) = folder.read(&parts.file("json"))? {
            let Ok(record) = serde_json::from_slice::<PartRecord>(&bytes) else { break };
            check_same(&record.origin, origin, folder.path(), shard)?;
            let Some(part) = parts.read(record, images) else { break };
            parts.kept += 1;
            parts.add(part);
        }
        Ok(parts)
    }

    /// The part with this record; `None` if it does not continue the others.
    fn read(&self, record: PartRecord, images: usize) -> Option<Part> {
        let PartRecord { start, images: count, items, broken, .. } = record;
        let end = start.checked_add(count).filter(|&end| end <= images && count > 0)?;
        let in_order = items.windows(2).all(|pair| pair[0] < pair[1])
            && items.iter().all(|&item| (start..end).contains(&(item as usize)));
        if start != self.all.images || items.len() + broken.len() != count || !in_order {
            return None;
        }
        let values = match items.len() {
            0 => Vec::new(),
            rows => {
                let set = self.folder.load(&self.file("safetensors")).ok()?;
                let (found, cols) = (set.embeddings.rows(), set.embeddings.cols());
                let before = self.all.rows.items.len();
                let fits = before == 0 || self.all.rows.values.len() / before == cols;
                (found == rows && fits).then(|| set.embeddings.into_vec())?
            }
        };
        Some(Part { images: count, rows: Rows { items, values, broken } })
    }

    /// Images that have been embedded or could not be read.
    pub(super) fn images(&self) -> usize {
        self.all.images
    }

    /// All rows.
    pub(super) fn rows(self) -> Rows {
        self.all.rows
    }

    /// Adds a part, which is not written.
    pub(super) fn add(&mut self, part: Part) {
        let all = &mut self.all;
        all.images += part.images;
        all.rows.items.extend(part.rows.items);
        all.rows.values.extend(part.rows.values);
        all.rows.broken.extend(part.rows.broken);
    }

    /// Writes a part to the folder and adds it.
    pub(super) fn keep(&mut self, part: Part) -> gallerist_train::Result<()> {
        self.folder.create(&folder_name(self.shard))?;
        let rows = part.rows.items.len();
        if rows > 0 {
            let values = part.rows.values.clone();
            let set = EmbeddingSet::from(Matrix::new(rows, values.len() / rows, values)?);
            self.folder.save(&self.file("safetensors"), |path| set.save(path))?;
        }
        let record = PartRecord {
            origin: self.origin.clone(),
            start: self.all.images,
            images: part.images,
            items: part.rows.items.clone(),
            broken: part.rows.broken.clone(),
        };
        let bytes = serde_json::to_vec(&record).expect("texts and numbers");
        self.folder.write(&self.file("json"), &bytes)?;
        self.kept += 1;
        self.add(part);
        Ok(())
    }

    /// Removes the parts of a shard that is whole.
    pub(super) fn remove(folder: &ShardFolder, shard: Shard) -> Result<()> {
        Ok(folder.remove_folder(&folder_name(shard))?)
    }

    /// The name of a file of the next part.
    fn file(&self, extension: &str) -> String {
        format!("{}/{:06}.{extension}", folder_name(self.shard), self.kept)
    }
}

fn folder_name(shard: Shard) -> String {
    format!("{}.parts", shard.name())
}
