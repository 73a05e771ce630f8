//! The rates of each client.

use std::sync::Arc;

use axum::extract::{Request, State as Given};
use axum::middleware::Next;
use axum::response::Response;

use super::error::Refusal;
use super::extract::call_of;
use crate::client::{Client, Peer, client};
use crate::state::State;

/// Calls that are not counted: a load balancer asks them at its own rate.
const UNCOUNTED: [&str; 2] = ["/health", "/ready"];

/// Calls that may run the network.
const UPLOADS: [(&str, &str); 4] = [
    ("POST", "/api/v1/search/upload"),
    ("POST", "/api/v1/items"),
    ("POST", "/api/v1/search"),
    ("GET", "/api/v1/heatmap"),
];

/// Notes the client of a request, and refuses it if the client asks too often, before its body is read.
pub(super) async fn limited(
    Given(state): Given<Arc<State>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let Some(&peer) = request.extensions().get::<Peer>() else { return Ok(next.run(request).await) };
    let forwarded = request.headers().get_all("x-forwarded-for").iter();
    let forwarded: Vec<&str> = forwarded.map(|line| line.to_str().unwrap_or_default()).collect();
    let client = client(peer, forwarded.into_iter(), &state.options.trusted_proxies);
    let call = call_of(&request);
    if !UNCOUNTED.contains(&call.1)
        && let Err(wait) = state.limits.take(client, is_upload(&request, call))
    {
        return Err(Refusal::too_often(wait));
    }
    request.extensions_mut().insert::<Client>(client);
    Ok(next.run(request).await)
}

fn is_upload(request: &Request, call: (&str, &str)) -> bool {
    let embeds_region = || {
        let query = request.uri().query().unwrap_or_default();
        // A name of a parameter can be percent-encoded.
        let names = serde_html_form::from_str::<Vec<(String, String)>>(query).unwrap_or_default();
        call.1 == "/api/v1/items/{id}/similar" && names.iter().any(|(name, _)| name == "region")
    };
    UPLOADS.contains(&call) || embeds_region()
}
