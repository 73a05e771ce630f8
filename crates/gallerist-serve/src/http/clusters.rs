//! The names of the clusters of the map.

use std::collections::HashMap;
use std::sync::Arc;

use gallerist_retrieval::condition::{RowTexts, Table};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::{Answer, ErrorBody, Refusal};
use super::extract::{Json, Params, Shared};
use crate::analysis::{WIDTHS, clusters as find};
use crate::gallery::Catalog;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterParams {
    /// What names the clusters: `label`, `camera`, or a further column of text, dates or tags.
    #[serde(default = "label")]
    by: String,
}

fn label() -> String {
    "label".to_owned()
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ClusterList {
    /// `ready`, `computing` or `none`: the state of the map.
    state: &'static str,
    /// The widths of the kernel of each level as shares of the longer side of the map, coarse to fine.
    widths: [f64; WIDTHS.len()],
    /// The largest first within each level.
    clusters: Vec<ClusterBody>,
}

/// A dense place of the map.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClusterBody {
    x: f32,
    y: f32,
    /// 0 is the coarsest.
    level: usize,
    /// The number of points.
    count: usize,
    /// The most frequent name.
    majority: String,
    /// The share of the points that has it.
    share: f64,
    /// The name that is most concentrated here, compared with the whole map.
    characteristic: String,
}

/// The clusters of the map and their names.
#[utoipa::path(
    get, path = "/api/v1/map/clusters", tag = "analysis", params(ClusterParams),
    responses((status = 200, body = ClusterList), (status = 400, body = ErrorBody))
)]
pub(crate) async fn clusters(
    state: Shared,
    Params(params): Params<ClusterParams>,
) -> Answer<Json<ClusterList>> {
    let shared = Arc::clone(&state.0);
    state.reading.run(move || list(&shared, &params.by)).await?.map(Json)
}

fn list(state: &crate::state::State, by: &str) -> Answer<ClusterList> {
    let slot = &state.analysis.map;
    let mut list = ClusterList { state: slot.state(), widths: WIDTHS, clusters: Vec::new() };
    let catalog = state.gallery.catalog();
    let of_gallery = texts(&catalog, by)?;
    let of_queries = state.queries.as_ref().and_then(|queries| texts(&queries.catalog, by).ok());
    let Some(map) = slot.get() else { return Ok(list) };
    let (ids, xs, ys) = map.points();
    let (mut numbers, mut names) = (HashMap::new(), Vec::new());
    let mut number = |text: &str| {
        if text.is_empty() {
            return u32::MAX;
        }
        *numbers.entry(text.to_owned()).or_insert_with(|| {
            names.push(text.to_owned());
            names.len() as u32 - 1
        })
    };
    let name_of = |id: u64| {
        let own = catalog.row(id).map(|row| of_gallery.get(row));
        let other = || {
            let queries = state.queries.as_ref()?;
            Some(of_queries.as_ref()?.get(queries.catalog.row(id)?))
        };
        own.or_else(other).unwrap_or_default()
    };
    let of_points: Vec<u32> = ids.iter().map(|&id| number(name_of(id))).collect();
    list.clusters = find(&xs, &ys, &of_points)
        .into_iter()
        .map(|found| ClusterBody {
            x: found.x,
            y: found.y,
            level: found.level,
            count: found.count,
            majority: names[found.majority].clone(),
            share: found.share,
            characteristic: names[found.characteristic].clone(),
        })
        .collect();
    Ok(list)
}

/// A text for each row.
struct Texts<'a>(RowTexts<'a>);

impl Texts<'_> {
    fn get(&self, row: usize) -> &str {
        match &self.0 {
            RowTexts::Each(list) => list[row],
            RowTexts::Distinct(distinct, places) => {
                distinct.get(places[row] as usize).map_or("", String::as_str)
            }
        }
    }
}

/// The texts of the column that names clusters.
fn texts<'a>(catalog: &'a Catalog, by: &str) -> Answer<Texts<'a>> {
    let columns = catalog.columns();
    let found = match by {
        "label" | "camera" => Table::texts(catalog, by),
        _ => columns.get(by).and_then(|column| {
            let (distinct, places) = column.as_texts()?;
            Some(RowTexts::Distinct(distinct, places))
        }),
    };
    found.map(Texts).ok_or_else(|| {
        let texts = columns.iter().filter(|column| column.as_texts().is_some());
        let names: Vec<String> = ["`label`".to_owned()]
            .into_iter()
            .chain(texts.map(|column| format!("`{}`", column.name())))
            .collect();
        Refusal::bad(format!("no column `{by}` of texts can name the clusters"))
            .hint(format!("the columns that can are {}", names.join(", ")))
    })
}
