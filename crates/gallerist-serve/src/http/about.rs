//! Health, metrics and the page that documents the API.

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State as Given};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

use super::extract::{Json, Shared};
use crate::metrics::Now;
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

#[derive(Serialize, ToSchema)]
pub(crate) struct Readiness {
    ready: bool,
    /// Why it is not.
    reason: Option<String>,
}

/// Whether new requests should be sent to the server. It answers them in any case.
#[utoipa::path(
    get, path = "/ready", tag = "server",
    responses(
        (status = 200, body = Readiness),
        (status = 503, description = "Not now: too much work waits, or too much memory is in use", body = Readiness),
    )
)]
pub(crate) async fn ready(state: Shared) -> (StatusCode, Json<Readiness>) {
    let reason = unready(&state);
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready: reason.is_none(), reason }))
}

/// Why the server is not ready for requests.
fn unready(state: &State) -> Option<String> {
    if state.work.is_full() {
        return Some("too many uploads wait".to_owned());
    }
    let (limit, used) = (state.options.ready_memory?, memory()?);
    (used > limit).then(|| format!("{} MiB of memory are in use, more than {}", used >> 20, limit >> 20))
}

/// Bytes of memory in use.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Request counts and latencies for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text"))
)]
pub(crate) async fn metrics(state: Shared) -> Response {
    let now = Now {
        items: state.counts(),
        uploads: state.work.inside(),
        ready: unready(&state).is_none(),
        memory: memory(),
    };
    match state.metrics.text(&now) {
        Ok(text) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, content_type)], Body::from(text)).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Counts a request by its route, and measures its latency.
pub(super) async fn measured(Given(state): Given<Arc<State>>, request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = request.method().as_str().to_owned();
    let response = next.run(request).await;
    // Files of the page and unknown addresses count as one route: otherwise clients could make the list arbitrarily
    // long.
    let path = path.unwrap_or_else(|| "/{file}".to_owned());
    state.metrics.request(path, method, response.status().as_u16(), begin.elapsed());
    response
}

/// A short documentation of the API. Its examples can be run unchanged: they use the address of this request, and the
/// id and label of the first item of the gallery.
pub(crate) async fn api(state: Shared, headers: HeaderMap) -> Html<String> {
    let catalog = state.gallery.catalog();
    let id = catalog.ids().first().map_or_else(|| "ID".to_owned(), ToString::to_string);
    let label = (catalog.len() > 0).then(|| catalog.labels.get(0)).flatten().unwrap_or("LABEL");
    let part: String = label.chars().take(3).collect();
    let queries = state.queries.as_ref().and_then(|queries| queries.catalog.ids().first());
    let query = queries.map_or_else(|| id.clone(), ToString::to_string);
    let values = [
        ("{server}", escaped(&address(&headers))),
        ("{id}", id),
        ("{query}", query),
        ("{label}", encoded(label)),
        ("{part}", encoded(&part)),
    ];
    let mut page = include_str!("api.html").to_owned();
    if let (true, Some(begin), Some(end)) =
        (queries.is_none(), page.find("<!--queries-->"), page.find("<!--/queries-->"))
    {
        page.replace_range(begin..end, "");
    }
    if !state.options.read_tokens.is_empty() {
        page = with_tokens(&page);
    }
    Html(values.iter().fold(page, |page, (name, value)| page.replace(name, value)))
}

/// The examples with the header for a token where they do not have one.
fn with_tokens(page: &str) -> String {
    let token = "-H \"Authorization: Bearer $GALLERIST_READ_TOKEN\"";
    let lines = page.split_inclusive('\n').map(|line| match line.contains("Authorization") {
        true => line.to_owned(),
        false => line.replace("curl ", &format!("curl {token} ")),
    });
    lines.collect()
}

/// The address that the request used. A proxy that terminates TLS says so in a header.
fn address(headers: &HeaderMap) -> String {
    let scheme = if is_secure(headers) { "https" } else { "http" };
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}

/// Whether the browser used TLS.
pub(super) fn is_secure(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

/// Text escaped for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A parameter value, percent-encoded. This also makes it safe in HTML and in the quotes of a shell.
fn encoded(text: &str) -> String {
    let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let letter = |byte: u8| if safe(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_examples_ends_neither_markup_nor_a_shells_quotes() {
        assert_eq!(encoded("a b/c'\"<é"), "a%20b/c%27%22%3C%C3%A9");
        assert_eq!(escaped("<a href=\"x&y\">"), "&lt;a href=&quot;x&amp;y&quot;&gt;");
    }
}
