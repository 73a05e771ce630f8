//! Refusals: the answers to requests that cannot be served.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gallerist_retrieval::Error::Changed;
use serde::Serialize;
use utoipa::ToSchema;

use super::json;
use crate::Error;
use crate::audit::Unlogged;
use crate::batch::Refused;
use crate::images::Unreadable;

/// A refusal: its status, the error and a hint.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: String,
    hint: Option<String>,
    /// After how many seconds the client may ask again.
    after: u64,
}

/// The body of every refusal.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What was wanted and what was found.
    error: String,
    /// What to do about it.
    hint: Option<String>,
}

pub(crate) type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), hint: None, after: 1 }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With the hint of an error that has one.
    pub(crate) fn hint_of(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(crate) fn no_item(id: u64) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no item {id}"))
    }

    pub(crate) fn no_page(uri: &Uri) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is nothing at `{}`", uri.path()))
    }

    pub(crate) fn unprocessable(error: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests wait already")
            .hint("ask again in a second")
    }

    pub(crate) fn too_often(wait: Duration) -> Self {
        let after = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "too many requests from this address");
        Self { after, ..refusal.hint(format!("ask again in {after} s")) }
    }

    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    /// Without its path, which clients must not see.
    pub(crate) fn changed_file() -> Self {
        Self::internal("the file of the gallery was changed while it was in use")
            .hint("open it again, by SIGHUP or POST /api/v1/reload, or start the server again")
    }

    pub(crate) fn not_implemented(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, error)
    }

    pub(crate) fn no_network() -> Self {
        Self::not_implemented("no network is loaded, so that images cannot be embedded")
            .hint("start the server with --run DIR")
    }

    pub(crate) fn no_text() -> Self {
        Self::not_implemented(
            "the network of this gallery has no text tower, so that texts cannot be embedded",
        )
        .hint("search with an image, or import the model with its text tower: [text] in the run file")
    }
}

impl From<Refused<Error>> for Refusal {
    fn from(refused: Refused<Error>) -> Self {
        match refused {
            Refused::Busy => Self::busy(),
            Refused::Broken => Self::internal("the search broke off"),
            Refused::Failed(Error::Retrieval(Changed { .. })) => Self::changed_file(),
            Refused::Failed(error) => error.into(),
        }
    }
}

impl From<Error> for Refusal {
    /// Of a request that does not fit the gallery.
    fn from(error: Error) -> Self {
        Self::unprocessable(error.to_string()).hint_of(error.hint())
    }
}

impl From<Unlogged> for Refusal {
    fn from(_: Unlogged) -> Self {
        Self::internal("the change was not made, because it cannot be written to the audit log")
            .hint("the messages of the server have the reason")
    }
}

impl From<Unreadable> for Refusal {
    fn from(Unreadable(problem): Unreadable) -> Self {
        Self::unprocessable(format!("the image cannot be shown: {problem}"))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, error, hint, after } = self;
        let mut response = (status, json::response(&ErrorBody { error, hint })).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, after.into());
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
