//! The query of a search: items, vectors, and images that are embedded for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use gallerist_retrieval::Error::Changed;
use gallerist_retrieval::Matrix;
use gallerist_retrieval::search::Metric;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::embedding::{Embedded, embedded};
use super::error::{Answer, Refusal};
use super::extract::{Id, Shared};
use super::pictures;
use crate::Error;
use crate::batch::{Batcher, Searches};
use crate::companion::{Set, Side};
use crate::embedder::TextVector;
use crate::gallery::Gallery;
use crate::protocol::Shown;
use gallerist_data::Region;

/// The network: that of the gallery, or the one it is compared with.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Model {
    #[default]
    Own,
    Other,
}

impl Model {
    /// The gallery of this network, its queries, and its search.
    pub(super) fn of(self, state: &Shared) -> Answer<Searched<'_>> {
        match (self, &state.other) {
            (Self::Own, _) => {
                let companions = [(Set::Query, &state.queries), (Set::Training, &state.training)];
                Ok(Searched { gallery: &state.gallery, search: &state.search, companions })
            }
            (Self::Other, Some(other)) => {
                let companions = [(Set::Query, &other.queries), (Set::Training, &None)];
                Ok(Searched { gallery: &other.gallery, search: &other.search, companions })
            }
            (Self::Other, None) => {
                Err(Refusal::new(StatusCode::NOT_FOUND, "there is no other network to compare with")
                    .hint("start the server with --compare FILE"))
            }
        }
    }
}

/// The gallery that is searched, and the sets whose images can be queries.
#[derive(Clone, Copy)]
pub(super) struct Searched<'a> {
    pub(super) gallery: &'a Arc<Gallery>,
    pub(super) search: &'a Batcher<Searches>,
    pub(super) companions: [(Set, &'a Option<Arc<Side>>); 2],
}

impl Searched<'_> {
    /// An image of a set other than the gallery: which set, the set itself, and the row in it.
    pub(super) fn companions(&self, id: u64) -> Option<(Set, &Arc<Side>, usize)> {
        let sides = self.companions.iter().filter_map(|(set, side)| Some((*set, side.as_ref()?)));
        sides.into_iter().find_map(|(set, side)| Some((set, side, side.catalog.row(id)?)))
    }
}

/// Times in milliseconds.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Took {
    /// Decoding uploaded images.
    pub(super) decode: f64,
    /// Embedding them.
    pub(super) embed: f64,
    /// Searching, including the wait.
    pub(super) search: f64,
    /// The whole request on the server.
    pub(super) total: f64,
}

/// A query.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueryBody {
    pub(super) id: Option<Id>,
    pub(super) label: Option<String>,
    /// The name of an uploaded file, or the text.
    pub(super) name: Option<String>,
    /// The number of tokens that a text was cut to; null for other queries, and for a text that fits.
    pub(super) cut_to: Option<usize>,
    #[serde(skip)]
    pub(super) camera: Option<String>,
    #[serde(skip)]
    pub(super) set: Set,
}

impl QueryBody {
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown { label: self.label.as_deref(), camera: self.camera.as_deref() }
    }
}

/// A query under construction: rows as they are compared with the gallery's, and their names.
pub(super) struct Asked {
    pub(super) began: Instant,
    pub(super) took: Took,
    rows: Vec<f32>,
    pub(super) names: Vec<QueryBody>,
}

impl Asked {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), took: Took::default(), rows: Vec::new(), names: Vec::new() }
    }

    /// Adds an item, or a region of its image, which the network of the gallery embeds.
    pub(super) async fn item_or_region(
        &mut self,
        state: &Shared,
        model: Model,
        id: u64,
        region: Option<Region>,
    ) -> Answer<()> {
        let searched = model.of(state)?;
        let Some(region) = region else { return self.item(state, searched, id).await };
        if model == Model::Other {
            return Err(Refusal::bad("a region is embedded by the gallery's network, not by the other one")
                .hint("search with the whole image, or in the gallery's own embeddings"));
        }
        let (images, image) = pictures::find(state, id)?;
        let decode = move || images.decode(image).map_err(Refusal::from);
        let embedded = embedded(state, &state.work.enter()?, Some(region), decode).await?;
        let row = as_compared(searched.gallery.metric(), self.timed(embedded))?;
        // Name, label and camera are those of the item.
        let before = self.rows.len();
        self.item(state, searched, id).await?;
        self.rows.truncate(before);
        self.rows.extend(row);
        Ok(())
    }

    /// The embedding of an image, with its times added to those of the search.
    pub(super) fn timed(&mut self, (vector, decode, embed): Embedded) -> Vec<f32> {
        self.took.decode += milliseconds(decode);
        self.took.embed += milliseconds(embed);
        vector
    }

    /// Adds an item of the gallery, or an image of another set.
    pub(super) async fn item(&mut self, state: &Shared, searched: Searched<'_>, id: u64) -> Answer<()> {
        let text = |value: Option<&str>| value.map(str::to_owned);
        if let Some((set, side, row)) = searched.companions(id) {
            self.rows.extend(side.rows.row(row));
            let Shown { label, camera } = Shown::of(&side.catalog, row);
            let (label, camera) = (text(label), text(camera));
            self.names.push(QueryBody { id: Some(Id(id)), label, name: None, cut_to: None, camera, set });
            return Ok(());
        }
        let gallery = searched.gallery;
        let embedding = embedding_of(state, gallery, id).await?;
        self.rows.extend(embedding.ok_or_else(|| Refusal::no_item(id))?);
        let catalog = gallery.catalog();
        let label = text(catalog.row(id).and_then(|row| catalog.labels.get(row)));
        let set = Set::Gallery;
        self.names.push(QueryBody { id: Some(Id(id)), label, name: None, cut_to: None, camera: None, set });
        Ok(())
    }

    /// Adds an embedding.
    pub(super) fn vector(&mut self, gallery: &Gallery, vector: Vec<f32>, name: Option<String>) -> Answer<()> {
        let wanted = gallery.dimensions();
        if vector.len() != wanted {
            return Err(Refusal::unprocessable(format!(
                "the vector has {} values, the gallery's embeddings have {wanted}",
                vector.len()
            )));
        }
        self.rows.extend(as_compared(gallery.metric(), vector)?);
        self.names.push(QueryBody {
            id: None,
            label: None,
            name,
            cut_to: None,
            camera: None,
            set: Set::Gallery,
        });
        Ok(())
    }

    /// Adds a text, which the network of the gallery embeds.
    pub(super) async fn text(&mut self, state: &Shared, model: Model, text: String) -> Answer<()> {
        if model == Model::Other {
            return Err(Refusal::bad("a text is embedded by the gallery's network, not by the other one")
                .hint("search in the gallery's own embeddings"));
        }
        let embedder = state.embedder.clone().filter(|embedder| embedder.has_text());
        let embedder = embedder.ok_or_else(Refusal::no_text)?;
        let name = text.clone();
        let work = move || {
            let begin = Instant::now();
            let found = embedder.embed_text(&text).map_err(Refusal::unprocessable)?;
            Ok::<_, Refusal>((found, begin.elapsed()))
        };
        let (TextVector { vector, cut_to }, embed) = state.work.run(work).await??;
        let vector = self.timed((vector, Duration::ZERO, embed));
        self.vector(&state.gallery, vector, Some(name))?;
        self.names.last_mut().expect("a query was added").cut_to = cut_to;
        Ok(())
    }

    /// The mean of the rows, as it is compared: divided by its length for the cosine.
    pub(super) fn mean(&self, gallery: &Gallery) -> Answer<Vec<f32>> {
        let dimensions = gallery.dimensions();
        let mut sum = vec![0.0; dimensions];
        for row in self.rows.chunks(dimensions.max(1)) {
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        match gallery.metric() {
            Metric::Cosine => {
                unit(sum).map_err(|error| error.hint("queries that point against each other have no mean"))
            }
            Metric::Euclidean | Metric::InnerProduct => {
                let count = (self.rows.len() / dimensions.max(1)).max(1) as f32;
                Ok(sum.into_iter().map(|value| value / count).collect())
            }
        }
    }
}

/// The embedding of an item of the gallery as it is compared; `None` if there is no such item.
pub(super) async fn embedding_of(
    state: &Shared,
    gallery: &Arc<Gallery>,
    id: u64,
) -> Answer<Option<Vec<f32>>> {
    let embedding = match gallery.is_index() {
        false => gallery.embedding(id),
        // An index may be a slow database, or be changed at the moment.
        true => {
            let own = Arc::clone(gallery);
            state.asking.run(move || own.embedding(id)).await?
        }
    };
    embedding.map_err(|error| match error {
        Error::Retrieval(Changed { .. }) => Refusal::changed_file(),
        error => Refusal::internal(format!("the embedding of item {id} cannot be read: {error}")),
    })
}

/// A row as it is compared: divided by its length for the cosine.
fn as_compared(metric: Metric, values: Vec<f32>) -> Answer<Vec<f32>> {
    match metric {
        Metric::Cosine => unit(values),
        Metric::Euclidean | Metric::InnerProduct => finite(values).map(Matrix::into_vec),
    }
}

fn finite(values: Vec<f32>) -> Answer<Matrix> {
    let row =
        Matrix::new(1, values.len(), values).and_then(|row| row.check_finite("the vector").map(|()| row));
    row.map_err(|error| Refusal::unprocessable(error.to_string()))
}

/// A row divided by its length.
fn unit(values: Vec<f32>) -> Answer<Vec<f32>> {
    match finite(values)?.l2_normalized() {
        (row, 0) => Ok(row.into_vec()),
        _ => Err(Refusal::unprocessable("the vector is all zeros, and has no direction")),
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
