//! Opening the galleries again.

use std::fmt;
use std::sync::Arc;

use axum::Extension;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::chosen::Named;
use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Json, Params, Shared};
use super::token::Writer;
use crate::audit::Change;
use crate::reloaded::{Outcome, Reloaded};
use crate::sync::spawn_blocking;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadParams {
    /// Also open galleries whose files have not changed, for example because the folder of the images has.
    #[serde(default)]
    all: bool,
}

/// What became of the galleries.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReloadBody {
    galleries: Vec<ReloadedBody>,
    /// The galleries that cannot be opened, and why; null if there is none.
    error: Option<String>,
    hint: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ReloadedBody {
    gallery: String,
    /// `reloaded`, `unchanged` or `failed`. A gallery that failed stays as it was.
    #[schema(example = "reloaded")]
    outcome: &'static str,
    /// The number of items of a gallery that was opened.
    items: Option<usize>,
}

impl From<Vec<Reloaded>> for ReloadBody {
    fn from(done: Vec<Reloaded>) -> Self {
        let (mut problems, mut first_hint) = (Vec::new(), None);
        let galleries = done.into_iter().map(|Reloaded { gallery, outcome }| match outcome {
            Outcome::Reloaded { items } => ReloadedBody { gallery, outcome: "reloaded", items: Some(items) },
            Outcome::Unchanged => ReloadedBody { gallery, outcome: "unchanged", items: None },
            Outcome::Failed { problem, hint } => {
                problems.push(format!("the gallery `{gallery}` stays as it was: {problem}"));
                first_hint = first_hint.take().or(hint);
                ReloadedBody { gallery, outcome: "failed", items: None }
            }
        });
        let galleries = galleries.collect();
        let error = (!problems.is_empty()).then(|| problems.join("; "));
        Self { galleries, error, hint: first_hint }
    }
}

/// A reload after which a gallery stays as it was.
struct Failed(ReloadBody);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.error.as_deref().unwrap_or_default())
    }
}

/// Opens the galleries whose files have changed, or the one that the parameter `gallery` names. Requests in progress are
/// answered with the old ones.
#[utoipa::path(
    post, path = "/api/v1/reload", tag = "server", params(ReloadParams), security(("token" = [])),
    responses(
        (status = 200, body = ReloadBody), (status = 400, body = ErrorBody),
        (status = 401, description = "Not the token", body = ErrorBody),
        (status = 403, description = "The server has no token", body = ErrorBody),
        (status = 500, description = "A gallery cannot be opened, or its tags cannot be read; it stays as it was", body = ReloadBody),
        (status = 501, description = "The server cannot open galleries again", body = ErrorBody),
    )
)]
pub(crate) async fn reload(
    state: Shared,
    Writer(author): Writer,
    named: Option<Extension<Named>>,
    Params(params): Params<ReloadParams>,
) -> Answer<(StatusCode, Json<ReloadBody>)> {
    let Some(call) = state.reload.get().cloned() else {
        return Err(Refusal::not_implemented("this server cannot open its galleries again"));
    };
    let own = Arc::clone(&state);
    let only = named.map(|_| Arc::clone(&state.name));
    let change = Change::Reload { all: params.all };
    let work = move || {
        let reload = || {
            let body = ReloadBody::from(call(params.all, only.as_deref()));
            if body.error.is_some() { Err(Failed(body)) } else { Ok(body) }
        };
        own.audit.around(&author, only.as_deref(), &change, reload)
    };
    let done = spawn_blocking(work).await;
    let done = done.map_err(|_| Refusal::internal("opening the galleries broke off"))??;
    Ok(match done {
        Ok(body) => (StatusCode::OK, Json(body)),
        Err(Failed(body)) => (StatusCode::INTERNAL_SERVER_ERROR, Json(body)),
    })
}
