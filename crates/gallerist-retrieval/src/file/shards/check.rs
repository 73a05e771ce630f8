//! Verifying the shards of a folder, and joining them.

use std::collections::BTreeMap;
use std::path::Path;

use gallerist_util::shard::Shard;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use super::folder::ShardFolder;
use super::joined::{JoinedShard, JoinedShards};
use super::record::ShardRecord;
use crate::{Error, Result};

/// The shards of a folder.
#[derive(Clone, Debug)]
pub struct CheckedShards {
    folder: ShardFolder,
    /// The number of shards that there are to be.
    pub count: u32,
    /// The records of the shards that are whole, in their order.
    pub whole: Vec<ShardRecord>,
    /// The others, in their order.
    pub unusable: Vec<UnusableShard>,
    /// What is wrong if an image is in several shards.
    repeats: Option<String>,
}

/// A shard that is missing, damaged, or not of the same network, options and manifest as the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableShard {
    /// Its number, of all.
    pub shard: Shard,
    /// What is wrong with it.
    pub problem: String,
}

impl ShardFolder {
    /// Verifies all shards: their records, the lengths of their files and the checksums, so that every byte is read. The
    /// origin that most shards have is the right one.
    ///
    /// ```no_run
    /// use gallerist_retrieval::shards::ShardFolder;
    ///
    /// let shards = ShardFolder::open("shards")?.check()?;
    /// for one in &shards.unusable {
    ///     eprintln!("shard {}: {}", one.shard, one.problem);
    /// }
    /// let joined = shards.join("photos.json".as_ref())?;
    /// println!("{} rows in {} files", joined.rows, joined.shards.len());
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for a folder without records, or with records of two numbers of shards.
    pub fn check(&self) -> Result<CheckedShards> {
        let records: Vec<Shard> = self.names()?.iter().filter_map(|name| record_of(name)).collect();
        let count = self.count_of(&records)?;
        let shards = (0..count).map(|index| Shard::new(index, count).expect("below the count"));
        let shards: Vec<Shard> = shards.collect();
        let read: Vec<(Shard, std::result::Result<ShardRecord, String>)> = shards
            .into_par_iter()
            .map(|shard| Ok((shard, self.read_record(shard)?)))
            .collect::<Result<_>>()?;
        let usual = usual(read.iter().filter_map(|(_, record)| record.as_ref().ok()));
        let checked: Vec<(Shard, Checked)> = read
            .into_par_iter()
            .map(|(shard, record)| {
                let record = match record {
                    Ok(record) => self.check_record(record, usual.as_ref())?,
                    Err(problem) => Err(problem),
                };
                Ok((shard, record))
            })
            .collect::<Result<_>>()?;
        let (mut whole, mut keys, mut unusable) = (Vec::new(), Vec::new(), Vec::new());
        for (shard, record) in checked {
            match record {
                Ok((record, images)) => {
                    whole.push(record);
                    keys.push(images);
                }
                Err(problem) => unusable.push(UnusableShard { shard, problem }),
            }
        }
        let repeats = self.repeats(&whole, &keys)?;
        Ok(CheckedShards { folder: self.clone(), count, whole, unusable, repeats })
    }

    /// The images that several shards have, in words: how many, and the first. `keys` are those of the images of each record.
    fn repeats(&self, records: &[ShardRecord], keys: &[Vec<u64>]) -> Result<Option<String>> {
        let mut repeated = keys.concat();
        repeated.par_sort_unstable();
        let mut repeated: Vec<u64> =
            repeated.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        repeated.dedup();
        let Some(first) = keys.iter().flatten().find(|key| repeated.binary_search(key).is_ok()) else {
            return Ok(None);
        };
        let with_first: Vec<&ShardRecord> = records
            .iter()
            .zip(keys)
            .filter(|(_, keys)| keys.contains(first))
            .map(|(record, _)| record)
            .collect();
        let path = match with_first.first().and_then(|record| record.file.as_ref()) {
            Some(file) => self.path_of(file, *first)?.unwrap_or_default(),
            None => String::new(),
        };
        let shards: Vec<String> = with_first.iter().map(|record| record.index.to_string()).collect();
        let images = match repeated.len() {
            1 => "an image is".to_owned(),
            count => format!("{count} images are"),
        };
        Ok(Some(format!("{images} in it more than once: `{path}` is in the shards {}", shards.join(" and "))))
    }

    /// The number of shards that all records name.
    fn count_of(&self, records: &[Shard]) -> Result<u32> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        records.iter().for_each(|shard| *counts.entry(shard.count()).or_default() += 1);
        let refuse = |problem: String, hint: &str| Error::Format {
            path: self.path().to_owned(),
            format: "a folder of shards",
            problem,
            hint: Some(hint.to_owned()),
        };
        match counts.keys().collect::<Vec<_>>()[..] {
            [&count] => Ok(count),
            [] => Err(refuse(
                "it has no record such as `shard-00000-of-00010.json`".to_owned(),
                "write shards with `gallerist embed --shards MANIFEST --shard I/N --out FOLDER`",
            )),
            _ => {
                let counts: Vec<String> = counts.iter().map(|(n, found)| format!("{found} of {n}")).collect();
                let problem = format!("it has shards of several numbers of shards: {}", counts.join(", "));
                Err(refuse(problem, "move the shards of one number into a folder of their own"))
            }
        }
    }

    /// The record of a shard, or what is wrong with it.
    fn read_record(&self, shard: Shard) -> Result<std::result::Result<ShardRecord, String>> {
        let bytes = self.read(&ShardRecord::file_name(shard))?;
        Ok(bytes
            .ok_or_else(|| "it is missing".to_owned())
            .and_then(|bytes| ShardRecord::parse(&bytes, shard)))
    }

    /// The record and the keys of its images, if the shard is whole and like the usual one.
    fn check_record(&self, record: ShardRecord, usual: Option<&ShardRecord>) -> Result<Checked> {
        if let Some(usual) = usual {
            if let Some(difference) = difference(&record, usual) {
                return Ok(Err(format!("it has {difference} as the others")));
            }
            if record.rows > 0 && record.dimensions != usual.dimensions && usual.rows > 0 {
                let (found, wanted) = (record.dimensions, usual.dimensions);
                return Ok(Err(format!("it has {found} dimensions, not {wanted} as the others")));
            }
        }
        let Some(file) = &record.file else { return Ok(Ok((record, Vec::new()))) };
        Ok(self.verified_images(file)?.map(|keys| (record, keys)))
    }
}

/// The record of a shard and the keys of its images, or what is wrong with it.
type Checked = std::result::Result<(ShardRecord, Vec<u64>), String>;

/// The shard of a file that is a record.
fn record_of(name: &str) -> Option<Shard> {
    Shard::of_name(name).filter(|&shard| ShardRecord::file_name(shard) == name)
}

/// The difference in what all shards have in common, in words.
fn difference(one: &ShardRecord, other: &ShardRecord) -> Option<String> {
    let mut own = one.origin.clone();
    // Every shard has its own lines.
    own.lines_sha256.clone_from(&other.origin.lines_sha256);
    own.difference(&other.origin)
}

/// The record whose origin most others share; the first of several.
fn usual<'a>(records: impl Iterator<Item = &'a ShardRecord>) -> Option<ShardRecord> {
    let mut kinds: Vec<(&ShardRecord, usize)> = Vec::new();
    for record in records {
        let is_same = |kind: &&mut (&ShardRecord, usize)| {
            difference(record, kind.0).is_none() && (record.rows == 0) == (kind.0.rows == 0)
        };
        match kinds.iter_mut().find(is_same) {
            Some((_, count)) => *count += 1,
            None => kinds.push((record, 1)),
        }
    }
    // Those with rows also have a dimension.
    kinds.sort_by_key(|(record, count)| (record.rows == 0, std::cmp::Reverse(*count)));
    kinds.first().map(|(record, _)| (*record).clone())
}

impl CheckedShards {
    /// Rows of the shards that are whole.
    pub fn rows(&self) -> u64 {
        self.whole.iter().map(|record| record.rows).sum()
    }

    /// Writes the list of the shards to `path`, a `.json` file. Paths in it are relative to its folder where the shards are
    /// below it, else absolute.
    ///
    /// # Errors
    /// [`Error::Format`] when a shard is unusable, no shard has rows or an image is in several of them, [`Error::Extension`], [`Error::Io`].
    pub fn join(&self, path: &Path) -> Result<JoinedShards> {
        if path.extension().is_none_or(|extension| extension != "json") {
            return Err(Error::Extension { path: path.to_owned(), wanted: "`.json`" });
        }
        let refuse = |problem: String, hint: &str| Error::Format {
            path: self.folder.path().to_owned(),
            format: "a folder of shards",
            problem,
            hint: Some(hint.to_owned()),
        };
        if let Some(first) = self.unusable.first() {
            let problem = format!(
                "{} of {} shards are unusable; shard {}: {}",
                self.unusable.len(),
                self.count,
                first.shard,
                first.problem
            );
            return Err(refuse(problem, "embed them again"));
        }
        if let Some(repeats) = &self.repeats {
            let hint = "list each image once, and embed all shards of this manifest into another folder";
            return Err(refuse(repeats.clone(), hint));
        }
        let Some(first) = self.whole.iter().find(|record| record.rows > 0) else {
            let hint = "check --split and the paths in the manifest";
            return Err(refuse("none of its shards has a row".to_owned(), hint));
        };
        let absolute = |path: &Path| {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            path.canonicalize().map_err(|source| Error::io("open", path, source))
        };
        let own = absolute(path.parent().unwrap_or(Path::new("")))?;
        let folder = match self.folder.is_remote() {
            true => self.folder.path().to_owned(),
            false => absolute(self.folder.path())?,
        };
        let folder = folder.strip_prefix(&own).unwrap_or(&folder);
        let shards = self.whole.iter().filter_map(|record| {
            let file = record.file.as_ref()?;
            Some(JoinedShard {
                file: folder.join(&file.name).to_string_lossy().replace('\\', "/"),
                rows: record.rows,
                bytes: file.bytes,
                sha256: file.sha256.clone(),
            })
        });
        let (origin, dimensions) = (&first.origin, first.dimensions);
        let joined = JoinedShards::new(origin.model.clone(), origin.metric, dimensions, shards.collect());
        joined.write(path)?;
        Ok(joined)
    }
}
