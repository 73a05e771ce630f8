//! Searching a gallery with images.

use std::path::{Path, PathBuf};

use gallerist_data::{ImageSet, OpenOptions};
use gallerist_retrieval::eval::MatchRule;
use gallerist_retrieval::search::{self, Metric, SearchOptions};
use gallerist_retrieval::{EmbeddingSet, Matrix, prepare_to_write};
use gallerist_tensor::device::DeviceChoice;
use gallerist_train::CheckpointKind;

use super::embed::embed_set;
use super::gallery::{FoundList, Gallery, named};
use super::model::{of_gallery, on_device, set_threads};
use crate::observer::working;
use crate::text::count;
use crate::{Error, Observer, Result, pages};

/// Options of [`search()`]. The default finds the 10 nearest items with the network that embedded the gallery.
#[derive(Clone, Debug)]
pub struct ImageSearchOptions {
    /// Items per query, at least 1.
    pub k: usize,
    /// The run directory of the network; by default the one that the gallery names, or the one next to the gallery.
    pub run: Option<PathBuf>,
    /// The checkpoint of the run; by default the one that embedded the gallery.
    pub checkpoint: Option<CheckpointKind>,
    /// The device of the network.
    pub device: DeviceChoice,
    /// Writes the ranked lists with pictures as an HTML page.
    pub page: Option<PathBuf>,
    /// The images of the gallery, for the page; by default the place they were embedded from.
    pub images: Option<PathBuf>,
}

impl Default for ImageSearchOptions {
    fn default() -> Self {
        Self { k: 10, run: None, checkpoint: None, device: DeviceChoice::default(), page: None, images: None }
    }
}

/// What [`search()`] finds.
#[derive(Clone, Debug)]
pub struct Found {
    /// One ranked list per query image that could be read.
    pub lists: Vec<FoundList>,
    /// The threshold of the gallery, by which the results are marked.
    pub threshold: Option<MatchRule>,
    /// Query images that could not be read.
    pub broken_images: usize,
}

/// Finds the items of a gallery that are nearest to each query image. The gallery is a file of embeddings, an index or
/// `milvus://HOST[:PORT]/COLLECTION` (feature `milvus`).
///
/// # Example
///
/// ```no_run
/// use std::path::{Path, PathBuf};
/// use gallerist::ImageSearchOptions;
///
/// let options = ImageSearchOptions { k: 3, ..ImageSearchOptions::default() };
/// let found = gallerist::search(Path::new("photos.safetensors"), &[PathBuf::from("query.jpg")], &options, &mut ())?;
/// for item in &found.lists[0].results {
///     println!("{}. {:?} at {:.3}", item.rank, item.path, item.distance);
/// }
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When the gallery or its network cannot be found or read, when the gallery is compared by the inner product, and when
/// no query image can be read.
pub fn search(
    gallery: &Path,
    queries: &[PathBuf],
    options: &ImageSearchOptions,
    observer: &mut dyn Observer,
) -> Result<Found> {
    if options.k == 0 {
        return Err(Error::new("-k must be 1 or more, not 0", None));
    }
    if let Some(page) = &options.page {
        prepare_to_write(page)?;
    }
    let warner = observer.warner();
    let opened = working(observer, "reading the gallery", || Gallery::open(gallery, warner))?;
    let metric = opened.metric()?;
    let model = of_gallery(gallery, options.run.as_deref(), options.checkpoint, &opened.origin())?;
    set_threads(model.config().train.threads);
    let model = on_device(model, options.device, observer)?;
    let images = ImageSet::open_with(queries, &OpenOptions::default())?;
    // Queries come once: they are not cached.
    let queries = embed_set(&model.with_cache(None)?, images.clone(), "embedding the queries", observer)?;
    let (broken_images, queries) = (queries.broken.len(), queries.set);
    let size = opened.len()?;
    let (mut gallery, names) = opened.candidates(&queries.embeddings, options.k)?;
    if let Some(images) = &options.images {
        gallery.sources = None;
        gallery.source = Some(gallerist_util::text::absolute_or_address(images).display().to_string());
    }
    let lists = nearest(&queries, &gallery, metric, options.k)?;
    if let Some(path) = &options.page {
        let mut page = pages::search_page(&images, &queries, &gallery, metric, &lists);
        // The candidates may contain only the results.
        for (name, value) in &mut page.facts {
            if name == "gallery" {
                *value = count(size, "image");
            }
        }
        page.write(path)?;
        observer.note(&format!("page: {}", path.display()));
    }
    let lists = named(&queries, (&gallery, &names), &lists);
    let marked = lists.iter().any(|list| list.matches.is_some());
    Ok(Found { lists, threshold: gallery.threshold.filter(|_| marked), broken_images })
}

/// The nearest rows by Euclidean distance; the cosine is shown as the distance of rows of length 1.
fn nearest(
    queries: &EmbeddingSet,
    gallery: &EmbeddingSet,
    metric: Metric,
    k: usize,
) -> Result<search::RankedLists> {
    let unit = |rows: &Matrix| rows.l2_normalized().0;
    let scaled = metric == Metric::Cosine;
    // Queries that declare the cosine have length 1 already.
    let rows_of_queries = (scaled && queries.metric != Some(metric)).then(|| unit(&queries.embeddings));
    let rows_of_gallery = scaled.then(|| unit(&gallery.embeddings));
    Ok(search::search(
        rows_of_queries.as_ref().unwrap_or(&queries.embeddings),
        rows_of_gallery.as_ref().unwrap_or(&gallery.embeddings),
        &SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(k) },
    )?)
}
