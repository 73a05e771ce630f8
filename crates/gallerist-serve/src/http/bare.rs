//! Calls that take no query parameters.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Request, State as Given};
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, ParameterIn};

use super::error::Refusal;
use super::extract::{call_of, parameters};

/// The calls without query parameters: for each path the methods, with a hint where their fields are.
pub(super) struct Bare(HashMap<String, Vec<(&'static str, &'static str)>>);

/// The parameters of such a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Bare {
    /// The calls that the description of the API gives no query parameters. Probes of other programs (`/health`, `/metrics`) may have
    /// any.
    pub(super) fn of(api: &OpenApi) -> Self {
        let of_api = api.paths.paths.iter().filter(|(path, _)| path.starts_with("/api/"));
        let calls = of_api.map(|(path, item)| {
            let all = [
                ("GET", &item.get),
                ("POST", &item.post),
                ("PUT", &item.put),
                ("PATCH", &item.patch),
                ("DELETE", &item.delete),
            ];
            let bare = all.into_iter().filter_map(|(method, call)| Some((method, hint(call.as_ref()?)?)));
            (path.clone(), bare.collect::<Vec<_>>())
        });
        Self(calls.collect())
    }

    fn hint(&self, (method, path): (&str, &str)) -> Option<&'static str> {
        self.0.get(path)?.iter().find(|(call, _)| *call == method).map(|&(_, hint)| hint)
    }
}

/// Where the fields of a call are; `None` for one with query parameters.
fn hint(call: &Operation) -> Option<&'static str> {
    if call.parameters.iter().flatten().any(|parameter| parameter.parameter_in == ParameterIn::Query) {
        return None;
    }
    let has_form = call.request_body.as_ref().map(|body| body.content.contains_key("multipart/form-data"));
    Some(match has_form {
        Some(true) => "give it as a field of the form; the fields of each call are in /openapi.json",
        Some(false) => "give it as a field of the JSON body; the fields of each call are in /openapi.json",
        None => "this call takes no parameter but `gallery`",
    })
}

/// Refuses query parameters where a call takes none. The parameter `gallery`, which all calls take, is not in the address any more.
pub(super) async fn without_parameters(
    Given(bare): Given<Arc<Bare>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Some(hint) = bare.hint(call_of(&request)) {
        parameters::<Nothing>(request.uri().query().unwrap_or_default(), hint)?;
    }
    Ok(next.run(request).await)
}
