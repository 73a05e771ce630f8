//! Images and thumbnails.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::{Answer, ErrorBody, Refusal};
use super::etag::is_known;
use super::extract::{Params, PathId, Shared};
use crate::companion::Set;
use crate::images::{Encoded, Images, SIZES};

/// Browsers may cache a picture for a day, and revalidate it by its ETag after that.
const CACHING: &str = "private, max-age=86400";

/// The image of an item, of a query or of a training image.
pub(super) fn find(state: &Shared, id: u64) -> Answer<(Images, u32)> {
    let missing = |of: &str, option: &str| {
        Refusal::new(StatusCode::NOT_FOUND, format!("the images{of} are not at hand"))
            .hint(format!("start the server with {option} PATH"))
    };
    let own = state.gallery.catalog();
    let (images, catalog, row) = match own.row(id) {
        Some(row) => (state.images.as_ref().ok_or_else(|| missing("", "--images"))?, &*own, row),
        None => {
            let (set, side, row) = state.companion_item(id).ok_or_else(|| Refusal::no_item(id))?;
            let images = side.images.as_ref().ok_or_else(|| match set {
                Set::Training => missing(" of the training set", "--training-images"),
                _ => missing(" of the queries", "--query-images"),
            })?;
            (images, &side.catalog, row)
        }
    };
    let image = images.find(catalog, row).ok_or_else(|| {
        Refusal::new(StatusCode::NOT_FOUND, format!("the image of item {id} is not among the images"))
    })?;
    Ok((images.clone(), image))
}

fn answer(asked: &HeaderMap, encoded: &Encoded) -> Response {
    let headers = [(header::ETAG, &*encoded.etag), (header::CACHE_CONTROL, CACHING)];
    if is_known(asked, &encoded.etag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let body = Body::from(encoded.picture.bytes().to_vec());
    (headers, [(header::CONTENT_TYPE, encoded.picture.media_type())], body).into_response()
}

/// The original image of an item.
#[utoipa::path(
    get, path = "/images/{id}", tag = "pictures", params(("id" = String, Path, description = "The item")),
    responses(
        (status = 200, description = "The file", content_type = "image/*"),
        (status = 304, description = "Unchanged: the one named in If-None-Match"),
        (status = 404, body = ErrorBody), (status = 422, description = "It cannot be read", body = ErrorBody),
    )
)]
pub(crate) async fn image(state: Shared, PathId(id): PathId, asked: HeaderMap) -> Answer<Response> {
    let (images, image) = find(&state, id)?;
    let encoded = state.reading.run(move || images.original(image)).await??;
    Ok(answer(&asked, &encoded))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThumbnailParams {
    /// The longer side, in pixels: 64, 160 or 320. A smaller image is not enlarged.
    #[serde(default = "middle")]
    size: u16,
}

fn middle() -> u16 {
    SIZES[1]
}

/// The thumbnail of an item.
#[utoipa::path(
    get, path = "/thumbnails/{id}", tag = "pictures",
    params(("id" = String, Path, description = "The item"), ThumbnailParams),
    responses(
        (status = 200, description = "The picture", content_type = "image/*"),
        (status = 304, description = "Unchanged: the one named in If-None-Match"),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, description = "It cannot be read", body = ErrorBody),
    )
)]
pub(crate) async fn thumbnail(
    state: Shared,
    PathId(id): PathId,
    Params(params): Params<ThumbnailParams>,
    asked: HeaderMap,
) -> Answer<Response> {
    let size = params.size;
    if !SIZES.contains(&size) {
        return Err(Refusal::bad(format!("size must be 64, 160 or 320, not {size}")));
    }
    let (images, image) = find(&state, id)?;
    let encoded = match images.remembered(image, size) {
        Some(encoded) => encoded,
        None => state.reading.run(move || images.thumbnail(image, size)).await??,
    };
    Ok(answer(&asked, &encoded))
}
