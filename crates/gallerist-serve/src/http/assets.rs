//! The web page. Its files are built into the program.

use std::path::{Component, Path};
use std::sync::OnceLock;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gallerist_util::hex;
use sha2::{Digest, Sha256};

use super::error::{Answer, Refusal};
use super::etag::is_known;
use super::extract::Shared;

// `FILES: &[(&str, &[u8])]`, written by the build script: the files in `assets/` by their paths.
include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// One ETag for all files: they change only with the program.
fn etag() -> &'static str {
    static ETAG: OnceLock<String> = OnceLock::new();
    ETAG.get_or_init(|| {
        let mut digest = Sha256::new();
        FILES.iter().for_each(|(_, bytes)| digest.update(bytes));
        format!("\"{}\"", hex::encode(&digest.finalize()[..8]))
    })
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        _ => "application/octet-stream",
    }
}

pub(crate) async fn page(state: Shared, asked: HeaderMap) -> Answer<Response> {
    serve(&state, "index.html", &asked, &Uri::from_static("/"))
}

pub(crate) async fn asset(state: Shared, uri: Uri, asked: HeaderMap) -> Answer<Response> {
    serve(&state, uri.path().trim_start_matches('/'), &asked, &uri)
}

fn serve(state: &Shared, path: &str, asked: &HeaderMap, uri: &Uri) -> Answer<Response> {
    let content_type = [(header::CONTENT_TYPE, media_type(path))];
    if let Some(folder) = &state.options.assets {
        let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let bytes = inside.then(|| std::fs::read(folder.join(path)).ok()).flatten();
        let bytes = bytes.ok_or_else(|| Refusal::no_page(uri))?;
        return Ok((content_type, [(header::CACHE_CONTROL, "no-store")], Body::from(bytes)).into_response());
    }
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == path).ok_or_else(|| Refusal::no_page(uri))?;
    let caching = [(header::ETAG, etag()), (header::CACHE_CONTROL, "no-cache")];
    if is_known(asked, etag()) {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    Ok((content_type, caching, Body::from(*bytes)).into_response())
}
