//! The calls of the API, and what stands around them.

mod about;
mod analysis;
mod assets;
mod change;
mod error;
mod extract;
mod gallery;
mod heatmap;
mod items;
mod origin;
mod pictures;
mod search;
mod security;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
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
        (name = "analysis", description = "What was computed after the start"),
        (name = "server", description = "The server itself"),
    ),
    modifiers(&Token)
)]
struct Api;

/// The token with which the gallery is changed.
struct Token;

impl Modify for Token {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme("token", token);
    }
}

/// Everything a server answers.
pub(crate) fn router(state: Arc<State>) -> Router {
    let (router, api) = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(gallery::gallery))
        .routes(routes!(gallery::labels))
        .routes(routes!(items::items, change::add))
        .routes(routes!(items::lookup))
        .routes(routes!(items::item, change::remove))
        .routes(routes!(search::similar))
        .routes(routes!(search::search))
        .routes(routes!(search::upload))
        .routes(routes!(heatmap::heatmap))
        .routes(routes!(pictures::image))
        .routes(routes!(pictures::thumbnail))
        .routes(routes!(analysis::map))
        .routes(routes!(analysis::points))
        .routes(routes!(analysis::failures))
        .routes(routes!(analysis::confusions))
        .routes(routes!(analysis::duplicates))
        .routes(routes!(analysis::leaks))
        .routes(routes!(analysis::compare))
        .routes(routes!(about::health))
        .routes(routes!(about::metrics))
        .split_for_parts();
    let api = Bytes::from(serde_json::to_vec(&api).expect("keys are strings"));
    let api = move || async { ([(header::CONTENT_TYPE, "application/json")], api) };
    router
        .route("/", get(assets::page))
        .route("/api", get(about::api))
        .route("/openapi.json", get(api))
        .fallback(assets::asset)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(state.options.upload_bytes))
        .layer(from_fn_with_state(Arc::clone(&state), security::time_limit))
        .layer(from_fn(origin::same_origin))
        .layer(from_fn_with_state(Arc::clone(&state), security::known_host))
        .layer(from_fn(security::headers))
        .layer(from_fn_with_state(Arc::clone(&state), about::measured))
        .with_state(state)
}

async fn not_allowed() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "there is no such call at this address")
        .hint("the calls are listed in /openapi.json")
}

fn not_found(uri: &Uri) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at `{}`", uri.path()))
}
