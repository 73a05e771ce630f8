//! Protection against requests that pages of other sites make through a user's browser (CSRF).
//!
//! A page of any site can send forms to this server and load pictures from it. The page cannot read the answers, but
//! the server would do the work. Browsers name the origin of a request: `Sec-Fetch-Site` in requests to `https` and to
//! this machine, `Origin` with every POST and DELETE. Programs send neither header and are served.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error::Refusal;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_USER: HeaderName = HeaderName::from_static("sec-fetch-user");

/// Pages without cost. Links of other sites may lead here.
const PAGES: [&str; 3] = ["/", "/api", "/openapi.json"];

/// Refuses requests of pages of other sites before the body is read.
pub(super) async fn same_origin(request: Request, next: Next) -> Result<Response, Refusal> {
    let headers = request.headers();
    if !foreign(headers) || followed_link(request.method(), request.uri().path(), headers) {
        return Ok(next.run(request).await);
    }
    let from = text(headers, &header::ORIGIN).filter(|origin| *origin != "null");
    let from = from.map_or_else(|| "another site".to_owned(), |origin| format!("`{origin}`"));
    Err(Refusal::new(StatusCode::FORBIDDEN, format!("the request comes from a page of {from}"))
        .hint("the server answers only its own page and programs; configure a reverse proxy to pass on the Host header with its port"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Whether a browser says that a page of another origin makes this request.
fn foreign(headers: &HeaderMap) -> bool {
    if let Some(site) = text(headers, &FETCH_SITE) {
        // No script can set this header. `none`: typed by the user. `same-site` is another port.
        return !["same-origin", "none"].contains(&site);
    }
    let host = text(headers, &header::HOST).unwrap_or_default();
    text(headers, &header::ORIGIN).is_some_and(|origin| !is_of(origin, host))
}

/// Whether the origin, `scheme://name[:port]`, is that of the host, `name[:port]`.
fn is_of(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |name: &str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
    bare(authority) == bare(host)
}

/// Whether a user follows a link of another site. Browsers distinguish that from a page that loads a resource.
fn followed_link(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let navigates = text(headers, &FETCH_MODE) == Some("navigate");
    let clicked = text(headers, &FETCH_USER) == Some("?1");
    method == Method::GET && navigates && (clicked || PAGES.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_that_of_a_host_when_name_and_port_are_the_same() {
        for (origin, host) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("http://Gallery.example", "gallery.example:80"),
            ("https://gallery.example", "gallery.example"),
            ("https://gallery.example:443", "gallery.example"),
        ] {
            assert!(is_of(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "localhost"),
            ("", ""),
            ("http://evil.example", "127.0.0.1:8080"),
            ("http://127.0.0.1:9090", "127.0.0.1:8080"),
            ("http://127.0.0.1", "127.0.0.1:8080"),
            ("http://localhost:8080.evil.example", "localhost:8080"),
            ("file://localhost", "localhost"),
            ("http://localhost:8080", "127.0.0.1:8080"),
        ] {
            assert!(!is_of(origin, host), "{origin} {host}");
        }
    }
}
