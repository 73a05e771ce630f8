//! The items of the gallery.

use std::sync::Arc;

use axum::http::StatusCode;
use gallerist_retrieval::columns::Column;
use gallerist_retrieval::condition::Table;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asked::embedding_of;
use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Id, Json, Params, PathId, Shared};
use super::filter::{filter, mask};
use super::named::Chosen;
use crate::companion::{Set, Side};
use crate::gallery::Catalog;
use crate::saved::Lists;
use crate::state::State;

/// The largest number of items of a page.
const PAGE: usize = 500;

/// The largest number of ids of a lookup.
const LOOKUP: usize = 1000;

/// An item. Its picture is at `/images/{id}` and, small, at `/thumbnails/{id}`.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct Item {
    id: Id,
    /// The set it belongs to: gallery, queries or training images.
    set: Set,
    label: Option<String>,
    path: Option<String>,
    camera: Option<String>,
    /// The values of further columns by their names: numbers, texts, and lists of tags.
    #[schema(value_type = Object)]
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    columns: serde_json::Map<String, serde_json::Value>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

impl Item {
    pub(crate) fn of(catalog: &Catalog, row: usize) -> Self {
        Self::of_set(Set::Gallery, catalog, row)
    }

    pub(crate) fn of_set(set: Set, catalog: &Catalog, row: usize) -> Self {
        Self {
            id: Id(catalog.ids()[row]),
            set,
            label: catalog.labels.get(row).map(str::to_owned),
            path: catalog.path(row).map(str::to_owned),
            camera: catalog.cameras.get(row).map(str::to_owned),
            columns: catalog.columns().row_as_json(row),
            tags: Vec::new(),
        }
    }

    /// The item with the tags that it has in `lists`.
    pub(crate) fn with_tags(self, lists: &Lists) -> Self {
        Self { tags: lists.tags_of(self.id.0), ..self }
    }

    pub(super) fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Label, path and camera; empty where it has none.
    pub(super) fn texts(&self) -> [&str; 3] {
        [&self.label, &self.path, &self.camera].map(|text| text.as_deref().unwrap_or_default())
    }

    /// The value of a further column as text; tags are joined by `|`.
    pub(super) fn column(&self, name: &str) -> String {
        match self.columns.get(name) {
            None => String::new(),
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Array(tags)) => {
                let tags: Vec<&str> = tags.iter().filter_map(|tag| tag.as_str()).collect();
                tags.join("|")
            }
            Some(value) => value.to_string(),
        }
    }

    /// The item with this id, if the gallery still has it.
    pub(crate) fn find(catalog: &Catalog, id: u64) -> Option<Self> {
        catalog.row(id).map(|row| Self::of(catalog, row))
    }

    /// The item with this id, of the gallery, the queries or the training images.
    pub(crate) fn anywhere(state: &State, catalog: &Catalog, id: u64) -> Option<Self> {
        let companion =
            || state.companion_item(id).map(|(set, side, row)| Self::of_set(set, &side.catalog, row));
        Self::find(catalog, id).or_else(companion).map(|item| item.with_tags(&state.saved.now()))
    }
}

/// A page of a long list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemParams {
    /// The set: `gallery`, `query` or `training`.
    #[serde(default)]
    #[param(inline)]
    set: Set,
    /// Items to skip.
    #[serde(default)]
    offset: usize,
    /// The number of items, at most 500.
    #[serde(default = "sixty")]
    limit: usize,
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
    #[param(value_type = Vec<String>)]
    only: Vec<Id>,
    /// The column that the items are sorted by, or `label`, `path` or `camera`; with `-` before it for the reverse order. Items
    /// without a value are last.
    #[serde(default)]
    order: Option<String>,
}

fn sixty() -> usize {
    60
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ItemPage {
    /// The number of items that match.
    total: usize,
    items: Vec<Item>,
}

/// The items of the gallery, the queries or the training images, in their order.
#[utoipa::path(
    get, path = "/api/v1/items", tag = "gallery", params(ItemParams),
    responses(
        (status = 200, body = ItemPage), (status = 400, body = ErrorBody),
        (status = 404, description = "There is no such set", body = ErrorBody),
    )
)]
pub(crate) async fn items(state: Shared, Params(params): Params<ItemParams>) -> Answer<Json<ItemPage>> {
    let limit = params.limit.min(PAGE);
    let own = state.gallery.catalog();
    let side = |side: &'_ Option<Arc<Side>>, option: &str| {
        side.clone().ok_or_else(|| {
            Refusal::new(StatusCode::NOT_FOUND, "there is no such set of images")
                .hint(format!("start the server with {option} FILE"))
        })
    };
    let companion = match params.set {
        Set::Gallery => None,
        Set::Query => Some(side(&state.queries, "--queries")?),
        Set::Training => Some(side(&state.training, "--training")?),
    };
    let catalog = companion.as_ref().map_or(&*own, |side| &side.catalog);
    let filter = filter(catalog, &params.label, &params.not_label, params.camera);
    let order = params.order.as_deref().filter(|order| !order.is_empty());
    let order = order.map(|order| Order::parse(catalog, order)).transpose()?;
    let mask = mask(catalog, params.condition.as_deref())?;
    let chosen = Chosen::new(&state, &params.tag, &params.selection, &params.only)?;
    let lists = state.saved.now();
    let item = |row: usize| Item::of_set(params.set, catalog, row).with_tags(&lists);
    if filter.is_empty() && mask.is_none() && order.is_none() && chosen.is_all() {
        let rows = (params.offset.min(catalog.len())..catalog.len()).take(limit);
        let items = rows.map(item).collect();
        return Ok(Json(ItemPage { total: catalog.len(), items }));
    }
    let admission = catalog.admission(&filter);
    let passes = |row: &usize| {
        admission.admits(*row)
            && mask.as_ref().is_none_or(|mask| mask[*row])
            && chosen.admits(catalog.ids()[*row])
    };
    let mut rows: Vec<usize> = (0..catalog.len()).filter(passes).collect();
    if let Some(order) = order {
        order.sort(&mut rows);
    }
    let part = rows.iter().skip(params.offset).take(limit);
    let items = part.map(|&row| item(row)).collect();
    Ok(Json(ItemPage { total: rows.len(), items }))
}

/// The order of a list.
struct Order<'a> {
    values: Values<'a>,
    descending: bool,
}

/// What a list is sorted by.
enum Values<'a> {
    /// A further column.
    Column(&'a Column),
    /// Label, path or camera.
    Text(&'static str, &'a Catalog),
}

impl<'a> Order<'a> {
    /// The name of a column; the reverse order with `-` before it.
    fn parse(catalog: &'a Catalog, order: &str) -> Answer<Self> {
        let (name, descending) = order.strip_prefix('-').map_or((order, false), |name| (name, true));
        let columns = catalog.columns();
        let text = TEXTS.into_iter().find(|text| *text == name).map(|text| Values::Text(text, catalog));
        let values = columns.get(name).map(Values::Column).or(text).ok_or_else(|| {
            let names: Vec<String> =
                TEXTS.into_iter().chain(columns.names()).map(|name| format!("`{name}`")).collect();
            Refusal::bad(format!("there is no column `{name}` to sort by"))
                .hint(format!("the columns are {}", names.join(", ")))
        })?;
        Ok(Self { values, descending })
    }

    /// Sorts rows by the value, those without one last. Equal values keep their order.
    fn sort(&self, rows: &mut [usize]) {
        let descending = self.descending;
        match self.values {
            Values::Column(column) => column.sort(rows, descending),
            Values::Text(name, catalog) => {
                let text = |row: usize| match name {
                    "label" => catalog.labels.get(row),
                    "camera" => catalog.cameras.get(row),
                    _ => catalog.path(row),
                };
                rows.sort_by(|&a, &b| match (text(a), text(b)) {
                    (Some(a), Some(b)) if descending => b.cmp(a),
                    (Some(a), Some(b)) => a.cmp(b),
                    (a, b) => a.is_none().cmp(&b.is_none()),
                });
            }
        }
    }
}

/// The columns that every gallery has.
const TEXTS: [&str; 3] = ["label", "path", "camera"];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lookup {
    /// At most 1,000 ids.
    ids: Vec<Id>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ItemList {
    items: Vec<Item>,
}

/// The items with these ids, in that order. Unknown ids are left out.
#[utoipa::path(
    post, path = "/api/v1/items/lookup", tag = "gallery", request_body = Lookup,
    responses((status = 200, body = ItemList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn lookup(state: Shared, Json(lookup): Json<Lookup>) -> Answer<Json<ItemList>> {
    if lookup.ids.len() > LOOKUP {
        return Err(Refusal::bad(format!("{} ids, and {LOOKUP} may be looked up at once", lookup.ids.len())));
    }
    let catalog = state.gallery.catalog();
    let items = lookup.ids.iter().filter_map(|id| Item::anywhere(&state, &catalog, id.0)).collect();
    Ok(Json(ItemList { items }))
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ItemBody {
    #[serde(flatten)]
    item: Item,
    /// The number of other gallery items with the same label, or with one of its labels.
    neighbours_same_label: usize,
}

/// An item.
#[utoipa::path(
    get, path = "/api/v1/items/{id}", tag = "gallery", params(("id" = String, Path, description = "The item")),
    responses((status = 200, body = ItemBody), (status = 404, body = ErrorBody))
)]
pub(crate) async fn item(state: Shared, PathId(id): PathId) -> Answer<Json<ItemBody>> {
    if state.companion_item(id).is_none() {
        is_there(&state, id).await?;
    }
    let catalog = state.gallery.catalog();
    let item = Item::anywhere(&state, &catalog, id).ok_or_else(|| Refusal::no_item(id))?;
    let itself = usize::from(item.set == Set::Gallery);
    let alike = item.label.as_ref().map_or(0, |label| catalog.labels.count_of_class(label) - itself);
    Ok(Json(ItemBody { item, neighbours_same_label: alike }))
}

/// Whether the gallery has an item. A database is asked for one that is not known; then it is known.
pub(super) async fn is_there(state: &Shared, id: u64) -> Answer<bool> {
    let gallery = &state.gallery;
    let is_known = gallery.catalog().row(id).is_some();
    Ok(is_known || gallery.is_database() && embedding_of(state, gallery, id).await?.is_some())
}
