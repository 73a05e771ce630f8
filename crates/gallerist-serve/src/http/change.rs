//! Adding and removing items.

use std::sync::Arc;

use axum::http::StatusCode;
use gallerist_data::{canonical_label, tidy_path, to_nfc};
use gallerist_retrieval::Error::{Changed, Io, Remote, Replaces};
use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::condition::Table;
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::index::{Items, check_id_of_path, item_id, stable_id};
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_util::text::address;
use serde::Serialize;
use utoipa::ToSchema;

use super::embedding::{decoded, embedded};
use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Id, Json, PathId, Shared};
use super::items::is_there;
use super::token::Writer;
use super::upload::{Form, FormBody};
use crate::Error;
use crate::audit::Change;
use crate::gallery::Catalog;

/// The largest path, label and camera, in bytes.
const TEXT: usize = 1024;

/// The longest JSON of an item's columns, in bytes.
const MAX_COLUMNS: usize = 1 << 16;

/// Refuses to change a gallery whose items are fixed.
fn check_items(state: &Shared) -> Answer<()> {
    if !state.gallery.is_index() {
        let problem = "the items of a file of embeddings cannot be changed";
        return Err(Refusal::new(StatusCode::FORBIDDEN, problem)
            .hint("serve an index: `gallerist index build FILE --out FILE.index`"));
    }
    if state.other.is_some() {
        let problem = "the gallery is compared with another network, which must have the same images";
        return Err(Refusal::new(StatusCode::FORBIDDEN, problem)
            .hint("to change items, start the server without --compare"));
    }
    Ok(())
}

/// Refuses a new item where ids are not those of paths, as [`check_path_ids`](gallerist_retrieval::index::check_path_ids) does.
fn check_ids(catalog: &Catalog) -> Answer<()> {
    let first = (0..catalog.len()).min_by_key(|&row| catalog.ids()[row]);
    let Some((row, path)) = first.and_then(|row| Some((row, catalog.path(row)?))) else { return Ok(()) };
    check_id_of_path(catalog.ids()[row], catalog.sources.get(row), path).map_err(|error| {
        Refusal::new(StatusCode::FORBIDDEN, error.to_string())
            .hint("build it again with ids of the paths: `gallerist index build FILE --out FILE.index`")
    })
}

/// The answer to a change that failed. Clients do not see paths of the server.
fn refused(gallery: &str, note: fn(&str), error: &Error) -> Refusal {
    let told = |refusal: Refusal| refusal.hint_of(error.hint());
    match error {
        Error::Reopening => told(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Error::Outdated => told(Refusal::new(StatusCode::CONFLICT, error.to_string())),
        Error::Retrieval(Io { .. } | Changed { .. } | Remote { .. }) | Error::Io { .. } => {
            note(&format!("a change of the gallery `{gallery}` was not made: {error}"));
            Refusal::internal("the change was not made, because it cannot be stored")
                .hint("the messages of the server have the reason")
        }
        error => Refusal::internal(error.to_string()),
    }
}

/// The path of a new item as an image set has it, so that an image has one id. An address such as `s3://photos//a.png` stays, and so
/// does a `\` in the path of an item of the gallery.
fn path_of(given: Option<String>, source: Option<&str>, catalog: &Catalog) -> Answer<String> {
    // An item that is stored without its source has the id of its path.
    let is_there =
        |path: &str| [item_id(source, path), stable_id(path)].iter().any(|&id| catalog.row(id).is_some());
    let tidied = |path: String| if address(&path).is_some() { path } else { tidy_path(&path, is_there) };
    let path = given.map(tidied).filter(|path| !path.is_empty());
    path.ok_or_else(|| Refusal::bad("wanted a field `path`, or a file with a name"))
}

/// The label of a new item as an image set has it. One that an item of the gallery has stays as it is.
fn label_of(mut given: String, catalog: &Catalog) -> Answer<String> {
    to_nfc(&mut given);
    let label = canonical_label(&given).ok_or_else(|| {
        Refusal::bad(format!("the label `{given}` has an empty part"))
            .hint("write the labels of an image as `a|b`")
    })?;
    Ok(if catalog.labels.count(&given) > 0 { given } else { label })
}

/// The further columns of a new item, from the JSON of a form.
fn columns_of(text: &str, existing: &Columns) -> Answer<Columns> {
    if text.len() > MAX_COLUMNS {
        return Err(Refusal::bad(format!("columns must have at most {MAX_COLUMNS} bytes")));
    }
    let row = serde_json::from_str(text).map_err(|error| {
        Refusal::bad(format!("columns must be a JSON object: {error}"))
            .hint(r#"such as {"price": 12.5, "shop": "north", "colour": ["red", "blue"]}"#)
    })?;
    Columns::from_json(&row, existing).map_err(|error| Error::from(error).into())
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Added {
    id: Id,
}

/// The fields of a new item. Only used for the documentation.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct NewItem {
    #[schema(value_type = String, format = Binary)]
    image: Vec<u8>,
    /// Its path; `./new//a.png` and `new\a.png` are stored as `new/a.png`. The default is the name of the file.
    path: Option<String>,
    /// Its label, or several: `a|b`.
    label: Option<String>,
    camera: Option<String>,
    /// The name of its source. The default is the source of all items of the gallery, if they have only one.
    source: Option<String>,
    /// Its further columns: a JSON object of values by the names of their columns (numbers, texts, lists of tags).
    columns: Option<String>,
    /// `true` to replace an item with the same path and source.
    replace: Option<bool>,
}

/// Adds an image. The gallery stores its embedding, label, path and columns, not the image. An item with the same path and
/// source but another embedding, label, camera or columns is replaced only with `replace`; it keeps its columns if `columns` is not given.
#[utoipa::path(
    post, path = "/api/v1/items", tag = "gallery", security(("token" = [])),
    request_body(content = NewItem, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = Added),
        (status = 200, description = "The gallery already had the same item", body = Added),
        (status = 409, description = "It would replace another item, or another program changed the file", body = ErrorBody),
        (status = 400, body = ErrorBody),
        (status = 401, description = "Not the token", body = ErrorBody),
        (status = 403, description = "The gallery cannot be changed", body = ErrorBody),
        (status = 413, description = "Too many bytes", body = ErrorBody),
        (status = 415, description = "Not a form, or not an image", body = ErrorBody),
        (status = 422, description = "It cannot be decoded, or does not fit the queries", body = ErrorBody),
        (status = 503, description = "The gallery is being opened again", body = ErrorBody),
    )
)]
pub(crate) async fn add(
    state: Shared,
    Writer(author): Writer,
    form: FormBody,
) -> Answer<(StatusCode, Json<Added>)> {
    check_items(&state)?;
    check_ids(&state.gallery.catalog())?;
    let embedder = state.embedder.clone().ok_or_else(Refusal::no_network)?;
    let names = ["path", "label", "camera", "source", "columns", "replace"];
    let mut form = Form::read(&state, form, 1, &names).await?;
    let (name, bytes) = form.images.pop().ok_or_else(|| Refusal::bad("wanted a field `image`"))?;
    let checked = |field: &str, text: Option<String>| match text {
        Some(text) if text.len() > TEXT || text.chars().any(char::is_control) => {
            Err(Refusal::bad(format!("{field} must have at most {TEXT} bytes, and no control characters")))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    };
    let name = checked("the name of the file", name)?;
    let mut text = |field: &str| checked(field, form.take(field)?);
    let (path, label, camera, source) = (text("path")?, text("label")?, text("camera")?, text("source")?);
    let replace = match text("replace")?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Refusal::bad("replace must be true or false")),
    };
    let columns = form.take("columns")?.filter(|text| !text.is_empty());
    let gallery = Arc::clone(&state.gallery);
    let catalog = gallery.catalog();
    let source = source.or_else(|| catalog.only_source().map(str::to_owned));
    let path = path_of(path.or(name), source.as_deref(), &catalog)?;
    let label = label.map(|label| label_of(label, &catalog)).transpose()?;
    let columns = columns.map(|text| columns_of(&text, catalog.columns())).transpose()?;
    let (queries, rules) = (state.queries.as_deref(), &state.rules);
    rules.check_added(queries, &catalog, label.as_deref(), camera.as_deref())?;
    drop(catalog);
    let limit = state.options.decode_time;
    let own = Arc::clone(&state);
    // The item has its place among the changes from here on: what was embedded is not refused.
    let (place, turn) = (state.work.enter()?, state.changing.enter()?);
    let (row, ..) = embedded(&state, &place, None, move || decoded(&bytes, limit)).await?;
    drop(place);
    let work = move || -> Answer<(StatusCode, u64)> {
        let id = item_id(source.as_deref(), &path);
        let change = Change::Add {
            item: Id(id),
            path: path.clone(),
            label: label.clone(),
            camera: camera.clone(),
            source: source.clone(),
            columns: columns.as_ref().map(|columns| columns.row_as_json(0)),
            replace,
        };
        let (by_path, keeps_columns) = (stable_id(&path), columns.is_none());
        let failed = |error: gallerist_retrieval::Error| Refusal::unprocessable(error.to_string());
        let set = EmbeddingSet {
            labels: label.map(|label| vec![label]),
            paths: Some(vec![path]),
            cameras: camera.map(|camera| vec![camera]),
            sources: source.map(|name| Sources::one(Source { name, images: None }, 1)),
            columns: columns.unwrap_or_default(),
            model: Some(embedder.fingerprint().to_owned()),
            ..Matrix::new(1, row.len(), row).map_err(failed)?.into()
        };
        let items = Items::new(vec![id], set).map_err(failed)?;
        let add = || match keeps_columns {
            true => gallery.add_keeping_columns(&items, replace),
            false => gallery.add(&items, replace),
        };
        let added = own.audit.around(&author, Some(&own.name), &change, add)?;
        let added = added.map_err(|error| match error {
            Error::Retrieval(Replaces { .. }) => Refusal::new(StatusCode::CONFLICT, error.to_string())
                .hint("give replace=true to put it in the place of the other, or another path or source"),
            error => refused(&own.name, own.options.note, &error),
        })?;
        if added.unchanged == 0 {
            return Ok((StatusCode::CREATED, id));
        }
        // An item that is stored without its source has the id of its path.
        let there = gallery.catalog().row(id).is_some();
        Ok((StatusCode::OK, if there { id } else { by_path }))
    };
    let (status, id) = turn.run(work).await??;
    Ok((status, Json(Added { id: Id(id) })))
}

/// Removes an item.
#[utoipa::path(
    delete, path = "/api/v1/items/{id}", tag = "gallery", security(("token" = [])),
    params(("id" = String, Path, description = "The item")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 401, description = "Not the token", body = ErrorBody),
        (status = 403, description = "The gallery cannot be changed", body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 409, description = "Another program changed the file", body = ErrorBody),
        (status = 503, description = "The gallery is being opened again", body = ErrorBody),
    )
)]
pub(crate) async fn remove(state: Shared, Writer(author): Writer, PathId(id): PathId) -> Answer<StatusCode> {
    check_items(&state)?;
    let gallery = Arc::clone(&state.gallery);
    if !is_there(&state, id).await? {
        return Err(Refusal::no_item(id));
    }
    let (own, change) = (Arc::clone(&state), Change::Remove { item: Id(id) });
    let work = move || own.audit.around(&author, Some(&own.name), &change, || gallery.remove(id));
    let removed = state.changing.run(work).await??;
    match removed.map_err(|error| refused(&state.name, state.options.note, &error))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Refusal::no_item(id)),
    }
}
