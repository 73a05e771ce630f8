//! Extractors: the parts of requests, with refusals in the format of the API.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Refusal;
use super::json;
pub(crate) use crate::id::Id;
use crate::state::State;

/// The state of the server, an argument of every handler.
pub(crate) type Shared = axum::extract::State<Arc<State>>;

/// The call of a request: its method, and its path in /openapi.json, which is empty if it has none. HEAD is answered by the
/// handler of GET.
pub(super) fn call_of(request: &Request) -> (&str, &str) {
    let method = if request.method() == Method::HEAD { "GET" } else { request.method().as_str() };
    (method, request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str))
}

/// The id in a path.
pub(crate) struct PathId(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|error| Refusal::bad(error.body_text()))?;
        text.parse::<Id>().map(|id| Self(id.0)).map_err(Refusal::bad)
    }
}

/// The query parameters of a URL. A name may be repeated.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        parameters(query, "the parameters of each call are in /openapi.json").map(Self)
    }
}

/// Reads the query parameters of a URL; `hint` is for a refusal.
pub(super) fn parameters<T: DeserializeOwned>(query: &str, hint: &str) -> Result<T, Refusal> {
    serde_html_form::from_str(query).map_err(|error| {
        // The error does not name the parameter: it is the one that alone has the same error.
        let is_wrong = |pair: &&str| {
            serde_html_form::from_str::<T>(pair).is_err_and(|own| own.to_string() == error.to_string())
        };
        let wrong = query.split('&').find(is_wrong).and_then(|pair| pair.split('=').next());
        let which = wrong.map_or("the parameters".to_owned(), |name| format!("the parameter `{name}`"));
        Refusal::bad(format!("{which} cannot be read: {error}")).hint(hint)
    })
}

/// A JSON body, of a request or an answer.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let is_json =
            request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(
                |value| {
                    value
                        .split(';')
                        .next()
                        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"))
                },
            );
        if !is_json {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "wanted a body of JSON, with the header `Content-Type: application/json`",
            ));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|error| too_large_or(&error))?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| Refusal::bad(format!("the body cannot be read: {error}")))
    }
}

fn too_large_or(error: &BytesRejection) -> Refusal {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        status => Refusal::new(status, error.body_text()),
    }
}

pub(crate) fn too_large() -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request has more bytes than the server takes")
        .hint("/api/v1/gallery says how many it takes: limits.upload_bytes")
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json::response(&self.0)
    }
}
