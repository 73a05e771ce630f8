//! Several galleries at one address. The parameter `gallery` of a request chooses one by its name.

use axum::Router;
use axum::extract::{Request, State as Given};
use axum::http::Uri;
use axum::response::Response;
use gallerist_util::sync::{Arc, PoisonError, RwLock};
use tower_service::Service;

use super::chosen::{Named, NoGallery};
use super::router;
use crate::state::State;

/// The parameter of requests.
const PARAMETER: &str = "gallery";

/// The galleries of a server, each of which can be replaced while requests are answered.
pub(crate) struct Galleries {
    /// The first answers requests without the parameter.
    routers: Vec<(Arc<str>, RwLock<Router>)>,
}

impl Galleries {
    pub(crate) fn new(states: &[Arc<State>]) -> Self {
        let routers = states.iter().map(|state| {
            let router = router(Arc::clone(state));
            (Arc::clone(&state.name), RwLock::new(router))
        });
        Self { routers: routers.collect() }
    }

    /// All routes of a server with these galleries.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        Router::new().fallback(dispatch).with_state(self)
    }

    /// Answers requests from now on with another state of a gallery. Requests in progress keep the old one.
    pub(crate) fn replace(&self, at: usize, state: &Arc<State>) {
        let router = router(Arc::clone(state));
        *self.routers[at].1.write().unwrap_or_else(PoisonError::into_inner) = router;
    }
}

async fn dispatch(Given(galleries): Given<Arc<Galleries>>, mut request: Request) -> Response {
    let chosen = match split(request.uri()) {
        Ok(None) => Ok(0),
        Ok(Some((name, uri))) => {
            let found = galleries.routers.iter().position(|(other, _)| **other == *name);
            *request.uri_mut() = uri;
            request.extensions_mut().insert(Named);
            found.ok_or_else(|| format!("there is no gallery `{name}`"))
        }
        Err(problem) => Err(problem),
    };
    if let Err(problem) = &chosen {
        request.extensions_mut().insert(NoGallery(problem.clone()));
    }
    let router = &galleries.routers[chosen.unwrap_or(0)].1;
    let mut router = router.read().unwrap_or_else(PoisonError::into_inner).clone();
    // A router is always ready, and never fails.
    match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The gallery that an address names, and the address without that parameter.
fn split(uri: &Uri) -> Result<Option<(String, Uri)>, String> {
    let query = uri.query().unwrap_or_default();
    let is_ours = |pair: &&str| pair.split('=').next() == Some(PARAMETER);
    let ours: Vec<&str> = query.split('&').filter(is_ours).collect();
    let pair = match ours[..] {
        [] => return Ok(None),
        [pair] => pair,
        _ => return Err(format!("the parameter `{PARAMETER}` is given {} times", ours.len())),
    };
    let pairs: Vec<(String, String)> =
        serde_html_form::from_str(pair).map_err(|_| format!("the parameter `{pair}` cannot be read"))?;
    let name = pairs.into_iter().next().map(|(_, name)| name).unwrap_or_default();
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_ours(pair)).collect();
    let path = match rest.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), rest.join("&")),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|_| "the address cannot be read".to_owned())?);
    let uri = Uri::from_parts(parts).map_err(|_| "the address cannot be read".to_owned())?;
    Ok(Some((name, uri)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_taken_out_of_the_address() {
        let split = |uri: &str| {
            split(&uri.parse().unwrap()).map(|found| found.map(|(name, uri)| format!("{name} {uri}")))
        };
        assert_eq!(split("/a?k=1"), Ok(None));
        assert_eq!(split("/a"), Ok(None));
        assert_eq!(split("/a?gallery=b"), Ok(Some("b /a".to_owned())));
        assert_eq!(split("/a?k=1&gallery=b%20c%26&x=%20"), Ok(Some("b c& /a?k=1&x=%20".to_owned())));
        assert_eq!(split("/a?galleries=b"), Ok(None));
        assert_eq!(split("/a?gallery"), Ok(Some(" /a".to_owned())));
        assert!(split("/a?gallery=b&gallery=c").is_err());
    }
}
