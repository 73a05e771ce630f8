//! The routes of the API.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bare::{Bare, without_parameters};
use super::error::Refusal;
use super::{
    about, analysis, assets, change, chosen, clusters, gallery, heatmap, items, limited, origin, pictures,
    reload, saved, search, security, token,
};
use crate::state::State;

#[derive(OpenApi)]
#[openapi(
    info(title = "Gallerist", description = "Search in a gallery of images by image, by item and by vector."),
    tags(
        (name = "gallery", description = "The gallery and its items"),
        (name = "search", description = "Search by item, vector or upload"),
        (name = "saved", description = "Tags and selections that users made"),
        (name = "pictures", description = "Images and thumbnails"),
        (name = "analysis", description = "Results computed after the start"),
        (name = "server", description = "The server itself"),
    ),
    modifiers(&Token)
)]
struct Api;

/// The token that authorises changes of the gallery, and on some servers reading.
struct Token;

impl Modify for Token {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme("token", token);
    }
}

/// All routes of a gallery.
pub(super) fn router(state: Arc<State>) -> Router {
    let (router, mut api) = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(gallery::gallery))
        .routes(routes!(gallery::labels))
        .routes(routes!(items::items, change::add))
        .routes(routes!(items::lookup))
        .routes(routes!(items::item, change::remove))
        .routes(routes!(saved::saved))
        .routes(routes!(saved::list, saved::change, saved::delete))
        .routes(routes!(saved::table))
        .routes(routes!(search::similar))
        .routes(routes!(search::search))
        .routes(routes!(search::upload))
        .routes(routes!(heatmap::heatmap))
        .routes(routes!(pictures::image))
        .routes(routes!(pictures::thumbnail))
        .routes(routes!(analysis::map))
        .routes(routes!(analysis::points))
        .routes(routes!(clusters::clusters))
        .routes(routes!(analysis::failures))
        .routes(routes!(analysis::step))
        .routes(routes!(analysis::confusions))
        .routes(routes!(analysis::duplicates))
        .routes(routes!(analysis::leaks))
        .routes(routes!(analysis::compare))
        .routes(routes!(reload::reload))
        .routes(routes!(token::sign_in, token::sign_out))
        .routes(routes!(about::health))
        .routes(routes!(about::ready))
        .routes(routes!(about::metrics))
        .split_for_parts();
    if !state.options.read_tokens.is_empty() {
        api.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
    }
    let bare = Arc::new(Bare::of(&api));
    let api = Bytes::from(serde_json::to_vec(&api).expect("keys are strings"));
    let api = move || async { ([(header::CONTENT_TYPE, "application/json")], api) };
    router
        .route("/", get(assets::page))
        .route("/api", get(about::api))
        .route("/openapi.json", get(api))
        .fallback(assets::asset)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(bare, without_parameters))
        .layer(from_fn_with_state(Arc::clone(&state), chosen::chosen))
        .layer(DefaultBodyLimit::max(state.options.upload_bytes))
        .layer(from_fn_with_state(Arc::clone(&state), security::time_limit))
        .layer(from_fn_with_state(Arc::clone(&state), token::may_read))
        .layer(from_fn(origin::same_origin))
        .layer(from_fn_with_state(Arc::clone(&state), limited::limited))
        .layer(from_fn_with_state(Arc::clone(&state), security::known_host))
        .layer(from_fn(security::headers))
        .layer(from_fn_with_state(Arc::clone(&state), about::measured))
        .with_state(state)
}

async fn not_allowed() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "there is no such call at this address")
        .hint("the calls are listed in /openapi.json")
}
