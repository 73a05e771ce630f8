//! JSON in answers.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An answer of status 200 with `value` as its body.
pub(crate) fn response(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], Body::from(bytes)).into_response(),
        // Only maps whose keys are not strings fail. No answer holds one.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
