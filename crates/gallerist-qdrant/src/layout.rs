//! How a collection stores a gallery: its vectors, its metadata.
//!
//! | vector | distance | content |
//! | --- | --- | --- |
//! | `embedding` | `Dot` or `Euclid` | the embedding, as it was given |
//! | `cosine` | `Cosine` | the same; the server changes it to length 1. Only in collections of the metric cosine |
//!
//! The metadata `gallerist.version`, `.model`, `.run`, `.source`, `.metric_of_rows` and `.threshold` say that it is a gallery,
//! and of what; `gallerist.column.*` are the [columns](crate::columns).

use std::collections::BTreeMap;

use gallerist_database::{CollectionLayout, Search, origin_of, origin_texts};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::index::Origin;
use gallerist_retrieval::search::Metric;

use crate::wire::collections::{
    COSINE, CollectionConfig, DOT, EUCLID, HnswConfigDiff, VectorParams, VectorParamsMap, Vectors,
    VectorsConfig,
};
use crate::wire::value::{Object, Value};

/// The vector with the embedding.
pub(crate) const EMBEDDING: &str = "embedding";
/// The vector that is searched by the cosine.
pub(crate) const UNIT: &str = "cosine";
/// Dimensions that Qdrant allows.
pub(crate) const MOST_DIMENSIONS: usize = 65_536;

const VERSION_KEY: &str = "gallerist.version";
const VERSION: i64 = 1;

/// The vector that is searched.
pub(crate) fn searched(metric: Metric) -> &'static str {
    if metric == Metric::Cosine { UNIT } else { EMBEDDING }
}

/// The vectors of a collection.
pub(crate) fn vectors(layout: &CollectionLayout) -> VectorsConfig {
    let (m, ef_construct) = match layout.search {
        Search::Flat => (0, None),
        Search::Hnsw { m, ef_construction } => (m as u64, Some(ef_construction as u64)),
    };
    let graph = HnswConfigDiff { m: Some(m), ef_construct };
    let none = HnswConfigDiff { m: Some(0), ef_construct: None };
    let of = |distance, graph, on_disk| VectorParams {
        size: layout.dimensions as u64,
        distance,
        hnsw_config: Some(graph),
        on_disk,
    };
    let map = match layout.metric {
        Metric::InnerProduct => vec![(EMBEDDING, of(DOT, graph, None))],
        Metric::Euclidean => vec![(EMBEDDING, of(EUCLID, graph, None))],
        // The embedding is only fetched, not searched.
        Metric::Cosine => vec![(EMBEDDING, of(DOT, none, Some(true))), (UNIT, of(COSINE, graph, None))],
    };
    let map = map.into_iter().map(|(name, params)| (name.to_owned(), params)).collect();
    VectorsConfig { config: Some(Vectors::Named(VectorParamsMap { map })) }
}

/// The metadata of a new gallery.
pub(crate) fn metadata() -> Object {
    [(VERSION_KEY.to_owned(), Value::integer(VERSION))].into()
}

/// Reads the layout of a collection; the error says what is not as a gallery has it.
pub(crate) fn read(config: &CollectionConfig) -> Result<CollectionLayout, String> {
    match config.metadata.get(VERSION_KEY).map(Value::as_integer) {
        Some(Some(VERSION)) => {}
        Some(Some(other)) => return Err(format!("wanted {VERSION_KEY} = {VERSION}, found {other}")),
        Some(None) | None => return Err(format!("wanted the metadata {VERSION_KEY}, found none")),
    }
    let named = config.params.as_ref().and_then(|params| params.vectors_config.as_ref()?.config.as_ref());
    let none = BTreeMap::new();
    let map = match named {
        Some(Vectors::Named(named)) => &named.map,
        None => &none,
    };
    let embedding = map.get(EMBEDDING).ok_or("wanted a vector `embedding`, found none")?;
    let dimensions = usize::try_from(embedding.size).unwrap_or(usize::MAX);
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        return Err(format!("wanted embeddings of 1 to {MOST_DIMENSIONS} dimensions, found {dimensions}"));
    }
    let (metric, searched) = match (map.get(UNIT), embedding.distance) {
        (Some(unit), DOT) if unit.distance == COSINE && unit.size == embedding.size => (Metric::Cosine, unit),
        (None, DOT) => (Metric::InnerProduct, embedding),
        (None, EUCLID) => (Metric::Euclidean, embedding),
        _ => {
            return Err(
                "wanted the distance Dot or Euclid for `embedding`, or Dot with a vector `cosine` of \
                        the same size and the distance Cosine"
                    .to_owned(),
            );
        }
    };
    let graph = searched.hnsw_config.unwrap_or_default();
    let search = match graph.m {
        Some(0) => Search::Flat,
        Some(m) => {
            Search::Hnsw { m: m as usize, ef_construction: graph.ef_construct.unwrap_or_default() as usize }
        }
        None => {
            return Err(format!(
                "wanted the number of neighbours of the graph of `{}`",
                self::searched(metric)
            ));
        }
    };
    Ok(CollectionLayout { dimensions, metric, search })
}

/// The metadata that say where a gallery's embeddings come from, as far as a set says it.
pub(crate) fn origin_metadata(set: &EmbeddingSet) -> Object {
    origin_texts(set).into_iter().map(|(key, text)| (key.to_owned(), Value::text(&text))).collect()
}

/// Where a gallery's embeddings come from.
pub(crate) fn origin(metadata: &Object) -> Origin {
    origin_of(|key| metadata.get(key).and_then(Value::as_text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::collections::CollectionParams;

    fn config(layout: &CollectionLayout) -> CollectionConfig {
        let params = Some(CollectionParams { vectors_config: Some(vectors(layout)) });
        CollectionConfig { params, metadata: metadata() }
    }

    #[test]
    fn a_layout_is_read_back() {
        for metric in [Metric::Cosine, Metric::Euclidean, Metric::InnerProduct] {
            for search in [Search::Flat, Search::Hnsw { m: 16, ef_construction: 200 }] {
                let layout = CollectionLayout { dimensions: 7, metric, search };
                assert_eq!(read(&config(&layout)).unwrap(), layout);
            }
        }
    }

    #[test]
    fn what_another_program_made_is_refused_with_a_reason() {
        let layout = CollectionLayout { dimensions: 7, metric: Metric::Cosine, search: Search::Flat };
        let changed = |change: &dyn Fn(&mut CollectionConfig, &mut BTreeMap<String, VectorParams>)| {
            let mut config = config(&layout);
            let Some(Vectors::Named(VectorParamsMap { mut map })) = vectors(&layout).config else { panic!() };
            change(&mut config, &mut map);
            let vectors = VectorsConfig { config: Some(Vectors::Named(VectorParamsMap { map })) };
            config.params.get_or_insert_default().vectors_config = Some(vectors);
            read(&config).unwrap_err()
        };
        assert!(changed(&|config, _| config.metadata.clear()).contains("gallerist.version, found none"));
        let newer = |config: &mut CollectionConfig| {
            config.metadata.insert(VERSION_KEY.to_owned(), Value::integer(9));
        };
        assert!(changed(&|config, _| newer(config)).contains("= 1, found 9"));
        assert!(changed(&|_, map| map.clear()).contains("a vector `embedding`"));
        assert!(changed(&|_, map| map.get_mut(UNIT).unwrap().size = 8).contains("of the same size"));
        assert!(changed(&|_, map| map.get_mut(EMBEDDING).unwrap().distance = 4).contains("Dot or Euclid"));
        assert!(changed(&|_, map| map.get_mut(UNIT).unwrap().hnsw_config = None).contains("neighbours"));
        for size in [0, 65_537, u64::MAX] {
            let error = changed(&|_, map| map.get_mut(EMBEDDING).unwrap().size = size);
            assert!(error.contains("1 to 65536 dimensions"), "{error}");
        }
    }
}
