//! The files of a gallery.

use std::path::{Path, PathBuf};

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{LabelledShard, Named};
use gallerist_retrieval::shards::{JoinedShard, JoinedShards, Shard, ShardFolder, ShardRecord};
use gallerist_retrieval::{Matrix, ShardRows};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The extensions of files of embeddings.
const EXTENSIONS: [&str; 6] = ["parquet", "safetensors", "arrow", "feather", "ipc", "npy"];

/// The most rows of a set: their numbers are below the largest one of 32 bits.
pub(crate) const MOST_ROWS: usize = u32::MAX as usize - 1;

/// A file of embeddings that is a part of a set. Row `i` of the file is row `first + i` of the set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardFile {
    /// The absolute path, under which every executor reads the file.
    pub path: PathBuf,
    /// The number of its first row in the whole set.
    pub first: usize,
    /// Its number of rows.
    pub rows: usize,
}

/// The files of a set: those of a folder in the order of their names, those of a list that `gallerist merge` wrote, or
/// one file. Their rows are not counted yet.
///
/// # Errors
/// [`Error::Input`] for a folder without embeddings, with files of several formats, or with files
/// `shard-I-of-N` that are not all N; for a list with files of other lengths; and for a path that does not exist.
pub fn list(path: &Path) -> Result<Vec<ShardFile>> {
    let failed =
        |error: std::io::Error| Error::input(format!("cannot read `{}`: {error}", path.display()), None);
    let path = path.canonicalize().map_err(failed)?;
    if extension(&path) == Some("json") && path.is_file() {
        return joined(&path);
    }
    if path.is_file() {
        return Ok(vec![ShardFile { path, first: 0, rows: 0 }]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && extension(&file).is_some_and(|known| EXTENSIONS.contains(&known)) {
            files.push(file);
        }
    }
    files.sort();
    let Some(first) = files.first() else {
        let wanted = EXTENSIONS.map(|extension| format!(".{extension}")).join(", ");
        let problem = format!("`{}` has no files of embeddings ({wanted})", path.display());
        return Err(Error::input(problem, Some("name the folder of the shards, or one file")));
    };
    if let Some(other) = files.iter().find(|file| extension(file) != extension(first)) {
        let problem = format!(
            "`{}` has shards of several formats: `{}` and `{}`",
            path.display(),
            name(first),
            name(other)
        );
        return Err(Error::input(problem, Some("keep one file per shard in the folder")));
    }
    check_numbers(&path, &files)?;
    Ok(files.into_iter().map(|path| ShardFile { path, first: 0, rows: 0 }).collect())
}

fn extension(file: &Path) -> Option<&str> {
    file.extension()?.to_str()
}

/// The name of a file in messages and results.
pub fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// Files that are named as shards must be all of them, except those whose record says that they have no rows.
fn check_numbers(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let shards: Vec<Option<Shard>> = files.iter().map(|file| Shard::of_name(&name(file))).collect();
    let Some(count) = shards.iter().flatten().next().map(|shard| shard.count()) else { return Ok(()) };
    let refuse = |problem: String| {
        let problem = format!("`{}` {problem}", folder.display());
        Err(Error::input(problem, Some("write the missing shards, or give a folder with one set of shards")))
    };
    for (shard, file) in shards.iter().zip(files) {
        if shard.is_none_or(|shard| shard.count() != count) {
            return refuse(format!("has shards `…-of-{count:05}` and the file `{}`", name(file)));
        }
    }
    for shard in (0..count).filter_map(|index| Shard::new(index, count)) {
        if !shards.contains(&Some(shard)) && !is_without_rows(folder, shard)? {
            return refuse(format!("lacks shard {shard}, counted from 0"));
        }
    }
    Ok(())
}

/// Whether the record of a shard says that it has no file.
fn is_without_rows(folder: &Path, shard: Shard) -> Result<bool> {
    let record = ShardFolder::open(folder)?.read(&ShardRecord::file_name(shard))?;
    Ok(record
        .is_some_and(|bytes| ShardRecord::parse(&bytes, shard).is_ok_and(|record| record.file.is_none())))
}

/// The files of a list that `gallerist merge` wrote.
fn joined(list: &Path) -> Result<Vec<ShardFile>> {
    let folder = list.parent().unwrap_or(Path::new(""));
    let again = Some("verify the shards and write the list again with `gallerist merge`");
    let file = |shard: &JoinedShard| {
        let path = folder.join(&shard.file);
        let failed =
            |error: std::io::Error| Error::input(format!("cannot read `{}`: {error}", path.display()), again);
        let path = path.canonicalize().map_err(failed)?;
        let bytes = path.metadata().map_err(failed)?.len();
        if bytes != shard.bytes {
            let problem = format!("`{}` has {bytes} bytes, not {} as listed", path.display(), shard.bytes);
            return Err(Error::input(problem, again));
        }
        Ok(ShardFile { path, first: 0, rows: 0 })
    };
    JoinedShards::read(list)?.shards.iter().map(file).collect()
}

/// Numbers the rows of the files one after the other.
///
/// # Errors
/// [`Error::Input`] when the last row's number does not fit 32 bits.
pub fn number_rows(files: &mut [ShardFile], rows: impl IntoIterator<Item = usize>) -> Result<usize> {
    let mut next = 0usize;
    for (file, rows) in files.iter_mut().zip(rows) {
        (file.first, file.rows) = (next, rows);
        next += rows;
    }
    if next > MOST_ROWS {
        let problem = format!("the shards have {next} rows, and at most {MOST_ROWS} can be numbered");
        return Err(Error::input(problem, Some("search and evaluate parts of the gallery")));
    }
    Ok(next)
}

/// The rows of a shard in memory.
#[derive(Debug)]
pub struct LoadedShard {
    file: ShardFile,
    set: EmbeddingSet,
}

impl LoadedShard {
    /// Reads a file of embeddings.
    ///
    /// # Errors
    /// What [`EmbeddingSet::load`] refuses.
    pub fn load(file: &ShardFile) -> Result<Self> {
        Ok(Self { file: file.clone(), set: EmbeddingSet::load(&file.path)? })
    }

    /// [`load`](Self::load) for a file whose rows were counted before.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`Error::Input`] when it has another number of rows now.
    pub fn load_counted(file: &ShardFile) -> Result<Self> {
        let loaded = Self::load(file)?;
        let found = loaded.set.embeddings.rows();
        if found != file.rows {
            let problem = format!(
                "`{}` had {} rows when the work began, and has {found}",
                file.path.display(),
                file.rows
            );
            return Err(Error::input(problem, Some("leave the shards as they are while they are searched")));
        }
        Ok(loaded)
    }

    /// Everything in the file.
    pub fn set(&self) -> &EmbeddingSet {
        &self.set
    }

    /// Rows of these embeddings, with their numbers in the whole set.
    ///
    /// # Errors
    /// [`gallerist_retrieval::Error::TooManyRows`].
    pub fn rows(&self) -> Result<ShardRows<'_>> {
        self.rows_of(&self.set.embeddings)
    }

    /// As [`rows`](Self::rows), for other embeddings of the same rows.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn rows_of<'a>(&self, embeddings: &'a Matrix) -> Result<ShardRows<'a>> {
        Ok(ShardRows::new(embeddings, self.file.first)?)
    }

    /// The rows with their labels.
    ///
    /// # Errors
    /// [`Error::Input`] for a file without labels.
    pub fn labelled(&self) -> Result<LabelledShard<'_>> {
        Ok(LabelledShard { rows: self.rows()?, named: self.named()? })
    }

    fn named(&self) -> Result<Named<'_>> {
        let Some(labels) = self.set.labels.as_deref() else {
            let problem = format!("`{}` has no labels", self.file.path.display());
            return Err(Error::input(problem, Some("write the shards with labels (`gallerist embed`)")));
        };
        Ok(Named { labels, cameras: self.set.cameras.as_deref() })
    }

    /// Some rows of this file as a shard of their own.
    ///
    /// # Panics
    /// When there are no such rows.
    #[must_use]
    pub fn part(self, rows: std::ops::Range<usize>) -> Self {
        if rows == (0..self.file.rows) {
            return self;
        }
        let set = self.set.select(&rows.clone().collect::<Vec<_>>());
        let file = ShardFile { first: self.file.first + rows.start, rows: rows.len(), ..self.file };
        Self { file, set }
    }

    /// Names the file in an error of its rows.
    pub fn refused(&self, source: gallerist_retrieval::Error) -> Error {
        Error::Shard { file: name(&self.file.path), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(files: &[&str]) -> std::result::Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let found = list(folder.path()).map_err(|error| {
            let place = folder.path().canonicalize().unwrap().display().to_string();
            error.to_string().replace(&place, "DIR")
        })?;
        Ok(found.iter().map(|file| name(&file.path)).collect())
    }

    #[test]
    fn shards_are_read_in_the_order_of_their_names_and_must_be_complete() {
        let two = ["shard-00001-of-00002.parquet", "shard-00000-of-00002.parquet"];
        assert_eq!(listed(&[two[0], "manifest.json", two[1], ".a.parquet"]).unwrap(), [two[1], two[0]]);
        assert_eq!(listed(&["b.npy", "a.npy"]).unwrap(), ["a.npy", "b.npy"]);
        assert_eq!(listed(&two[..1]).unwrap_err(), "`DIR` lacks shard 0/2, counted from 0");
        assert_eq!(listed(&two[1..]).unwrap_err(), "`DIR` lacks shard 1/2, counted from 0");
        assert_eq!(
            listed(&[two[0], two[1], "x.parquet"]).unwrap_err(),
            "`DIR` has shards `…-of-00002` and the file `x.parquet`"
        );
        assert_eq!(
            listed(&["a.npy", "b.parquet"]).unwrap_err(),
            "`DIR` has shards of several formats: `a.npy` and `b.parquet`"
        );
        assert!(listed(&["manifest.json"]).unwrap_err().starts_with("`DIR` has no files of embeddings"));
    }
}
