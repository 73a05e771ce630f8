//! What the server says about itself.

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State as Given};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

use super::Shared;
use super::extract::Json;
use crate::state::State;

#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    status: &'static str,
}

/// Whether the server answers.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Counts and times, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text"))
)]
pub(crate) async fn metrics(state: Shared) -> Response {
    let items = state.gallery.read().catalog.len();
    match state.metrics.text(items) {
        Ok(text) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, content_type)], Body::from(text)).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Counts a request by what was asked for, and measures its time.
pub(super) async fn measured(Given(state): Given<Arc<State>>, request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = request.method().as_str().to_owned();
    let response = next.run(request).await;
    // Files of the page and addresses that are not there: as one, or anybody could make the list long.
    let path = path.unwrap_or_else(|| "/{file}".to_owned());
    state.metrics.request(path, method, response.status().as_u16(), begin.elapsed());
    response
}

/// The API in short, with examples.
pub(crate) async fn api() -> Html<&'static str> {
    Html(include_str!("api.html"))
}
