//! From an uploaded file to an embedding.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use gallerist_data::DecodeLimits;

use super::error::{Answer, Refusal};
use crate::batch::Refused;
use crate::embeddings::Preprocessed;
use crate::gate::Place;
use crate::state::State;
use gallerist_data::Region;

/// The embedding of an image, and the time that decoding and embedding took.
pub(crate) type Embedded = (Vec<f32>, Duration, Duration);

/// The embedding of an image, or of a region of it, by the network of the gallery.
///
/// `decode` runs on a blocking thread. Images that wait for the network are embedded together, if it can.
pub(crate) async fn embedded(
    state: &State,
    place: &Place,
    region: Option<Region>,
    decode: impl FnOnce() -> Answer<gallerist_data::Image> + Send + 'static,
) -> Answer<Embedded> {
    let embedder = state.embedder.clone().ok_or_else(Refusal::no_network)?;
    let decode = move || -> Answer<_> {
        let image = decode()?;
        match region {
            Some(region) => region.of(&image).map_err(Refusal::bad),
            None => Ok(image),
        }
    };
    let refused = |problem| Refusal::unprocessable(format!("the image cannot be embedded: {problem}"));
    let Some((network, waiting)) = &state.batched else {
        let work = move || -> Answer<Embedded> {
            let (image, decode) = timed(decode);
            let image = image?;
            let (vector, embed) = timed(|| embedder.embed(&image).map_err(refused));
            Ok((vector?, decode, embed))
        };
        return place.run(work).await?;
    };
    let network = Arc::clone(network);
    let work = move || -> Answer<_> {
        let (image, decode) = timed(decode);
        let image = image?;
        let (values, preprocess) = timed(|| network.preprocess(&image).map_err(refused));
        Ok((values?, decode, preprocess))
    };
    let (values, decode, preprocess) = place.run(work).await??;
    let begin = Instant::now();
    let vector =
        waiting.ask(Preprocessed { values, _place: place.clone() }).await.map_err(
            |refusal| match refusal {
                Refused::Busy => Refusal::busy(),
                Refused::Broken => Refusal::internal("the network broke off"),
                Refused::Failed(problem) => refused(problem),
            },
        )?;
    Ok((vector, decode, preprocess + begin.elapsed()))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

/// The image of an uploaded file. Decoding stops after `limit`.
pub(crate) fn decoded(bytes: &[u8], limit: Duration) -> Answer<gallerist_data::Image> {
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
