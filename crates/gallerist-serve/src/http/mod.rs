//! The calls of the API, and what stands around them.

mod assets;
mod error;
mod extract;
mod gallery;
mod items;
mod pictures;
mod search;
mod security;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::State;

pub(crate) use error::Refusal;

/// What every handler is given.
pub(crate) type Shared = axum::extract::State<Arc<State>>;

#[derive(OpenApi)]
#[openapi(
    info(title = "Gallerist", description = "Search in a gallery of images by image, by item and by vector."),
    tags(
        (name = "gallery", description = "What there is"),
        (name = "search", description = "What is near"),
        (name = "pictures", description = "What is seen"),
    )
)]
struct Api;

/// Everything a server answers.
pub(crate) fn router(state: Arc<State>) -> Router {
    let (router, _api) = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(gallery::gallery))
        .routes(routes!(gallery::labels))
        .routes(routes!(items::items))
        .routes(routes!(items::lookup))
        .routes(routes!(items::item))
        .routes(routes!(search::similar))
        .routes(routes!(search::search))
        .routes(routes!(search::upload))
        .routes(routes!(pictures::image))
        .routes(routes!(pictures::thumbnail))
        .split_for_parts();
    router
        .route("/", get(assets::page))
        .fallback(assets::asset)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(state.options.upload_bytes))
        .layer(from_fn_with_state(Arc::clone(&state), security::time_limit))
        .layer(from_fn_with_state(Arc::clone(&state), security::known_host))
        .layer(from_fn(security::headers))
        .with_state(state)
}

async fn not_allowed() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "there is no such call at this address")
        .hint("the calls are listed in /openapi.json")
}

fn not_found(uri: &Uri) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at `{}`", uri.path()))
}
