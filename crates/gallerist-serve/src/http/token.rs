//! The tokens that authorise reading and changing a gallery.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State as Given};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{AppendHeaders, IntoResponse, Response};

use super::chosen::NoGallery;
use super::error::{Answer, ErrorBody, Refusal};
use super::extract::Shared;
use crate::Options;
use crate::access::{Token, find, find_session};
use crate::audit::Author;
use crate::client::Client;
use crate::state::State;

/// Calls that need no token: they tell nothing about a gallery. Files of the page have no call.
const PUBLIC: [&str; 4] = ["/", "/health", "/ready", "/api/v1/session"];

/// The author of a change. Every call that changes something has this argument, which refuses a request without a token that
/// permits it, before the body is read.
pub(crate) struct Writer(pub(crate) Author);

impl FromRequestParts<Arc<State>> for Writer {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Refusal> {
        if !state.options.is_writable() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the gallery cannot be changed")
                .hint("start the server with --writable and a token"));
        }
        let token = writer(&state.options, &parts.headers);
        let token = token.ok_or_else(|| unauthorized("wanted the server's token"))?.name().to_owned();
        let client = parts.extensions.get::<Client>().map(|client| client.0);
        Ok(Self(Author { client, token }))
    }
}

/// The token of a request that may change the gallery. A cookie is not enough, because browsers also send it with the
/// requests that other pages make.
pub(super) fn writer<'a>(options: &'a Options, headers: &HeaderMap) -> Option<&'a Token> {
    find(&options.tokens, bearer(headers)?)
}

/// The token of a request that may read the gallery, from its header or from the cookie of the page.
fn reader<'a>(options: &'a Options, headers: &HeaderMap) -> Option<&'a Token> {
    let lists = || [&options.tokens, &options.read_tokens].into_iter();
    let by_header = bearer(headers).and_then(|given| lists().find_map(|tokens| find(tokens, given)));
    by_header
        .or_else(|| cookies(headers).find_map(|value| lists().find_map(|list| find_session(list, value))))
}

fn unauthorized(problem: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, problem).hint("give the header `Authorization: Bearer TOKEN`")
}

/// The token of the header `Authorization: Bearer TOKEN`. The name of the scheme may be in upper or lower case (RFC 9110,
/// 11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

/// The values of our cookies.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter_map(|(name, value)| name.starts_with("gallerist-").then_some(value))
}

/// Refuses requests without a token, where reading needs one.
pub(super) async fn may_read(
    Given(state): Given<Arc<State>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let call = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_get = [Method::GET, Method::HEAD].contains(request.method());
    // Without a call it is a file of the page. The refusal of an unknown gallery names the others.
    let is_public = call.map_or(is_get, |call| PUBLIC.contains(&call))
        && request.extensions().get::<NoGallery>().is_none();
    if state.options.read_tokens.is_empty()
        || is_public
        || reader(&state.options, request.headers()).is_some()
    {
        return Ok(next.run(request).await);
    }
    Err(unauthorized("wanted a token of the server"))
}

/// Exchanges a token for a cookie, by which the page of this browser may read the gallery: its pictures are loaded without
/// the header. Changes need the token. The cookie ends with the browser, and when the token is no longer valid.
#[utoipa::path(
    post, path = "/api/v1/session", tag = "server", security(("token" = [])),
    responses(
        (status = 204, description = "The cookie is set"),
        (status = 401, description = "Not a token", body = ErrorBody),
    )
)]
pub(crate) async fn sign_in(state: Shared, headers: HeaderMap) -> Answer<impl IntoResponse> {
    // Only a token makes a cookie, not another cookie.
    let options = &state.options;
    let given = bearer(&headers).unwrap_or_default();
    let token = find(&options.tokens, given).or_else(|| find(&options.read_tokens, given));
    let (name, value) = token.ok_or_else(|| unauthorized("wanted a token of the server"))?.cookie();
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie(&name, &value, "", &headers))]))
}

/// Removes the cookies of this server from the browser.
#[utoipa::path(
    delete, path = "/api/v1/session", tag = "server",
    responses((status = 204, description = "The cookies are gone"))
)]
pub(crate) async fn sign_out(state: Shared, headers: HeaderMap) -> impl IntoResponse {
    let tokens = state.options.tokens.iter().chain(&state.options.read_tokens);
    let gone =
        tokens.map(|token| (header::SET_COOKIE, cookie(&token.cookie().0, "", "; Max-Age=0", &headers)));
    (StatusCode::NO_CONTENT, AppendHeaders(gone.collect::<Vec<_>>()))
}

/// `HttpOnly`: scripts cannot read it. `Lax`: other sites may link to the page, and load nothing from it.
fn cookie(name: &str, value: &str, more: &str, headers: &HeaderMap) -> String {
    let secure = if super::about::is_secure(headers) { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{more}")
}
