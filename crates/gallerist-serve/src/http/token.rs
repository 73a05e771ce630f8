//! The token that authorises changes.

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use super::error::{Answer, Refusal};
use super::extract::Shared;

/// Refuses a request without the token.
pub(super) fn authorize(state: &Shared, headers: &HeaderMap) -> Answer<()> {
    if state.options.token.is_none() {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "the gallery cannot be changed")
            .hint("start the server with --writable and a token"));
    }
    match has_token(state, headers) {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::UNAUTHORIZED, "wanted the server's token")
            .hint("give the header `Authorization: Bearer TOKEN`")),
    }
}

/// Whether a request has the token of a server that can be changed.
pub(super) fn has_token(state: &Shared, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
    // Comparing digests, not texts, makes the time independent of the token.
    let digest = |text: &str| Sha256::digest(text.as_bytes());
    given.zip(state.options.token.as_deref()).is_some_and(|(given, token)| digest(given) == digest(token))
}

/// The token of a header `Bearer TOKEN`. The name of the scheme may be in upper or lower case (RFC 9110,
/// 11.1).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}
