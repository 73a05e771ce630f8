//! The gallery and its labels.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use gallerist_data::to_nfc;
use gallerist_retrieval::condition::Table;
use gallerist_retrieval::eval::MatchRule;

use super::error::{Answer, ErrorBody};
use super::extract::{Json, Params, Shared};

/// The gallery, and what this server can do with it.
#[derive(Serialize, ToSchema)]
pub(crate) struct GalleryBody {
    /// The file or address it was opened from, without folders.
    name: String,
    /// The name of the gallery on this server: the value of the parameter `gallery`.
    gallery: String,
    /// The names of all galleries of this server. The first answers requests without the parameter.
    galleries: Vec<String>,
    /// The number of items.
    count: usize,
    /// Values per embedding.
    dimensions: usize,
    /// How images are compared: `cosine` or `euclidean`.
    #[schema(example = "cosine")]
    metric: &'static str,
    /// `exact`, `compact`, `hnsw`, `milvus` or `qdrant`.
    kind: &'static str,
    /// The fingerprint of the network.
    model: Option<String>,
    /// The name of the run directory of the network.
    run: Option<String>,
    /// Whether items have labels.
    labelled: bool,
    /// The number of distinct labels.
    label_count: usize,
    /// Whether the images are available.
    images: bool,
    /// Whether uploaded images can be used as queries.
    upload: bool,
    /// Whether texts can be used as queries.
    text: bool,
    /// Whether heat maps of two images are available.
    heatmap: bool,
    /// Whether items can be added and removed.
    writable: bool,
    /// `ready`, `computing` or `none`.
    map: &'static str,
    /// `ready`, `computing` or `none`.
    failures: &'static str,
    /// The query set; null if there is none.
    queries: Option<QuerySet>,
    /// The rules by which queries are compared with the gallery; null if every item is compared with all others.
    protocol: Option<ProtocolBody>,
    /// The threshold by which results are marked; null if none was calibrated.
    threshold: Option<ThresholdBody>,
    /// The further columns of the items.
    columns: Vec<ColumnBody>,
    /// The name of the other network, if there is a comparison.
    compare: Option<String>,
    /// The name of this network in the comparison.
    compare_own: Option<String>,
    /// The training set whose images are searched in the gallery.
    training: Option<String>,
    /// Whether the images of the training set are available.
    training_images: bool,
    limits: Limits,
}

/// A further column of the items.
#[derive(Serialize, ToSchema)]
pub(crate) struct ColumnBody {
    name: String,
    /// `number`, `date`, `text` or `tags`.
    #[schema(example = "number")]
    kind: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Limits {
    /// The largest request body, in bytes.
    upload_bytes: usize,
    /// The largest number of results of a search.
    k: usize,
    /// The largest number of queries in one search.
    queries: usize,
}

/// The queries of the evaluation.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuerySet {
    /// The name of their file, without folders.
    name: String,
    count: usize,
    /// Whether their images are available.
    images: bool,
}

/// Which items count for a query.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProtocolBody {
    /// Null where cameras alone decide, or nothing.
    #[schema(example = "market1501")]
    name: Option<&'static str>,
    /// The benchmark.
    #[schema(example = "Market-1501")]
    title: Option<&'static str>,
    /// The rules in words.
    rule: String,
}

/// A calibrated threshold (`gallerist threshold`).
#[derive(Serialize, ToSchema)]
pub(crate) struct ThresholdBody {
    /// Results within this distance are matches.
    distance: f32,
    /// Results within this distance are near: the threshold of ten times the false match rate.
    near: f32,
    /// What the rates count: `comparison` (of two images) or `search` (of the gallery).
    #[schema(example = "comparison")]
    rate: &'static str,
    /// The false match rate that was asked for.
    target: f64,
    /// The upper bound of the false match rate with this confidence.
    bound: f64,
    confidence: f64,
    /// The miss rate at the threshold; null if unknown.
    miss_rate: Option<f64>,
    /// Per search: the number of images in the gallery that the threshold was calibrated with; null per comparison.
    gallery: Option<usize>,
}

impl ThresholdBody {
    fn of(rule: &MatchRule) -> Self {
        Self {
            distance: rule.distance(),
            near: rule.near_distance(),
            rate: rule.rate.name(),
            target: rule.target,
            bound: rule.bound,
            confidence: rule.confidence,
            miss_rate: rule.miss_rate,
            gallery: rule.gallery,
        }
    }
}

/// The gallery.
#[utoipa::path(get, path = "/api/v1/gallery", tag = "gallery", responses((status = 200, body = GalleryBody)))]
pub(crate) async fn gallery(state: Shared) -> Json<GalleryBody> {
    let gallery = &state.gallery;
    let catalog = gallery.catalog();
    let label_count = catalog.labels.counts().count();
    let origin = gallery.origin();
    let (compare_own, compare) = state.other.as_ref().map(|other| other.names(gallery)).unzip();
    Json(GalleryBody {
        name: last_part(gallery.name()),
        gallery: state.name.to_string(),
        galleries: state.names.to_vec(),
        count: catalog.len(),
        dimensions: gallery.dimensions(),
        metric: gallery.metric().name(),
        kind: gallery.kind(),
        model: origin.model.clone(),
        run: origin.run.as_deref().map(last_part),
        columns: catalog
            .columns()
            .iter()
            .map(|column| ColumnBody { name: column.name().to_owned(), kind: column.kind().to_string() })
            .collect(),
        labelled: label_count > 0,
        label_count,
        images: state.images.is_some(),
        upload: state.embedder.is_some(),
        text: state.embedder.as_ref().is_some_and(|embedder| embedder.has_text()),
        heatmap: state.images.is_some() && state.embedder.is_some(),
        writable: state.options.is_writable() && gallery.is_index(),
        map: state.analysis.map.state(),
        failures: state.analysis.failures.state(),
        queries: state.queries.as_ref().map(|queries| QuerySet {
            name: last_part(&queries.name),
            count: queries.catalog.len(),
            images: queries.images.is_some(),
        }),
        protocol: state.rules.words.as_ref().map(|words| ProtocolBody {
            name: state.rules.protocol.map(|protocol| protocol.name),
            title: state.rules.protocol.map(|protocol| protocol.title),
            rule: words.clone(),
        }),
        threshold: origin.threshold_of(gallery.metric()).map(ThresholdBody::of),
        compare,
        compare_own,
        training: state.training.as_ref().map(|training| last_part(&training.name)),
        training_images: state.training.as_ref().is_some_and(|training| training.images.is_some()),
        limits: Limits {
            upload_bytes: state.options.upload_bytes,
            k: state.options.k,
            queries: state.options.queries,
        },
    })
}

/// A path without its folders, which clients must not see.
pub(super) fn last_part(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabelParams {
    /// Only labels that contain this text, ignoring case.
    #[serde(default, alias = "prefix")]
    contains: String,
    /// The number of labels, at most 1,000.
    #[serde(default = "fifty")]
    limit: usize,
}

/// The default number of entries of a list.
pub(super) fn fifty() -> usize {
    50
}

#[derive(Serialize, ToSchema)]
pub(crate) struct LabelList {
    /// The number of labels that match.
    total: usize,
    /// The first of them, sorted.
    labels: Vec<LabelCount>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct LabelCount {
    label: String,
    /// The number of gallery items with this label.
    count: usize,
    /// The number of queries with this label.
    queries: usize,
}

/// The labels of the gallery and of the queries, sorted.
#[utoipa::path(
    get, path = "/api/v1/labels", tag = "gallery", params(LabelParams),
    responses((status = 200, body = LabelList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn labels(state: Shared, Params(params): Params<LabelParams>) -> Answer<Json<LabelList>> {
    let wanted = params.contains.to_lowercase();
    // A gallery that another program wrote may have labels that are not in the form NFC.
    let mut composed = wanted.clone();
    to_nfc(&mut composed);
    let own = state.gallery.catalog();
    let mut counts: HashMap<&str, [usize; 2]> = HashMap::new();
    let sides = [Some(&*own), state.queries.as_ref().map(|queries| &queries.catalog)];
    for (at, catalog) in sides.iter().enumerate() {
        let labels = catalog.iter().flat_map(|catalog| catalog.labels.counts());
        let labels = labels.filter(|(label, _)| {
            let label = label.to_lowercase();
            label.contains(&wanted) || label.contains(&composed)
        });
        labels.for_each(|(label, count)| counts.entry(label).or_default()[at] = count);
    }
    let mut found: Vec<_> = counts.into_iter().collect();
    found.sort_unstable();
    let first = found.iter().take(params.limit.min(1000));
    let labels =
        first.map(|&(label, [count, queries])| LabelCount { label: label.to_owned(), count, queries });
    let labels = labels.collect();
    Ok(Json(LabelList { total: found.len(), labels }))
}
