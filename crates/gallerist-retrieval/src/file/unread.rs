//! What a file of another program has and no set can keep.

use std::path::Path;

use safetensors::Dtype;

use super::format::{Format, format_of_existing};
use super::map::FileMap;
use super::table::{self, TableColumns};
use super::unread_column::Unread;
use super::{columns, tensors};
use crate::Result;

/// The columns of a table, and the tensors of a `.safetensors` file of another program, that
/// [`EmbeddingSet::load`](super::EmbeddingSet::load) or [`load_table`](super::EmbeddingSet::load_table) with these `columns` leaves
/// out. The embeddings are not read. Empty for other files. The index of a pandas table and columns without values
/// are not listed, nor are further embeddings if `columns` names those that are read.
///
/// ```no_run
/// use gallerist_retrieval::file::{TableColumns, unread_of};
///
/// for column in unread_of("products.parquet", &TableColumns::default())? {
///     println!("{column} is not read");
/// }
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`EmbeddingSet::load`](super::EmbeddingSet::load).
pub fn unread_of(path: impl AsRef<Path>, columns: &TableColumns) -> Result<Vec<Unread>> {
    let path = path.as_ref();
    match format_of_existing(path)? {
        Format::Safetensors => unread_tensors(path),
        Format::Table(format) => table::unread(path, format, columns),
        Format::Npy | Format::Shards => Ok(Vec::new()),
    }
}

/// A table whose description is of fewer rows than it has: another program joined tables, and kept the description of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedTable {
    /// The rows that network, metric, source, run, protocol and threshold are of.
    pub described: usize,
    /// The rows of the table.
    pub rows: usize,
}

/// Whether a Parquet or Arrow file that this program wrote has got more rows. `None` for all other files, and where nothing is
/// described.
///
/// ```no_run
/// use gallerist_retrieval::file::joined_table;
///
/// if let Some(joined) = joined_table("products.parquet")? {
///     println!("{} of {} rows are described", joined.described, joined.rows);
/// }
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`EmbeddingSet::load`](super::EmbeddingSet::load).
pub fn joined_table(path: impl AsRef<Path>) -> Result<Option<JoinedTable>> {
    let path = path.as_ref();
    let Format::Table(format) = format_of_existing(path)? else { return Ok(None) };
    let described = table::described(path, format)?;
    let joined = described.map(|(described, rows)| JoinedTable { described, rows });
    Ok(joined.filter(|joined| joined.rows > joined.described))
}

fn unread_tensors(path: &Path) -> Result<Vec<Unread>> {
    let map = FileMap::open(path)?;
    let list = || {
        let (tensors, metadata) = tensors::open(path, &map)?;
        if tensors::is_ours(&metadata) {
            return Ok(Vec::new());
        }
        let lists = ["labels", "paths", "cameras"];
        let lists = lists.into_iter().filter_map(|name| Some(tensors::list_tensor(&tensors, name)?.0));
        let mut read: Vec<String> = ["embeddings"].into_iter().chain(lists).map(str::to_owned).collect();
        if tensors.tensor("embeddings").is_ok_and(|embeddings| embeddings.dtype() == Dtype::I8) {
            read.push("scales".to_owned());
        }
        if let Some(list) = tensors::column_list(&tensors, &metadata) {
            read.extend(columns::tensor_names(list));
        }
        let others = tensors.iter().filter(|(name, _)| !read.iter().any(|read| read == name));
        let unread = |(name, tensor): (&str, _)| Unread {
            name: name.to_owned(),
            kind: type_name(&tensor),
            problem: None,
        };
        let mut unread: Vec<Unread> = others.map(unread).collect();
        unread.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(unread)
    };
    let list = list();
    map.check()?;
    list
}

fn type_name(tensor: &safetensors::tensor::TensorView) -> String {
    format!("{} {:?}", tensor.dtype(), tensor.shape())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Column, Columns};
    use crate::{Code, EmbeddingSet, Matrix};

    /// A file of two rows with these tensors, each of two rows of 8 bytes.
    fn file(path: &Path, metadata: &[(&str, &str)], tensors: &[(&str, Dtype)]) {
        let view = |&(name, dtype): &(&str, Dtype)| {
            let row = 8 * 8 / dtype.bitsize();
            let shape = if name == "embeddings" { vec![2, row] } else { vec![2 * row] };
            (name.to_owned(), safetensors::tensor::TensorView::new(dtype, shape, &[0; 16]).unwrap())
        };
        let metadata = metadata.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let bytes = safetensors::serialize(tensors.iter().map(view), Some(metadata.collect())).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn tensors_of_other_programs_that_are_not_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let unread = |metadata: &[(&str, &str)], tensors: &[(&str, Dtype)]| {
            file(&path, metadata, &[tensors, &[("embeddings", Dtype::F64)]].concat());
            let unread = unread_of(&path, &TableColumns::default()).unwrap();
            unread.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(unread(&[], &[("labels", Dtype::I64), ("path", Dtype::I64)]).is_empty());
        let near = [("Labels", Dtype::I64), ("price", Dtype::F64), ("scales", Dtype::F32)];
        assert_eq!(unread(&[], &near), ["`Labels` (I64 [2])", "`price` (F64 [2])", "`scales` (F32 [4])"]);
        // The plural is read.
        assert_eq!(unread(&[], &[("label", Dtype::I64), ("labels", Dtype::I64)]), ["`label` (I64 [2])"]);
        let list = [("columns", r#"[{"name":"a","kind":"number"},{"name":"b","kind":"text"}]"#)];
        let columns = ["column.0", "column.1", "column.1.values", "column.2"].map(|name| (name, Dtype::F64));
        assert_eq!(unread(&list, &columns), ["`column.2` (F64 [2])"]);
        assert_eq!(unread(&[], &columns[..1]), ["`column.0` (F64 [2])"]);
    }

    #[test]
    fn everything_in_our_own_files_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let set = EmbeddingSet {
            labels: Some(vec!["a".into(), "b".into()]),
            columns: Columns::new(vec![Column::infer("shop", ["x", "y"]).unwrap()]).unwrap(),
            ..Matrix::new(2, 1, vec![1.0, 2.0]).unwrap().into()
        };
        set.save(&path).unwrap();
        assert_eq!(unread_of(&path, &TableColumns::default()).unwrap(), []);
        set.save_compact(&path, Code::Int8).unwrap();
        assert_eq!(unread_of(&path, &TableColumns::default()).unwrap(), []);
    }
}
