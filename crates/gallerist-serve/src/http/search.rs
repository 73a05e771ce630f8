//! Search: by item, by vector, by upload.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use gallerist_retrieval::eval::Decision;
use gallerist_retrieval::search::Metric;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asked::{Asked, Model, QueryBody, Searched, Took, milliseconds};
use super::embedding::{decoded, embedded};
use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Id, Json, Params, PathId, Shared};
use super::filter::{checked, filter};
use super::groups::{GroupScore, grouped, groups};
use super::histogram::{Distances, Histogram};
use super::items::Item;
use super::named::Chosen;
use super::upload::{Form, FormBody};
use crate::companion::Set;
use crate::gallery::{Catalog, Listed, Query, same_class};
use crate::protocol::{LeftOut, Shown};
use gallerist_data::{REGION_FORM, Region};

/// A request that carries [`SearchParams`], with its own fields before them.
///
/// `serde(flatten)` would share the fields too, but it ignores unknown fields, which are refused here.
macro_rules! search_request {
    (
        $(#[$meta:meta])*
        struct $name:ident { $($(#[$own_meta:meta])* $own:ident: $own_type:ty,)* }
        enums: $(#[$of_enum:meta])?; ids: $(#[$of_ids:meta])?
    ) => {
        $(#[$meta])*
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$own_meta])* $own: $own_type,)*
            /// Results; 20 unless given.
            k: Option<usize>,
            /// Only items with one of these labels; may be repeated.
            #[serde(default)]
            label: Vec<String>,
            /// No items with one of these labels.
            #[serde(default)]
            not_label: Vec<String>,
            /// Only items from one of these cameras.
            #[serde(default)]
            camera: Vec<String>,
            /// Only items that meet this condition on their columns, such as `price < 20 and shop = "x"`.
            #[serde(default, rename = "where")]
            condition: Option<String>,
            /// Only items with one of these tags; may be repeated.
            #[serde(default)]
            tag: Vec<String>,
            /// Only items of one of these saved selections; may be repeated.
            #[serde(default)]
            selection: Vec<String>,
            /// Only these items, at most 1,000; may be repeated.
            #[serde(default)]
            $(#[$of_ids])?
            only: Vec<Id>,
            /// One result for all items with the same value of this column, which may be `label`, `camera` or `path`: the
            /// nearest of them.
            #[serde(default)]
            group: Option<String>,
            /// The distance of a group, by which groups are ranked.
            #[serde(default)]
            $(#[$of_enum])?
            group_score: GroupScore,
            /// Only items of at least this distance.
            #[serde(default)]
            min_distance: Option<f32>,
            /// Only items of at most this distance.
            #[serde(default)]
            max_distance: Option<f32>,
            /// Also return a histogram of the distances of all items that the other filters admit, with so many bars, from
            /// 1 to 200.
            #[serde(default)]
            histogram: Option<usize>,
            /// The network whose embeddings are searched.
            #[serde(default)]
            $(#[$of_enum])?
            model: Model,
            /// Which items are listed for a query of the query set.
            #[serde(default)]
            $(#[$of_enum])?
            view: View,
        }
    };
}

search_request! {
    /// Which items a search may return, and how many.
    #[derive(Default, Deserialize, IntoParams)]
    #[into_params(parameter_in = Query)]
    struct SearchParams {
        /// Search with this rectangle of the item's image instead of all of it: left, top, width and height as fractions
        /// of the upright image.
        #[param(example = "0.25,0.1,0.5,0.5")]
        #[serde(default)]
        region: Option<String>,
    }
    enums: #[param(inline)]; ids: #[param(value_type = Vec<String>)]
}

search_request! {
    /// A search by items, vectors and texts together.
    #[derive(Deserialize, ToSchema)]
    struct SearchBody {
        /// Items to search with: of the gallery, where they are not among the results, of the query set, or of the
        /// training set.
        #[serde(default)]
        ids: Vec<Id>,
        /// For each of `ids` the rectangle of its image to search with, or null for the stored embedding of the image:
        /// left, top, width and height as fractions of the upright image.
        #[serde(default)]
        #[schema(value_type = Vec<Option<Vec<f64>>>, example = json!([[0.25, 0.1, 0.5, 0.5]]))]
        regions: Vec<Option<Region>>,
        /// Embeddings to search with.
        #[serde(default)]
        vectors: Vec<Vec<f32>>,
        /// Texts to search with, where the network has a text tower (`text` of the gallery).
        #[serde(default)]
        #[schema(example = json!(["a red shoe"]))]
        texts: Vec<String>,
    }
    enums:; ids:
}

/// The items that are listed for a query of the query set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum View {
    /// The items that count by the protocol of the gallery.
    #[default]
    Protocol,
    /// All items; those that do not count are marked.
    All,
}

impl SearchParams {
    fn k(&self) -> usize {
        self.k.unwrap_or(20)
    }

    fn distances(&self) -> Answer<Distances> {
        Distances::new(self.histogram, self.min_distance, self.max_distance)
    }
}

/// The ranked list of a search.
#[derive(Serialize, ToSchema)]
pub(crate) struct Results {
    took_ms: Took,
    queries: Vec<QueryBody>,
    /// The rules for a query of the query set; null for other queries.
    protocol: Option<ViewBody>,
    /// The number of results that are matches by the threshold of the gallery; null for a gallery without one.
    matches: Option<usize>,
    /// The distances of the items, if the request asked for them.
    histogram: Option<Histogram>,
    results: Vec<Hit>,
}

/// How the protocol of the gallery treats a query.
#[derive(Serialize, ToSchema)]
pub(crate) struct ViewBody {
    /// Null without a published protocol.
    #[schema(example = "Market-1501")]
    title: Option<&'static str>,
    /// The number of gallery items that do not count for this query.
    left_out: usize,
}

/// A result.
#[derive(Serialize, ToSchema)]
pub(crate) struct Hit {
    /// The rank, starting at 1.
    rank: usize,
    #[serde(flatten)]
    item: Item,
    /// The Euclidean distance: of the embeddings divided by their lengths, from 0 to 2, where the gallery is compared by the
    /// cosine, else of the embeddings as they are.
    distance: f32,
    /// The cosine of the embeddings, from -1 to 1; null where the gallery is compared by the Euclidean distance.
    similarity: Option<f32>,
    /// Whether it has the class of the query; null if the queries have no label or different ones, and if the item does
    /// not count.
    right: Option<bool>,
    /// Why it does not count for the query by the protocol of the gallery; null if it counts.
    left_out: Option<LeftOut>,
    /// `match`, `near` or `no_match` by the threshold of the gallery; null for a gallery without one.
    #[serde(rename = "match")]
    #[schema(example = "near")]
    decision: Option<&'static str>,
    /// The items of its group that the filters admit; null without `group`.
    group_size: Option<usize>,
}

/// Refuses more results or queries than the options allow.
fn check(state: &Shared, params: &SearchParams, queries: usize) -> Answer<()> {
    let options = &state.options;
    let k = params.k();
    if !(1..=options.k).contains(&k) {
        return Err(Refusal::bad(format!("k must be from 1 to {}, not {k}", options.k)));
    }
    match queries {
        0 => Err(Refusal::bad("nothing to search with").hint("give `ids`, `vectors`, `texts` or an image")),
        n if n > options.queries => {
            Err(Refusal::bad(format!("{n} queries, and {} may be combined", options.queries)))
        }
        _ => Ok(()),
    }
}

/// The number in a field of a form.
fn number<T: FromStr>(form: &mut Form, name: &str) -> Answer<Option<T>> {
    let text = form.take(name)?;
    let number = |text: String| {
        text.parse().map_err(|_| Refusal::bad(format!("{name} must be a number, not `{text}`")))
    };
    text.map(number).transpose()
}

/// Refuses more regions than there are images they could belong to.
fn check_regions(regions: usize, queries: usize, of: &str) -> Answer<()> {
    match regions > queries {
        true => Err(Refusal::bad(format!("{regions} regions for {queries} {of}"))
            .hint(format!("one region for each, in their order; {REGION_FORM}"))),
        false => Ok(()),
    }
}

async fn run(state: &Shared, mut asked: Asked, params: SearchParams) -> Answer<Json<Results>> {
    let (k, wanted) = (params.k(), params.distances()?);
    let rules = &state.rules;
    let of_set = asked.names.iter().filter(|query| query.set == Set::Query);
    let of_set: Vec<Shown> = of_set.map(QueryBody::shown).collect();
    let strict = params.view == View::Protocol && !of_set.is_empty();
    let mut not_label = params.not_label;
    not_label.extend(rules.junk.filter(|_| strict).map(str::to_owned));
    let own: Vec<u64> = asked.names.iter().filter_map(|query| query.id).map(|id| id.0).collect();
    let searched = params.model.of(state)?;
    let items = searched.gallery.catalog();
    let mut filter = filter(&items, &params.label, &not_label, params.camera);
    let vector = asked.mean(searched.gallery)?;
    let begin = Instant::now();
    // The queries themselves and the images of their own cameras may be found: search for more, then leave them out.
    let (junk, seen) = rules.count(&state.gallery.catalog(), &of_set);
    let more = own.len() + if strict { seen } else { 0 };
    let condition = checked(&items, params.condition.as_deref())?;
    let mask = match condition {
        // An index may change before it is searched: it evaluates the condition itself.
        Some((condition, _)) if searched.gallery.is_index() => {
            filter = filter.meets(condition);
            None
        }
        condition => condition.map(|(_, mask)| mask),
    };
    let chosen = Chosen::new(state, &params.tag, &params.selection, &params.only)?;
    let mask = match (searched.gallery.is_index(), chosen.is_all()) {
        (_, true) => mask,
        (true, false) => {
            filter = chosen.filter(filter);
            mask
        }
        (false, false) => {
            let meets = |row: usize| mask.as_ref().is_none_or(|mask| mask[row]);
            let ids = items.ids().iter().enumerate();
            Some(ids.map(|(row, &id)| meets(row) && chosen.admits(id)).collect())
        }
    };
    let group = params.group.as_deref().filter(|column| !column.is_empty());
    if let Some(column) = group {
        groups(&items, column)?;
    }
    // A change would have to copy the items while a search that waits for it has them.
    drop(items);
    let (most, complete) = match wanted.needs_all() {
        _ if group.is_some() => {
            let all = searched.gallery.all(count(state, searched).await?).ok_or_else(|| {
                Refusal::bad("the gallery is too large to be searched in groups")
                    .hint("serve the file of embeddings in f32")
            })?;
            (all, true)
        }
        true => searched.gallery.all_or(state.options.k + more, count(state, searched).await?),
        false => (k + more, false),
    };
    let Listed { found, catalog } = searched.search.ask(Query { vector, k: most, filter, mask }).await?;
    asked.took.search = milliseconds(begin.elapsed());

    let metric = searched.gallery.metric();
    // The items are those of the moment of the search: an item that was removed since would be missing from the list. The
    // other network's items never change; they are listed as those of the gallery.
    let catalog = match params.model {
        Model::Own => catalog,
        Model::Other => state.gallery.catalog(),
    };
    let label = common_label(&asked.names);
    let rule = searched.gallery.origin().threshold_of(metric);
    let found: Vec<(usize, f32, Option<LeftOut>)> = found
        .into_iter()
        .filter(|(id, _)| !own.contains(id))
        .filter_map(|(id, distance)| {
            let row = catalog.row(id)?;
            let item = Shown::of(&catalog, row);
            let left_out = of_set.iter().find_map(|&query| rules.left_out(query, item));
            (!strict || left_out.is_none()).then_some((row, distance, left_out))
        })
        .collect();
    let histogram = wanted.bars.map(|bars| {
        let is_right = |row: usize, left_out: Option<LeftOut>| match left_out {
            None => label.map(|label| has_class(&catalog, row, label)),
            Some(_) => None,
        };
        let all = found.iter().map(|&(row, distance, left_out)| (distance, is_right(row, left_out)));
        Histogram::new(bars, complete, &all.collect::<Vec<_>>())
    });
    let lists = state.saved.now();
    let is_mean = group.is_some() && params.group_score == GroupScore::Mean;
    let found: Vec<_> = match group {
        None => found.into_iter().map(|item| (item, None)).collect(),
        Some(column) => {
            let groups = groups(&catalog, column)?;
            let found = grouped(&groups, params.group_score, found);
            found.into_iter().map(|(item, size)| (item, Some(size))).collect()
        }
    };
    let results: Vec<Hit> = found
        .into_iter()
        .filter(|((_, distance, _), _)| wanted.admits(*distance))
        .take(k)
        .enumerate()
        .map(|(at, ((row, distance, left_out), group_size))| {
            let hit = hit(&catalog, at + 1, row, distance, metric, label);
            let item = hit.item.with_tags(&lists);
            // The threshold and the similarity are of pairs, not of means.
            let decision = rule.filter(|_| !is_mean).map(|rule| rule.decide_distance(distance).name());
            let (right, similarity) =
                (hit.right.filter(|_| left_out.is_none()), hit.similarity.filter(|_| !is_mean));
            Hit { item, left_out, decision, right, similarity, group_size, ..hit }
        })
        .collect();
    asked.took.total = milliseconds(asked.began.elapsed());
    let title = rules.protocol.map(|protocol| protocol.title);
    let protocol = (!of_set.is_empty()).then_some(ViewBody { title, left_out: junk + seen });
    drop(of_set);
    let is_match = |hit: &&Hit| hit.decision == Some(Decision::Match.name());
    let matches = rule.filter(|_| !is_mean).map(|_| results.iter().filter(is_match).count());
    Ok(Json(Results { took_ms: asked.took, histogram, results, matches, protocol, queries: asked.names }))
}

/// The number of items that a search compares with now.
async fn count(state: &Shared, Searched { gallery, .. }: Searched<'_>) -> Answer<usize> {
    if !gallery.is_database() {
        return Ok(gallery.count());
    }
    let own = Arc::clone(gallery);
    let counted = state.asking.run(move || own.searched()).await?;
    counted.map_err(|error| Refusal::internal(format!("the items cannot be counted: {error}")))
}

fn hit(
    catalog: &Catalog,
    rank: usize,
    row: usize,
    distance: f32,
    metric: Metric,
    label: Option<&str>,
) -> Hit {
    Hit {
        rank,
        item: Item::of(catalog, row),
        distance,
        similarity: (metric == Metric::Cosine).then_some(1.0 - distance * distance / 2.0),
        right: label.map(|label| has_class(catalog, row, label)),
        left_out: None,
        decision: None,
        group_size: None,
    }
}

fn has_class(catalog: &Catalog, row: usize, label: &str) -> bool {
    catalog.labels.get(row).is_some_and(|found| same_class(label, found))
}

/// The common label of all queries that have one; `None` if they differ.
fn common_label(queries: &[QueryBody]) -> Option<&str> {
    let mut labels = queries.iter().filter_map(|query| query.label.as_deref());
    let first = labels.next()?;
    labels.all(|label| label == first).then_some(first)
}

/// The items nearest to an item (which is not among the results), to a query or to a training image.
#[utoipa::path(
    get, path = "/api/v1/items/{id}/similar", tag = "search",
    params(("id" = String, Path, description = "The item"), SearchParams),
    responses((status = 200, body = Results), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody))
)]
pub(crate) async fn similar(
    state: Shared,
    PathId(id): PathId,
    Params(params): Params<SearchParams>,
) -> Answer<Json<Results>> {
    check(&state, &params, 1)?;
    let region = params.region.as_deref().map(str::parse).transpose().map_err(Refusal::bad)?;
    let mut asked = Asked::new();
    asked.item_or_region(&state, params.model, id, region).await?;
    run(&state, asked, params).await
}

/// The items nearest to an item, a vector or a text, or to the mean of several.
#[utoipa::path(
    post, path = "/api/v1/search", tag = "search", request_body = SearchBody,
    responses(
        (status = 200, body = Results), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, description = "A vector of another length, or not finite; an empty text", body = ErrorBody),
        (status = 501, description = "The network has no text tower", body = ErrorBody),
    )
)]
pub(crate) async fn search(state: Shared, Json(body): Json<SearchBody>) -> Answer<Json<Results>> {
    let SearchBody {
        ids, regions, vectors, texts, k, label, not_label, camera, condition, model, view, ..
    } = body;
    let SearchBody {
        tag, selection, only, min_distance, max_distance, histogram, group, group_score, ..
    } = body;
    let params = SearchParams {
        region: None,
        k,
        label,
        not_label,
        camera,
        condition,
        tag,
        selection,
        only,
        group,
        group_score,
        min_distance,
        max_distance,
        histogram,
        model,
        view,
    };
    check(&state, &params, ids.len() + vectors.len() + texts.len())?;
    let searched = model.of(&state)?;
    check_regions(regions.len(), ids.len(), "ids")?;
    let mut asked = Asked::new();
    for (id, region) in ids.into_iter().zip(regions.into_iter().chain(std::iter::repeat(None))) {
        asked.item_or_region(&state, model, id.0, region).await?;
    }
    for vector in vectors {
        asked.vector(searched.gallery, vector, None)?;
    }
    for text in texts {
        asked.text(&state, model, text).await?;
    }
    run(&state, asked, params).await
}

/// The fields of an upload. Only used for the documentation.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct UploadForm {
    /// Images to search with.
    #[schema(value_type = Vec<String>, format = Binary)]
    image: Vec<u8>,
    /// Items to search with in addition.
    id: Option<Vec<String>>,
    /// Texts to search with in addition.
    text: Option<Vec<String>>,
    /// For each image, then for each item, the rectangle to search with, as `left,top,width,height` in fractions of the
    /// upright image; empty for all of it.
    region: Option<Vec<String>>,
    k: Option<usize>,
    label: Option<Vec<String>>,
    not_label: Option<Vec<String>>,
    camera: Option<Vec<String>>,
    r#where: Option<String>,
    tag: Option<Vec<String>>,
    selection: Option<Vec<String>>,
    only: Option<Vec<String>>,
    group: Option<String>,
    group_score: Option<GroupScore>,
    min_distance: Option<f32>,
    max_distance: Option<f32>,
    histogram: Option<usize>,
}

/// The items nearest to an uploaded image, or to the mean of several images and items.
#[utoipa::path(
    post, path = "/api/v1/search/upload", tag = "search",
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses(
        (status = 200, body = Results), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 408, description = "The upload took too long", body = ErrorBody),
        (status = 413, description = "Too many bytes", body = ErrorBody),
        (status = 415, description = "Not a form, or not an image", body = ErrorBody),
        (status = 422, description = "It cannot be decoded, or is too large for it", body = ErrorBody),
        (status = 501, description = "No network is loaded", body = ErrorBody),
        (status = 503, description = "Too much at once", body = ErrorBody),
    )
)]
pub(crate) async fn upload(state: Shared, form: FormBody) -> Answer<Json<Results>> {
    if state.embedder.is_none() {
        return Err(Refusal::no_network());
    }
    let names = [
        "id",
        "text",
        "region",
        "k",
        "label",
        "not_label",
        "camera",
        "where",
        "tag",
        "selection",
        "only",
        "group",
        "group_score",
        "min_distance",
        "max_distance",
        "histogram",
    ];
    let mut form = Form::read(&state, form, state.options.queries, &names).await?;
    let mut ids = |name: &str| -> Answer<Vec<Id>> {
        form.take_all(name).iter().map(|text| text.parse().map_err(Refusal::bad)).collect()
    };
    let (ids, only) = (ids("id")?, ids("only")?);
    let texts = form.take_all("text");
    let regions = form.take_all("region");
    let params = SearchParams {
        region: None,
        k: number(&mut form, "k")?,
        min_distance: number(&mut form, "min_distance")?,
        max_distance: number(&mut form, "max_distance")?,
        histogram: number(&mut form, "histogram")?,
        label: form.take_all("label"),
        not_label: form.take_all("not_label"),
        camera: form.take_all("camera"),
        condition: form.take("where")?,
        tag: form.take_all("tag"),
        selection: form.take_all("selection"),
        only,
        group: form.take("group")?,
        group_score: form
            .take("group_score")?
            .map_or(Ok(GroupScore::Best), |text| GroupScore::parse(&text))?,
        model: Model::Own,
        view: View::All,
    };
    check(&state, &params, ids.len() + texts.len() + form.images.len())?;
    check_regions(regions.len(), ids.len() + form.images.len(), "images and ids")?;
    let region = |text: String| (!text.trim().is_empty()).then(|| text.parse::<Region>()).transpose();
    let regions = regions.into_iter().map(region).collect::<Result<Vec<_>, _>>().map_err(Refusal::bad)?;
    let mut regions = regions.into_iter().chain(std::iter::repeat(None));
    let mut asked = Asked::new();
    for (name, bytes) in form.images {
        let limit = state.options.decode_time;
        let region = regions.next().flatten();
        let decode = move || decoded(&bytes, limit);
        let found = embedded(&state, &state.work.enter()?, region, decode).await?;
        let row = asked.timed(found);
        asked.vector(&state.gallery, row, name)?;
    }
    for id in ids {
        asked.item_or_region(&state, Model::Own, id.0, regions.next().flatten()).await?;
    }
    for text in texts {
        asked.text(&state, Model::Own, text).await?;
    }
    run(&state, asked, params).await
}
