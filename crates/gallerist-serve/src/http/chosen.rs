//! The refusal of a request for a gallery that the server does not have.

use std::sync::Arc;

use axum::extract::{Request, State as Given};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::Refusal;
use crate::state::State;

/// Why no gallery could be chosen. The chosen router refuses the request with it, after its other checks.
#[derive(Clone)]
pub(super) struct NoGallery(pub(super) String);

/// The request names its gallery.
#[derive(Clone)]
pub(super) struct Named;

/// Refuses a request whose gallery could not be chosen.
pub(super) async fn chosen(Given(state): Given<Arc<State>>, request: Request, next: Next) -> Response {
    let Some(NoGallery(problem)) = request.extensions().get::<NoGallery>() else {
        return next.run(request).await;
    };
    let names: Vec<String> = state.names.iter().map(|name| format!("`{name}`")).collect();
    Refusal::new(StatusCode::NOT_FOUND, problem.clone())
        .hint(format!("the galleries of this server are {}", names.join(", ")))
        .into_response()
}
