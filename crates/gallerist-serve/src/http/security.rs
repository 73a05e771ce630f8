//! Checks and headers of every request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State as Given};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error::Refusal;
use super::extract::call_of;
use crate::state::State;

/// Scripts, styles and pictures come only from this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(super) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses requests for another host. A foreign page may point its own name at this machine (DNS rebinding); its
/// requests then carry that name.
///
/// A request has exactly one `Host` header (RFC 9112, 3.2): of two, a proxy may check one and the server
/// the other.
pub(super) async fn known_host(
    Given(state): Given<Arc<State>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let found = request.headers().get_all(header::HOST).iter().count();
        return Err(Refusal::bad(format!("wanted one `Host` header, found {found}")));
    };
    let host = host.to_str().unwrap_or_default();
    // A request line may name the host, too: `GET http://name/ HTTP/1.1`.
    let named = request.uri().authority().map(|authority| authority.as_str());
    let known = |host: &str| {
        let name = without_port(host);
        name.eq_ignore_ascii_case("localhost")
            || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || state.options.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    };
    if known(host) && named.is_none_or(known) {
        return Ok(next.run(request).await);
    }
    Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "the server is not known under this name")
        .hint("start it with --host-name NAME, or ask for its address"))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Calls without a time limit: what they have begun is finished in any case, and may take minutes. The client is told what became
/// of it. The form of a new item has a time limit of its own.
const FINISHED: [(&str, &str); 3] =
    [("POST", "/api/v1/items"), ("DELETE", "/api/v1/items/{id}"), ("POST", "/api/v1/reload")];

/// Ends requests that take too long.
pub(super) async fn time_limit(
    Given(state): Given<Arc<State>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if FINISHED.contains(&call_of(&request)) {
        return Ok(next.run(request).await);
    }
    // The time for the body is limited where it is read.
    let limit = state.options.time + state.options.upload_time;
    tokio::time::timeout(limit, next.run(request)).await.map_err(|_| timed_out())
}

pub(super) fn timed_out() -> Refusal {
    Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the answer took too long, and was given up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_part_of_a_name() {
        let names = ["a:80", "a", "[::1]:80", "[::1]", "127.0.0.1:8080"].map(without_port);
        assert_eq!(names, ["a", "a", "[::1]", "[::1]", "127.0.0.1"]);
    }
}
