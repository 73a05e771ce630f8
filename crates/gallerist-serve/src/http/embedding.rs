//! From an uploaded file to an embedding.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use gallerist_data::DecodeLimits;

use super::error::{Answer, Refusal};
use crate::embedder::Embedder;
use gallerist_data::Region;

/// The embedding of an image, and the time that decoding and embedding took.
pub(crate) type Embedded = (Vec<f32>, Duration, Duration);

/// The embedding of an uploaded file, or of a region of it.
///
/// Decoding stops after `limit`.
pub(crate) fn embedded(
    embedder: &dyn Embedder,
    bytes: &[u8],
    region: Option<Region>,
    limit: Duration,
) -> Answer<Embedded> {
    embedded_image(embedder, region, || decoded(bytes, limit))
}

/// The embedding of an image of the server, or of a region of it.
pub(crate) fn embedded_image(
    embedder: &dyn Embedder,
    region: Option<Region>,
    decode: impl FnOnce() -> Answer<gallerist_data::Image>,
) -> Answer<Embedded> {
    let begin = Instant::now();
    let image = decode()?;
    let image = match region {
        Some(region) => region.of(&image).map_err(Refusal::bad)?,
        None => image,
    };
    let decode = begin.elapsed();
    let begin = Instant::now();
    let vector = embedder
        .embed(&image)
        .map_err(|problem| Refusal::unprocessable(format!("the image cannot be embedded: {problem}")))?;
    Ok((vector, decode, begin.elapsed()))
}

fn decoded(bytes: &[u8], limit: Duration) -> Answer<gallerist_data::Image> {
    let limits = DecodeLimits::default().within(limit);
    gallerist_data::decode_with(bytes, "the upload", &limits).map_err(|error| match error {
        gallerist_data::Error::DecodeDeadline { .. } => {
            let problem = format!("the image takes more than {} s to decode", limit.as_secs_f64());
            Refusal::unprocessable(problem).hint("save it again, without progressive scans and metadata")
        }
        gallerist_data::Error::Decode { problem, .. } if problem.starts_with("not an image") => {
            Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem)
        }
        gallerist_data::Error::Decode { problem, .. } => {
            Refusal::unprocessable(format!("the image cannot be decoded: {problem}"))
        }
        other => Refusal::unprocessable(other.to_string()),
    })
}
