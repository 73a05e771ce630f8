//! Results of the analysis after the start: failures, confusions, near-duplicates, leaks, the other network, the map.
//!
//! Each answer has a `state`: `ready`, `computing` (the lists are still empty), or `none`.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Id, Json, Params, PathId, Shared};
use super::gallery::fifty;
use super::items::Item;
use crate::analysis::{Failure, Pair, Pairs, QueryOrder};
use crate::gallery::{Catalog, same_class};
use crate::state::State;

/// The largest number of entries of a page.
const PAGE: usize = 500;

#[derive(Serialize, ToSchema)]
pub(crate) struct MapBody {
    /// `ready`, `computing` or `none`.
    state: &'static str,
    /// The method that computed the points.
    #[schema(example = "t-SNE, perplexity 30")]
    method: Option<String>,
    /// The number of points.
    count: usize,
    /// The labels. Points refer to them by number.
    labels: Vec<String>,
}

/// The map of the gallery: its method and its labels.
#[utoipa::path(get, path = "/api/v1/map", tag = "analysis", responses((status = 200, body = MapBody)))]
pub(crate) async fn map(state: Shared) -> Json<MapBody> {
    let slot = &state.analysis.map;
    let map = slot.get();
    Json(MapBody {
        state: slot.state(),
        method: map.map(|map| map.method.clone()),
        count: map.map_or(0, |map| map.count),
        labels: map.map_or_else(Vec::new, |map| map.labels.clone()),
    })
}

/// The points of the map, little-endian, one list after the other: n ids (u64), n x (f32), n y (f32), n
/// label numbers (u32, 4294967295 for none).
#[utoipa::path(
    get, path = "/api/v1/map/points", tag = "analysis",
    responses(
        (status = 200, description = "The points", content_type = "application/octet-stream"),
        (status = 404, description = "There is no map, or not yet", body = ErrorBody),
    )
)]
pub(crate) async fn points(state: Shared) -> Answer<Response> {
    let slot = &state.analysis.map;
    let map = slot.get().ok_or_else(|| {
        Refusal::new(StatusCode::NOT_FOUND, format!("there is no map; its state is `{}`", slot.state()))
    })?;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from(map.bytes.clone())).into_response())
}

/// Which part of a long list, and from which end.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailureParams {
    /// Queries to skip.
    #[serde(default)]
    offset: usize,
    /// The number of queries, at most 500.
    #[serde(default = "fifty")]
    limit: usize,
    /// `ap`: the lowest average precision first; `-ap`: the highest first; `wrong`: queries whose nearest item is wrong
    /// first; `file`: the order of their file.
    #[serde(default)]
    #[param(inline)]
    sort: QueryOrder,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct FailureList {
    /// `ready`, `computing` or `none`.
    state: &'static str,
    /// The number of queries with a relevant item, without those that were removed since they were compared.
    total: usize,
    /// The mean over all queries with a relevant item.
    mean_average_precision: Option<f64>,
    /// The measures of the protocol, or the standard ones without a protocol; empty if a query has no label.
    metrics: Vec<MetricBody>,
    queries: Vec<FailureBody>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct MetricBody {
    #[schema(example = "cmc@1")]
    name: String,
    value: f64,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct FailureBody {
    item: Item,
    /// By the protocol of the gallery. Without a query set every item is a query against all others.
    average_precision: f64,
    /// The number of relevant items.
    matches: u32,
    /// The rank of the first relevant item.
    first_match_rank: u32,
    nearest: NearestBody,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct NearestBody {
    id: Id,
    label: Option<String>,
    /// Whether it has the class of the query; null if one of the two has no label.
    right: Option<bool>,
    distance: f32,
}

/// A page of a list, counted from either end.
fn page<T>(list: &[T], backwards: bool, offset: usize, limit: usize) -> Vec<&T> {
    let limit = limit.min(PAGE);
    match backwards {
        false => list.iter().skip(offset).take(limit).collect(),
        true => list.iter().rev().skip(offset).take(limit).collect(),
    }
}

/// Whether an image that was compared is still there. Images of a file of embeddings or of a server that is not writable,
/// queries and training images are not removed.
fn is_still_there(state: &State, catalog: &Catalog, id: u64) -> bool {
    let is_fixed = !(state.gallery.is_index() && state.options.is_writable());
    is_fixed || catalog.row(id).is_some() || state.companion_item(id).is_some()
}

/// The queries with a relevant item that are still there.
fn queries_in<'a>(state: &'a State, catalog: &Catalog, order: QueryOrder) -> Vec<&'a Failure> {
    let Some(found) = state.analysis.failures.get() else { return Vec::new() };
    let queries = (0..found.queries.len()).filter_map(|place| found.at(order, place));
    queries.filter(|query| is_still_there(state, catalog, query.id)).collect()
}

/// The queries by their average precision, the worst first.
#[utoipa::path(
    get, path = "/api/v1/failures", tag = "analysis", params(FailureParams),
    responses((status = 200, body = FailureList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn failures(
    state: Shared,
    Params(params): Params<FailureParams>,
) -> Answer<Json<FailureList>> {
    let slot = &state.analysis.failures;
    let found = slot.get();
    let catalog = state.gallery.catalog();
    let all = queries_in(&state, &catalog, params.sort);
    let queries = page(&all, false, params.offset, params.limit).into_iter().filter_map(|query| {
        let (near, distance) = query.nearest;
        let label = catalog.row(near).and_then(|row| catalog.labels.get(row));
        let item = Item::anywhere(&state, &catalog, query.id)?;
        let right = label.zip(item.label()).map(|(label, own)| same_class(label, own));
        Some(FailureBody {
            item,
            average_precision: query.precision,
            matches: query.matches,
            first_match_rank: query.first,
            nearest: NearestBody { id: Id(near), label: label.map(str::to_owned), right, distance },
        })
    });
    Ok(Json(FailureList {
        state: slot.state(),
        total: all.len(),
        mean_average_precision: found.map(|failures| failures.mean),
        metrics: found.map_or_else(Vec::new, |failures| {
            let metrics = failures.metrics.iter();
            metrics.map(|(name, value)| MetricBody { name: name.clone(), value: *value }).collect()
        }),
        queries: queries.collect(),
    }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepParams {
    /// The order of the queries, as in `/api/v1/failures`.
    #[serde(default)]
    #[param(inline)]
    sort: QueryOrder,
}

/// A query among the others, and how well it is answered.
#[derive(Serialize, ToSchema)]
pub(crate) struct StepBody {
    /// `ready`, `computing` or `none`.
    state: &'static str,
    /// The number of queries with a relevant item, without those that were removed since they were compared.
    total: usize,
    /// The place of the query, from 0; null if the item is no query, or has no relevant item.
    place: Option<usize>,
    /// The query before it.
    previous: Option<Id>,
    /// The query after it.
    next: Option<Id>,
    average_precision: Option<f64>,
    /// The number of relevant items.
    matches: Option<u32>,
    /// The rank of the first relevant item.
    first_match_rank: Option<u32>,
}

/// The place of a query in the list of queries, with the queries before and after it.
#[utoipa::path(
    get, path = "/api/v1/failures/{id}", tag = "analysis",
    params(("id" = String, Path, description = "The query"), StepParams),
    responses((status = 200, body = StepBody), (status = 400, body = ErrorBody))
)]
pub(crate) async fn step(
    state: Shared,
    PathId(id): PathId,
    Params(params): Params<StepParams>,
) -> Json<StepBody> {
    let all = queries_in(&state, &state.gallery.catalog(), params.sort);
    let at = |place: Option<usize>| all.get(place?).copied();
    let place = all.iter().position(|query| query.id == id);
    let query = at(place);
    let id_of = |query: Option<&Failure>| query.map(|query| Id(query.id));
    Json(StepBody {
        state: state.analysis.failures.state(),
        total: all.len(),
        place,
        previous: id_of(at(place.and_then(|place| place.checked_sub(1)))),
        next: id_of(at(place.map(|place| place + 1))),
        average_precision: query.map(|query| query.precision),
        matches: query.map(|query| query.matches),
        first_match_rank: query.map(|query| query.first),
    })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfusionParams {
    /// The number of pairs, at most 500.
    #[serde(default = "fifty")]
    limit: usize,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ConfusionList {
    /// `ready`, `computing` or `none`.
    state: &'static str,
    pairs: Vec<ConfusionBody>,
}

/// How often the nearest item of a query of class `a` is of class `b`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConfusionBody {
    a: String,
    b: String,
    count: usize,
    /// The same as a share of the queries of class `a`.
    share: f64,
    /// The closest of these pairs.
    example: Example,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Example {
    query: Id,
    result: Id,
}

/// The pairs of classes that are confused most often.
#[utoipa::path(
    get, path = "/api/v1/confusions", tag = "analysis", params(ConfusionParams),
    responses((status = 200, body = ConfusionList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn confusions(
    state: Shared,
    Params(params): Params<ConfusionParams>,
) -> Answer<Json<ConfusionList>> {
    let slot = &state.analysis.confusions;
    let all = slot.get().map_or(&[][..], |confusions| &confusions.0);
    let pairs = page(all, false, 0, params.limit).into_iter().map(|pair| ConfusionBody {
        a: pair.class.clone(),
        b: pair.taken_for.clone(),
        count: pair.count,
        share: pair.share,
        example: Example { query: Id(pair.example.0), result: Id(pair.example.1) },
    });
    Ok(Json(ConfusionList { state: slot.state(), pairs: pairs.collect() }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PairParams {
    /// Pairs to skip.
    #[serde(default)]
    offset: usize,
    /// The number of pairs, at most 500.
    #[serde(default = "fifty")]
    limit: usize,
    /// The largest distance of a pair. The default is 0.1; in a gallery that is compared by the Euclidean distance, 0.1
    /// times the root of half the mean squared distance of two items.
    distance: Option<f32>,
}

/// Pairs of images, the closest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct PairList {
    /// `ready`, `computing` or `none`.
    state: &'static str,
    /// The requested largest distance.
    distance: f32,
    /// The largest distance of any pair.
    furthest: f32,
    /// The number of pairs within the distance, without those of which an image was removed since they were compared.
    total: usize,
    pairs: Vec<PairBody>,
}

/// An item of the gallery and the image nearest to it.
#[derive(Serialize, ToSchema)]
pub(crate) struct PairBody {
    a: Item,
    /// Another item of the gallery, or an image of the training set.
    b: Item,
    distance: f32,
}

impl PairParams {
    /// The answer for `pairs`, which are `None` until they are computed.
    fn list(&self, state: &State, computed: &'static str, pairs: Option<&Pairs>) -> Answer<Json<PairList>> {
        if let Some(distance) = self.distance.filter(|distance| !distance.is_finite()) {
            return Err(Refusal::bad(format!("distance must be a finite number, not {distance}")));
        }
        let distance = self.distance.unwrap_or_else(|| pairs.map_or(0.0, Pairs::near));
        let catalog = state.gallery.catalog();
        let within = pairs.map_or(&[][..], |pairs| pairs.within(distance)).iter();
        let are_there = |pair: &&Pair| [pair.a, pair.b].iter().all(|&id| is_still_there(state, &catalog, id));
        let within: Vec<&Pair> = within.filter(are_there).collect();
        let find = |id| Item::anywhere(state, &catalog, id);
        let body =
            |pair: &&Pair| Some(PairBody { a: find(pair.a)?, b: find(pair.b)?, distance: pair.distance });
        Ok(Json(PairList {
            state: computed,
            distance,
            furthest: pairs.map_or(0.0, Pairs::furthest),
            total: within.len(),
            pairs: page(&within, false, self.offset, self.limit).into_iter().filter_map(body).collect(),
        }))
    }
}

/// Items with their nearest item, the closest pairs first.
#[utoipa::path(
    get, path = "/api/v1/duplicates", tag = "analysis", params(PairParams),
    responses((status = 200, body = PairList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn duplicates(state: Shared, Params(params): Params<PairParams>) -> Answer<Json<PairList>> {
    let slot = &state.analysis.duplicates;
    params.list(&state, slot.state(), slot.get())
}

/// Items with the nearest image of the training set, the closest pairs first.
#[utoipa::path(
    get, path = "/api/v1/leaks", tag = "analysis", params(PairParams),
    responses((status = 200, body = PairList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn leaks(state: Shared, Params(params): Params<PairParams>) -> Answer<Json<PairList>> {
    let slot = &state.analysis.leaks;
    params.list(&state, slot.state(), slot.get().map(|leaks| &leaks.pairs))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompareParams {
    /// Queries to skip.
    #[serde(default)]
    offset: usize,
    /// The number of queries, at most 500.
    #[serde(default = "fifty")]
    limit: usize,
    /// `gained`: the queries that the other network improves most come first; `lost`: those that it worsens most.
    #[serde(default)]
    sort: ByChange,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ByChange {
    #[default]
    Gained,
    Lost,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ComparisonBody {
    /// `ready`, `computing` or `none`.
    state: &'static str,
    /// Queries that both networks answer, among the items that both have.
    total: usize,
    /// The name of the gallery's network.
    own: Option<String>,
    /// The name of the other network.
    other: Option<String>,
    /// The mean average precision of these queries with the gallery's network.
    mean_average_precision: Option<f64>,
    /// The same with the other network.
    other_mean_average_precision: Option<f64>,
    queries: Vec<ChangeBody>,
    /// The number of queries that the other network answers better.
    gained: usize,
    /// The number that it answers worse.
    lost: usize,
    /// The number that it answers equally well.
    same: usize,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeBody {
    item: Item,
    average_precision: f64,
    other_average_precision: f64,
    /// The average precision of the other network minus that of the gallery's network.
    change: f64,
}

/// The queries that gain or lose most with the other network.
#[utoipa::path(
    get, path = "/api/v1/compare", tag = "analysis", params(CompareParams),
    responses((status = 200, body = ComparisonBody), (status = 400, body = ErrorBody))
)]
pub(crate) async fn compare(
    state: Shared,
    Params(params): Params<CompareParams>,
) -> Answer<Json<ComparisonBody>> {
    let slot = &state.analysis.changes;
    let changes = slot.get();
    let all = changes.map_or(&[][..], |changes| &changes.queries);
    let (gained, lost) = changes.map_or((0, 0), |changes| (changes.gained, changes.lost));
    let catalog = state.gallery.catalog();
    let queries = page(all, params.sort == ByChange::Lost, params.offset, params.limit);
    let queries = queries.into_iter().filter_map(|query| {
        Some(ChangeBody {
            item: Item::anywhere(&state, &catalog, query.id)?,
            average_precision: query.precision,
            other_average_precision: query.other,
            change: query.gain(),
        })
    });
    let (own, other) = state.other.as_ref().map(|other| other.names(&state.gallery)).unzip();
    Ok(Json(ComparisonBody {
        state: slot.state(),
        total: all.len(),
        own,
        other,
        mean_average_precision: changes.map(|changes| changes.mean),
        other_mean_average_precision: changes.map(|changes| changes.other_mean),
        queries: queries.collect(),
        gained,
        lost,
        same: all.len() - gained - lost,
    }))
}
