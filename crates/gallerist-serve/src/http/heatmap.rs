//! Heat maps: why two images are close.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Id, Json, Params, Shared};
use super::pictures;
use crate::embedder::FeatureMap;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeatmapParams {
    /// An item.
    #[param(value_type = String)]
    query: Id,
    /// Another item.
    #[param(value_type = String)]
    item: Id,
}

/// For each of two images, the regions that resemble the other image.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeatmapBody {
    query: Heat,
    item: Heat,
}

/// A heat map over an image.
#[derive(Serialize, ToSchema)]
pub(crate) struct Heat {
    width: usize,
    height: usize,
    /// Row after row, from 0 to 1: the cosine of the features at this position and the pooled features of the other
    /// image.
    values: Vec<f32>,
}

impl Heat {
    fn of(map: &FeatureMap, other: &FeatureMap) -> Self {
        Self { width: map.width, height: map.height, values: map.alike(other) }
    }
}

/// Heat maps that show why two images are close.
#[utoipa::path(
    get, path = "/api/v1/heatmap", tag = "search", params(HeatmapParams),
    responses(
        (status = 200, body = HeatmapBody), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, description = "An image cannot be read", body = ErrorBody),
        (status = 501, description = "No network is loaded, or it has no feature maps", body = ErrorBody),
        (status = 503, description = "Too much at once", body = ErrorBody),
    )
)]
pub(crate) async fn heatmap(
    state: Shared,
    Params(params): Params<HeatmapParams>,
) -> Answer<Json<HeatmapBody>> {
    let embedder = state.embedder.clone().ok_or_else(Refusal::no_network)?;
    let (images, query) = pictures::find(&state, params.query.0)?;
    let (_, item) = pictures::find(&state, params.item.0)?;
    let work = move || {
        let map = |image| -> Answer<FeatureMap> {
            let decoded = images.decode(image)?;
            let map = embedder.feature_map(&decoded);
            map.ok_or_else(|| Refusal::not_implemented("the network has no feature maps"))
        };
        let (query, item) = (map(query)?, map(item)?);
        if query.channels != item.channels {
            return Err(Refusal::internal("the feature maps of the two images do not fit each other"));
        }
        Ok(Json(HeatmapBody { query: Heat::of(&query, &item), item: Heat::of(&item, &query) }))
    };
    state.work.run(work).await?
}
