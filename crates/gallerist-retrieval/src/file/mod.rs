//! Embeddings on disk: `.safetensors` with everything that belongs to them, `.npy` with the
//! numbers alone. [`MappedMatrix`] leaves them there.

mod atomic;
pub(crate) mod columns;
mod format;
mod join;
mod label_list;
pub(crate) mod map;
mod mapped;
pub mod npy;
pub(crate) mod sealed;
mod set;
mod shape;
pub mod shards;
mod single;
mod sources;
mod table;
pub(crate) mod tensors;
mod tensors_out;
mod threshold;
mod unread;
mod unread_column;

use std::path::Path;

use format::{Format, format_of, format_of_existing};
use join::Join;

use crate::columns::Columns;
use crate::{Code, Error, Result};

pub use atomic::{is_stray, prepare_to_write, sweep_stray_files, write_atomically};
pub use gallerist_util::files::{open_regular, read_regular, read_regular_to_string};
pub use label_list::load_labels;
pub use mapped::{MappedCompact, MappedMatrix};
pub use set::EmbeddingSet;
pub(crate) use sources::NONE as NO_SOURCE;
pub use sources::{Source, Sources};
pub use table::TableColumns;
pub use threshold::{has_checksum, read_threshold, write_threshold};
pub use unread::{JoinedTable, joined_table, unread_of};
pub use unread_column::Unread;

/// The [columns](crate::columns) of a file of embeddings. Of a `.safetensors` file, the embeddings are not read.
///
/// # Errors
/// As [`EmbeddingSet::load`].
pub fn columns_of(path: impl AsRef<Path>) -> Result<Columns> {
    let path = path.as_ref();
    match format_of_existing(path)? {
        Format::Safetensors => tensors::columns_of(path),
        _ => Ok(EmbeddingSet::load(path)?.columns),
    }
}

impl EmbeddingSet {
    /// Reads a `.npy` or `.safetensors` file, with the feature `arrow` a `.parquet`, `.arrow`, `.feather` or `.ipc` file, or the
    /// [joined shards](shards::JoinedShards) of a `.json` file: all their rows. Values are not looked at: a NaN is found by
    /// [`Matrix::check_finite`](crate::Matrix::check_finite), which search and evaluation call.
    ///
    /// # Errors
    /// [`Error::Extension`], [`Error::Io`], and [`Error::Format`] for a file that is cut short,
    /// damaged or of a type that is not read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match format_of_existing(path)? {
            Format::Shards => shards::JoinedShards::read(path)?.load(path),
            format => single::load(path, &format),
        }
    }

    /// [`load`](Self::load) with the columns of a Parquet or Arrow file (feature `arrow`) by their names.
    ///
    /// ```no_run
    /// use gallerist_retrieval::{EmbeddingSet, file::TableColumns};
    ///
    /// let columns = TableColumns { embedding: Some("clip_vector".into()), ..TableColumns::default() };
    /// let set = EmbeddingSet::load_table("products.parquet", &columns)?;
    /// println!("{} rows, {} further columns", set.embeddings.rows(), set.columns.len());
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`load`](Self::load), [`Error::Extension`] for a file that is no table, and [`Error::Format`] for a column that
    /// it does not have.
    pub fn load_table(path: impl AsRef<Path>, columns: &TableColumns) -> Result<Self> {
        let path = path.as_ref();
        match format_of_existing(path)? {
            Format::Table(format) => table::load(path, format, columns),
            Format::Npy | Format::Safetensors | Format::Shards => {
                let wanted = "`.parquet`, `.arrow`, `.feather` or `.ipc`";
                Err(Error::Extension { path: path.to_owned(), wanted })
            }
        }
    }

    /// Writes a file of one of the formats of [`load`](Self::load) through [`write_atomically`]. A `.npy` file holds
    /// the embeddings only.
    ///
    /// # Errors
    /// [`Error::Count`] when a list has not one entry per row, [`Error::Extension`] and
    /// [`Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let format = format_of(path)?;
        self.check_counts()?;
        match format {
            Format::Npy => npy::write_f32(path, &self.embeddings),
            Format::Safetensors => tensors_out::save(path, self, None),
            Format::Table(format) => table::save(path, format, self),
            Format::Shards => unreachable!("only files that exist are joined shards"),
        }
    }

    /// Writes a `.safetensors` file with the embeddings in bf16 or int8: half or a quarter of the
    /// bytes. [`load`](Self::load) reads it like any other, and decodes the embeddings;
    /// [`MappedCompact`] leaves them as they are.
    ///
    /// # Errors
    /// As [`save`](Self::save), and [`Error::NonFinite`] and [`Error::Option`] for what
    /// [`CompactMatrix::encode`](crate::CompactMatrix::encode) refuses.
    pub fn save_compact(&self, path: impl AsRef<Path>, code: Code) -> Result<()> {
        let path = path.as_ref();
        self.check_counts()?;
        match format_of(path)? {
            Format::Npy | Format::Table(_) | Format::Shards => Err(Error::Extension {
                path: path.to_owned(),
                wanted: "`.safetensors`, the format that holds bf16 and int8",
            }),
            Format::Safetensors => tensors_out::save(path, self, Some(code)),
        }
    }

    /// All rows of `sets`, one set after the other. What not all of them have, labels for one, is
    /// left out, as is a run or protocol that differs. Every row keeps its source. Columns are joined by
    /// [`Columns::concat`](crate::columns::Columns::concat). A threshold of one of the sets holds for all of them if they are of one
    /// known network and no other set has another threshold.
    ///
    /// Distances between embeddings of different networks mean nothing: sets that name different
    /// models, or of which only some name one, are refused unless `mix_models`, and the result then
    /// names none. The same holds for the metric: rows of length 1 (cosine; also where no metric is named) and rows
    /// as a network gives them (Euclidean distance) do not mix.
    ///
    /// ```
    /// use gallerist_retrieval::{EmbeddingSet, Matrix};
    ///
    /// let one = EmbeddingSet { model: Some("a1".into()), ..Matrix::new(1, 1, vec![1.0])?.into() };
    /// let two = EmbeddingSet { model: Some("b2".into()), ..one.clone() };
    /// assert!(EmbeddingSet::concat(vec![one.clone(), two.clone()], false).is_err());
    /// assert_eq!(EmbeddingSet::concat(vec![one, two], true)?.embeddings.rows(), 2);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Empty`] without sets, [`Error::Dimensions`], [`Error::Models`], [`Error::Metrics`],
    /// [`Error::Count`].
    pub fn concat(sets: Vec<Self>, mix_models: bool) -> Result<Self> {
        let values = sets.iter().map(|set| set.embeddings.as_slice().len()).sum();
        let mut sets = sets.into_iter();
        let first = sets.next().ok_or(Error::Empty { what: "the list of sets" })?;
        let mut join = Join::new(first, mix_models, values)?;
        sets.try_for_each(|set| join.push(set))?;
        join.finish()
    }

    /// These rows with all their information, in the given order.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let list = |list: &Option<Vec<String>>| {
            list.as_ref().map(|list| rows.iter().map(|&row| list[row].clone()).collect())
        };
        Self {
            embeddings: self.embeddings.select(rows),
            labels: list(&self.labels),
            paths: list(&self.paths),
            cameras: list(&self.cameras),
            columns: self.columns.select(rows),
            model: self.model.clone(),
            source: self.source.clone(),
            sources: self.sources.as_ref().and_then(|sources| sources.select(rows).or_none()),
            run: self.run.clone(),
            metric: self.metric,
            protocol: self.protocol.clone(),
            threshold: self.threshold.clone(),
        }
    }

    /// Gives all rows one source of this name; where its images are stays known if all rows had one
    /// source before.
    pub fn name_source(&mut self, name: impl Into<String>) {
        let before = self.sources.as_ref().filter(|sources| sources.is_one());
        let images = before.and_then(|sources| sources.list()[0].images.clone());
        let source = Source { name: name.into(), images };
        self.sources = Some(Sources::one(source, self.embeddings.rows()));
    }

    /// The name of the source of a row, where it has one.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn source_of(&self, row: usize) -> Option<&str> {
        Some(self.sources.as_ref()?.get(row)?.name.as_str())
    }

    /// Refuses a set whose labels, paths, cameras, columns or sources are not one per embedding.
    ///
    /// # Errors
    /// [`Error::Count`].
    pub fn check_counts(&self) -> Result<()> {
        let length = |list: &Option<Vec<String>>| list.as_ref().map(Vec::len);
        let lists = [
            ("labels", length(&self.labels)),
            ("paths", length(&self.paths)),
            ("cameras", length(&self.cameras)),
            ("values of each column", self.columns.rows()),
            ("sources", self.sources.as_ref().map(Sources::len)),
        ];
        let wanted = self.embeddings.rows();
        for (what, found) in lists {
            if let Some(found) = found.filter(|&found| found != wanted) {
                return Err(Error::Count { what, rows: "embeddings", wanted, found });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    fn set(values: Vec<f32>, model: Option<&str>, labels: Option<&[&str]>) -> EmbeddingSet {
        EmbeddingSet {
            model: model.map(str::to_owned),
            labels: labels.map(|labels| labels.iter().map(|&label| label.to_owned()).collect()),
            source: Some("photos".to_owned()),
            ..Matrix::new(values.len() / 2, 2, values).unwrap().into()
        }
    }

    #[test]
    fn a_short_file_of_countless_rows_without_values_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let safetensors = |rows: u64| {
            let tensor = format!(r#""embeddings":{{"dtype":"F32","shape":[{rows},0],"data_offsets":[0,0]}}"#);
            let header = format!("{{{tensor}}}");
            [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
        };
        let npy = |rows: u64| {
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 0), }}\n");
            [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat()
        };
        std::fs::write(path("a.safetensors"), safetensors(1 << 40)).unwrap();
        std::fs::write(path("a.npy"), npy(1 << 40)).unwrap();
        for name in ["a.safetensors", "a.npy"] {
            let wanted = "dimensions must be at least 1, 0 given";
            assert_eq!(EmbeddingSet::load(path(name)).unwrap_err().to_string(), wanted, "{name}");
            assert_eq!(MappedMatrix::open(path(name)).err().unwrap().to_string(), wanted, "{name}");
        }
        assert!(MappedCompact::open(path("a.safetensors")).is_err());
        // No rows are no embeddings, of whatever length.
        std::fs::write(path("b.npy"), npy(0)).unwrap();
        assert_eq!(EmbeddingSet::load(path("b.npy")).unwrap().embeddings.rows(), 0);
    }

    #[test]
    fn sets_of_one_model_are_joined_in_order() {
        let one = set(vec![1.0, 2.0], Some("a"), Some(&["x"]));
        let two = set(vec![3.0, 4.0, 5.0, 6.0], Some("a"), Some(&["y", "z"]));
        let all = EmbeddingSet::concat(vec![one.clone(), two.clone()], false).unwrap();
        assert_eq!(all, set(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Some("a"), Some(&["x", "y", "z"])));
        let two = EmbeddingSet { labels: None, source: None, ..two };
        let all = EmbeddingSet::concat(vec![one, two], false).unwrap();
        assert_eq!((all.labels, all.source), (None, None));
    }

    #[test]
    fn sets_of_two_models_are_refused_unless_asked_for() {
        let (a, b, none) = ("a1".repeat(32), "b2".repeat(32), None);
        let named = |model| set(vec![1.0, 2.0], model, None);
        let error = EmbeddingSet::concat(vec![named(Some(&a)), named(Some(&b))], false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "one set was embedded with the network a1a1a1a1a1a1a1a1, another with b2b2b2b2b2b2b2b2"
        );
        assert!(error.hint().is_some());
        let error = EmbeddingSet::concat(vec![named(none), named(Some(&b))], false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "one set was embedded with an unknown network, another with b2b2b2b2b2b2b2b2"
        );
        let all = EmbeddingSet::concat(vec![named(Some(&a)), named(Some(&b)), named(Some(&a))], true);
        let all = all.unwrap();
        assert_eq!((all.embeddings.rows(), all.model), (3, None));
    }

    #[test]
    fn sets_that_do_not_fit_are_refused() {
        let narrow = EmbeddingSet::from(Matrix::new(1, 1, vec![1.0]).unwrap());
        let wide = set(vec![1.0, 2.0], None, None);
        assert!(EmbeddingSet::concat(vec![wide.clone(), narrow], false).is_err());
        assert!(EmbeddingSet::concat(vec![], false).is_err());
        let short = EmbeddingSet { labels: Some(vec![]), ..wide.clone() };
        assert!(EmbeddingSet::concat(vec![wide, short], false).is_err());
    }

    #[test]
    fn rows_are_selected_with_all_that_is_known_about_them() {
        let known = |rows: &[&str]| Some(rows.iter().map(|&row| row.to_owned()).collect::<Vec<_>>());
        let whole = EmbeddingSet {
            labels: known(&["a", "b", "c"]),
            cameras: known(&["1", "2", "3"]),
            model: Some("m".to_owned()),
            ..Matrix::new(3, 1, vec![0.0, 1.0, 2.0]).unwrap().into()
        };
        let selected = EmbeddingSet {
            embeddings: Matrix::new(2, 1, vec![2.0, 0.0]).unwrap(),
            labels: known(&["c", "a"]),
            cameras: known(&["3", "1"]),
            ..whole.clone()
        };
        assert_eq!(whole.select(&[2, 0]), selected);
        assert_eq!(whole.select(&[]).embeddings.rows(), 0);
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_missing_whatever_its_ending() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["set.npy", "set.safetensors", "set", "set.toml"] {
            let path = folder.path().join(name);
            for error in [
                EmbeddingSet::load(&path).unwrap_err(),
                MappedMatrix::open(&path).err().unwrap(),
                MappedCompact::open(folder.path().join("set")).err().unwrap(),
            ] {
                assert!(matches!(error, Error::Io { action: "read", .. }), "{error}");
            }
        }
        std::fs::write(folder.path().join("set"), "text").unwrap();
        let error = EmbeddingSet::load(folder.path().join("set")).unwrap_err();
        assert!(matches!(error, Error::Extension { .. }), "{error}");
    }

    #[test]
    fn images_and_runs_are_refused_with_the_command_or_the_file_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        for (name, what) in [("photos.zip", "an archive of images"), ("photos.csv", "a table")] {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            let error = EmbeddingSet::load(&path).unwrap_err();
            assert!(error.to_string().ends_with(&format!("as embeddings: it is {what}")), "{error}");
        }
        // A name with the ending of a file does not hide that it is a folder.
        for name in ["photos", "photos.safetensors"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            let error = EmbeddingSet::load(&path).unwrap_err();
            assert!(error.to_string().ends_with("as embeddings: it is a folder"), "{error}");
            let hint = error.hint().unwrap();
            assert!(
                hint.contains(&format!("gallerist embed --run RUN --images {}", path.display())),
                "{hint}"
            );
        }
        let run = folder.path().join("photos");
        std::fs::write(run.join("query.safetensors"), "").unwrap();
        std::fs::write(run.join("gallery.safetensors"), "").unwrap();
        let hint = EmbeddingSet::load(&run).unwrap_err().hint().unwrap();
        let (query, gallery) = (run.join("query.safetensors"), run.join("gallery.safetensors"));
        assert_eq!(hint, format!("name the file of this run: {} or {}", query.display(), gallery.display()));
    }
}
