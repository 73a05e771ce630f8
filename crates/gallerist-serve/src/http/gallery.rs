//! What the gallery is, and its labels.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::error::{Answer, ErrorBody};
use super::extract::{Json, Params};

/// What the gallery is, and what this server can do with it.
#[derive(Serialize, ToSchema)]
pub(crate) struct GalleryBody {
    /// What it was opened from, without its folder.
    name: String,
    /// Items.
    count: usize,
    /// Values per embedding.
    dimensions: usize,
    /// How images are compared: `cosine` or `euclidean`.
    #[schema(example = "cosine")]
    metric: &'static str,
    /// `exact`, `compact`, `hnsw` or `milvus`.
    kind: &'static str,
    /// The fingerprint of the network.
    model: Option<String>,
    /// The run directory of the network, without its folder.
    run: Option<String>,
    /// Whether items have labels.
    labelled: bool,
    /// Distinct labels.
    label_count: usize,
    /// Whether the images are at hand.
    images: bool,
    /// Whether images can be searched for that are not in the gallery.
    upload: bool,
    /// Whether it can be shown why two images are close.
    heatmap: bool,
    /// Whether items can be added and removed.
    writable: bool,
    /// `ready`, `computing` or `none`.
    map: &'static str,
    /// `ready`, `computing` or `none`.
    failures: &'static str,
    /// The gallery that this one is compared with.
    compare: Option<String>,
    /// The training set whose images are looked for in the gallery.
    training: Option<String>,
    limits: Limits,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Limits {
    /// Most bytes of a request.
    upload_bytes: usize,
    /// Most results of a search.
    k: usize,
    /// Most queries of a search.
    queries: usize,
}

/// What the gallery is.
#[utoipa::path(get, path = "/api/v1/gallery", tag = "gallery", responses((status = 200, body = GalleryBody)))]
pub(crate) async fn gallery(state: Shared) -> Json<GalleryBody> {
    let gallery = &state.gallery;
    let inside = gallery.read();
    let label_count = inside.catalog.labels.counts().count();
    let origin = gallery.origin();
    Json(GalleryBody {
        name: last_part(gallery.name()),
        count: inside.catalog.len(),
        dimensions: gallery.dimensions(),
        metric: gallery.metric().name(),
        kind: gallery.kind(),
        model: origin.model.clone(),
        run: origin.run.as_deref().map(last_part),
        labelled: label_count > 0,
        label_count,
        images: state.images.is_some(),
        upload: state.embedder.is_some(),
        heatmap: state.images.is_some() && state.embedder.is_some(),
        writable: state.options.token.is_some(),
        map: state.analysis.map.state(),
        failures: state.analysis.failures.state(),
        compare: state.other.as_ref().map(|other| last_part(&other.name)),
        training: state.training.as_deref().map(last_part),
        limits: Limits {
            upload_bytes: state.options.upload_bytes,
            k: state.options.k,
            queries: state.options.queries,
        },
    })
}

/// A path without its folders, which are nobody's business.
pub(super) fn last_part(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabelParams {
    /// Only labels that contain this, whatever the case of its letters.
    #[serde(default)]
    prefix: String,
    /// Most labels, at most 1,000.
    #[serde(default = "fifty")]
    limit: usize,
}

/// How many there are in a list unless said otherwise.
pub(super) fn fifty() -> usize {
    50
}

#[derive(Serialize, ToSchema)]
pub(crate) struct LabelList {
    /// Labels that match.
    total: usize,
    /// The first of them, sorted.
    labels: Vec<LabelCount>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct LabelCount {
    label: String,
    /// Items with this label.
    count: usize,
}

/// The labels of the gallery, sorted.
#[utoipa::path(
    get, path = "/api/v1/labels", tag = "gallery", params(LabelParams),
    responses((status = 200, body = LabelList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn labels(state: Shared, Params(params): Params<LabelParams>) -> Answer<Json<LabelList>> {
    let wanted = params.prefix.to_lowercase();
    let inside = state.gallery.read();
    let counts = inside.catalog.labels.counts();
    let mut found: Vec<_> = counts.filter(|(label, _)| label.to_lowercase().contains(&wanted)).collect();
    found.sort_unstable();
    let first = found.iter().take(params.limit.min(1000));
    let labels = first.map(|&(label, count)| LabelCount { label: label.to_owned(), count }).collect();
    Ok(Json(LabelList { total: found.len(), labels }))
}
