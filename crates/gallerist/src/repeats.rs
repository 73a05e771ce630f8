//! Images that occur more than once in embeddings, by their sources and paths.

use std::collections::HashSet;

use gallerist_retrieval::index::Items;
use gallerist_retrieval::{EmbeddingSet, Result};

/// Rows whose image an earlier row has, too; 0 where the images are not known.
pub(crate) fn rows(set: &EmbeddingSet) -> Result<usize> {
    let Some(ids) = Items::ids_by_path(set)? else { return Ok(0) };
    let mut known = HashSet::with_capacity(ids.len());
    Ok(ids.into_iter().filter(|id| !known.insert(*id)).count())
}

/// Queries whose image is in the gallery, too; 0 where the images are not known.
pub(crate) fn shared(queries: &EmbeddingSet, gallery: &EmbeddingSet) -> Result<usize> {
    match Items::ids_by_path(gallery)? {
        Some(gallery) => shared_with_items(queries, gallery),
        None => Ok(0),
    }
}

/// Queries whose image is one of the items of an index with these ids.
pub(crate) fn shared_with_items(
    queries: &EmbeddingSet,
    items: impl IntoIterator<Item = u64>,
) -> Result<usize> {
    let Some(queries) = Items::ids_by_path(queries)? else { return Ok(0) };
    let items: HashSet<u64> = items.into_iter().collect();
    Ok(queries.iter().filter(|id| items.contains(id)).count())
}

/// The warning about so many of the queries.
pub(crate) fn warning_of_shared(shared: usize, queries: usize) -> String {
    format!("{shared} of {queries} queries are images of the gallery, too, and find themselves")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gallerist_retrieval::Matrix;
    use gallerist_retrieval::file::{Source, Sources};

    fn set(source: &str, paths: &[&str]) -> EmbeddingSet {
        let rows = paths.len();
        EmbeddingSet {
            paths: Some(paths.iter().map(|&path| path.to_owned()).collect()),
            sources: Some(Sources::one(Source { name: source.to_owned(), images: None }, rows)),
            ..Matrix::new(rows, 1, vec![1.0; rows]).unwrap().into()
        }
    }

    #[test]
    fn images_are_told_apart_by_source_and_path() {
        let one = set("a", &["1.png", "2.png", "1.png", "1.png"]);
        assert_eq!(rows(&one).unwrap(), 2);
        assert_eq!(shared(&one, &set("a", &["1.png"])).unwrap(), 3);
        assert_eq!(shared(&one, &set("b", &["1.png"])).unwrap(), 0);
        let unknown = EmbeddingSet { paths: None, ..one };
        assert_eq!((rows(&unknown).unwrap(), shared(&unknown, &unknown).unwrap()), (0, 0));
    }
}
