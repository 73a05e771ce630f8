//! Tags and saved selections.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gallerist_retrieval::condition::Table;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Id, Json, Shared};
use super::gallery::last_part;
use super::items::Item;
use super::token::{Writer, writer};
use crate::audit::{self, Author};
use crate::saved::{Change, Fault, ITEMS, Kind, Lists};
use crate::state::State;

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let problem = fault.to_string();
        match fault {
            Fault::NoFile => Self::new(StatusCode::FORBIDDEN, problem)
                .hint("serve a file of embeddings or an index with --writable and a token"),
            Fault::Unknown(..) => {
                Self::new(StatusCode::NOT_FOUND, problem).hint("/api/v1/saved lists tags and selections")
            }
            Fault::Taken(..) => Self::new(StatusCode::CONFLICT, problem).hint("choose another name"),
            Fault::Name => Self::bad(problem),
            Fault::TooMany(_) => Self::unprocessable(problem),
            // Without the folder, which clients must not see; the operator reads it in the notes of the server.
            Fault::File(_) => Self::internal("the file of tags and selections cannot be read or written")
                .hint("the messages of the server have the reason"),
        }
    }
}

/// Kind and name in a path.
pub(crate) struct PathList(Kind, String);

impl<S: Send + Sync> FromRequestParts<S> for PathList {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path((kind, name)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|error| Refusal::bad(error.body_text()))?;
        match kind.as_str() {
            "tags" => Ok(Self(Kind::Tags, name)),
            "selections" => Ok(Self(Kind::Selections, name)),
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, format!("wanted tags or selections, not `{kind}`"))),
        }
    }
}

/// Tags and selections.
#[derive(Serialize, ToSchema)]
pub(crate) struct SavedBody {
    /// Whether clients with the token can change them.
    writable: bool,
    /// Whether this request had a token for changes.
    authorized: bool,
    /// The file that stores them, without folders; null if there is none.
    file: Option<String>,
    tags: Vec<ListBody>,
    selections: Vec<ListBody>,
}

/// A tag or a selection.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListBody {
    name: String,
    /// The number of items, including those that are unknown.
    count: usize,
    /// The number of items that neither the gallery nor the queries and training images have at present. They are kept.
    unknown: usize,
}

impl ListBody {
    fn of(state: &State, name: &str, ids: &[u64]) -> Self {
        let catalog = state.gallery.catalog();
        let known = |id: u64| catalog.row(id).is_some() || state.companion_item(id).is_some();
        let unknown = ids.iter().filter(|&&id| !known(id)).count();
        Self { name: name.to_owned(), count: ids.len(), unknown }
    }
}

/// The tags and selections of the gallery, by their names.
#[utoipa::path(get, path = "/api/v1/saved", tag = "saved", responses((status = 200, body = SavedBody)))]
pub(crate) async fn saved(state: Shared, headers: HeaderMap) -> Json<SavedBody> {
    let lists = state.saved.now();
    let all = |kind| lists.all(kind).map(|(name, ids)| ListBody::of(&state, name, ids)).collect();
    Json(SavedBody {
        writable: state.options.is_writable() && state.saved.path().is_some(),
        authorized: writer(&state.options, &headers).is_some(),
        file: state.saved.path().map(|path| last_part(&path.display().to_string())),
        tags: all(Kind::Tags),
        selections: all(Kind::Selections),
    })
}

/// The items of a tag or a selection.
#[derive(Serialize, ToSchema)]
pub(crate) struct IdsBody {
    #[serde(flatten)]
    list: ListBody,
    /// Of a selection in the order in which they were added, of a tag ascending.
    ids: Vec<Id>,
}

/// The ids of a tag or a selection.
#[utoipa::path(
    get, path = "/api/v1/saved/{kind}/{name}", tag = "saved",
    params(("kind" = Kind, Path, description = "`tags` or `selections`"), ("name" = String, Path, description = "Its name")),
    responses((status = 200, body = IdsBody), (status = 404, body = ErrorBody))
)]
pub(crate) async fn list(state: Shared, PathList(kind, name): PathList) -> Answer<Json<IdsBody>> {
    let lists = state.saved.now();
    let ids = lists.ids(kind, &name)?;
    let list = ListBody::of(&state, &name, ids);
    Ok(Json(IdsBody { list, ids: ids.iter().map(|&id| Id(id)).collect() }))
}

/// A change of a tag or a selection, made as a whole or not at all.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListChange {
    /// Items to add, at most 100,000.
    #[serde(default)]
    add: Vec<Id>,
    /// Items to remove, at most 100,000.
    #[serde(default)]
    remove: Vec<Id>,
    /// Its new name.
    #[serde(default)]
    name: Option<String>,
}

/// Adds items to a tag or a selection, removes items, renames it. One that does not exist is made. A tag that has no items
/// afterwards is removed.
#[utoipa::path(
    post, path = "/api/v1/saved/{kind}/{name}", tag = "saved", security(("token" = [])), request_body = ListChange,
    params(("kind" = Kind, Path, description = "`tags` or `selections`"), ("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, body = ListBody), (status = 400, body = ErrorBody),
        (status = 401, description = "Not the token", body = ErrorBody),
        (status = 403, description = "Nothing can be changed, or stored", body = ErrorBody),
        (status = 404, description = "There is none to rename or to remove items from", body = ErrorBody),
        (status = 409, description = "The new name is taken", body = ErrorBody),
        (status = 413, description = "Too many bytes", body = ErrorBody),
        (status = 422, description = "Too many lists or items", body = ErrorBody),
    )
)]
pub(crate) async fn change(
    state: Shared,
    Writer(author): Writer,
    PathList(kind, name): PathList,
    body: Result<Json<ListChange>, Refusal>,
) -> Answer<Json<ListBody>> {
    let Json(ListChange { add, remove, name: rename }) = body?;
    if add.len().max(remove.len()) > ITEMS {
        return Err(Refusal::unprocessable(format!("at most {ITEMS} items are added or removed at once")));
    }
    let ids = |ids: Vec<Id>| ids.into_iter().map(|id| id.0).collect();
    let now = rename.clone().unwrap_or_else(|| name.clone());
    let change = Change { add: ids(add), remove: ids(remove), rename, delete: false };
    let lists = store(&state, author, kind, name, change).await?;
    // A tag without items is gone.
    Ok(Json(ListBody::of(&state, &now, lists.ids(kind, &now).unwrap_or_default())))
}

/// Removes a tag or a selection. Its items stay.
#[utoipa::path(
    delete, path = "/api/v1/saved/{kind}/{name}", tag = "saved", security(("token" = [])),
    params(("kind" = Kind, Path, description = "`tags` or `selections`"), ("name" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 401, description = "Not the token", body = ErrorBody),
        (status = 403, description = "Nothing can be changed, or stored", body = ErrorBody),
        (status = 404, body = ErrorBody),
    )
)]
pub(crate) async fn delete(
    state: Shared,
    Writer(author): Writer,
    PathList(kind, name): PathList,
) -> Answer<StatusCode> {
    store(&state, author, kind, name, Change { delete: true, ..Change::default() }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn store(
    state: &Shared,
    author: Author,
    kind: Kind,
    name: String,
    change: Change,
) -> Answer<std::sync::Arc<Lists>> {
    let own = std::sync::Arc::clone(&**state);
    let ids = |ids: &[u64]| ids.iter().map(|&id| Id(id)).collect();
    let entry = audit::Change::List {
        kind,
        name: name.clone(),
        add: ids(&change.add),
        remove: ids(&change.remove),
        rename: change.rename.clone(),
        delete: change.delete,
    };
    let work =
        move || own.audit.around(&author, Some(&own.name), &entry, || own.saved.change(kind, &name, &change));
    let changed = state.work.run(work).await??;
    Ok(changed.inspect_err(|fault| {
        if let Fault::File(_) = fault {
            (state.options.note)(&fault.to_string());
        }
    })?)
}

/// The items of a tag or a selection as CSV: id, label, path, camera, tags, and the further columns. Of an unknown item
/// only the id is known.
#[utoipa::path(
    get, path = "/api/v1/saved/{kind}/{name}/csv", tag = "saved",
    params(("kind" = Kind, Path, description = "`tags` or `selections`"), ("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "The table", content_type = "text/csv"), (status = 404, body = ErrorBody))
)]
pub(crate) async fn table(state: Shared, PathList(kind, name): PathList) -> Answer<Response> {
    let lists = state.saved.now();
    let ids = lists.ids(kind, &name)?.to_vec();
    let own = std::sync::Arc::clone(&*state);
    let written = state.reading.run(move || csv_of(&own, &lists, &ids)).await?;
    let bytes = written.map_err(|error| Refusal::internal(error.to_string()))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"items.csv\"")),
    ];
    Ok((headers, bytes).into_response())
}

fn csv_of(state: &State, lists: &Lists, ids: &[u64]) -> Result<Vec<u8>, csv::Error> {
    let catalog = state.gallery.catalog();
    let columns: Vec<&str> = catalog.columns().names().collect();
    let mut table = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    table.write_record(["id", "label", "path", "camera", "tags"].iter().chain(&columns))?;
    for &id in ids {
        let item = Item::anywhere(state, &catalog, id);
        let own = item.as_ref().map_or_else(Default::default, Item::texts);
        let tags = lists.tags_of(id).join("|");
        let values =
            columns.iter().map(|name| item.as_ref().map_or_else(String::new, |item| item.column(name)));
        let [label, path, camera] = own.map(str::to_owned);
        table.write_record([id.to_string(), label, path, camera, tags].into_iter().chain(values))?;
    }
    table.into_inner().map_err(|error| error.into_error().into())
}
