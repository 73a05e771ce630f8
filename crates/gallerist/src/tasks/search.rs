//! Searching a gallery with images.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gallerist_data::{ImageSet, OpenOptions, Region};
use gallerist_nn::Products;
use gallerist_retrieval::condition::{Condition, groups_of};
use gallerist_retrieval::eval::MatchRule;
use gallerist_retrieval::search::{self, GroupScore, Metric, SearchOptions};
use gallerist_retrieval::{EmbeddingSet, Matrix, fingerprint, prepare_to_write};
use gallerist_tensor::device::DeviceChoice;
use gallerist_train::CheckpointKind;
use gallerist_train::model::{EmbeddedText, Model};
use gallerist_util::text::absolute_or_address;

use super::embed::embed_set;
use super::gallery::{FoundList, Gallery, Groups, Names, named, rule_of};
use super::model::{of_gallery, on_device};
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
    /// The checkpoint of the run; by default the one that embedded the gallery, or the run's `evaluation.checkpoint` if the
    /// gallery does not say which network embedded it.
    pub checkpoint: Option<CheckpointKind>,
    /// The device of the network.
    pub device: DeviceChoice,
    /// The products of the network on the CPU; absent: those of its run.
    pub products: Option<Products>,
    /// The part of the query images that is searched with: one region for all, or one for each. Empty: the whole images.
    pub regions: Vec<Region>,
    /// Texts that are searched with, after the query images, by the text tower of the network. Their lists follow those of
    /// the images.
    pub texts: Vec<String>,
    /// Only items that meet this condition on their columns are found.
    pub condition: Option<Condition>,
    /// One result for all items with the same value of this column, `label`, `camera` or `path`: the nearest of them.
    /// Items without a value are groups of their own. The items of an index are read from it, and all are compared.
    pub group_by: Option<String>,
    /// The distance of a group, by which groups are ranked.
    pub group_score: GroupScore,
    /// Writes the ranked lists with pictures as an HTML page.
    pub page: Option<PathBuf>,
    /// The images of the gallery, for the page; by default the place they were embedded from.
    pub images: Option<PathBuf>,
}

impl Default for ImageSearchOptions {
    fn default() -> Self {
        Self {
            k: 10,
            run: None,
            checkpoint: None,
            device: DeviceChoice::default(),
            products: None,
            regions: Vec::new(),
            texts: Vec::new(),
            condition: None,
            group_by: None,
            group_score: GroupScore::default(),
            page: None,
            images: None,
        }
    }
}

/// What [`search()`] finds.
#[derive(Clone, Debug)]
pub struct Found {
    /// One ranked list per query image that could be read, then one per text.
    pub lists: Vec<FoundList>,
    /// The threshold of the gallery, by which the results are marked.
    pub threshold: Option<MatchRule>,
    /// Query images that could not be read.
    pub broken_images: usize,
}

/// Finds the items of a gallery that are nearest to each query image and each text. The gallery is a file of embeddings,
/// an index, or `milvus://HOST[:PORT]/COLLECTION` (feature `milvus`) or `qdrant://HOST[:PORT]/COLLECTION` (feature `qdrant`).
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
/// With a condition, and in groups:
///
/// ```no_run
/// # use std::path::{Path, PathBuf};
/// # use gallerist::ImageSearchOptions;
/// use gallerist::retrieval::condition::Condition;
///
/// let options = ImageSearchOptions {
///     condition: Some(Condition::parse("price < 20 and shop = \"x\"")?),
///     group_by: Some("product".to_owned()),
///     ..ImageSearchOptions::default()
/// };
/// let found = gallerist::search(Path::new("photos.safetensors"), &[PathBuf::from("query.jpg")], &options, &mut ())?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// With a part of an image:
///
/// ```no_run
/// # use std::path::{Path, PathBuf};
/// # use gallerist::ImageSearchOptions;
/// let options = ImageSearchOptions { regions: vec!["25%,10%,50%,50%".parse()?], ..ImageSearchOptions::default() };
/// let found = gallerist::search(Path::new("photos.safetensors"), &[PathBuf::from("street.jpg")], &options, &mut ())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With words, where the run of the network has a text tower (`[text]` of its run file):
///
/// ```no_run
/// # use std::path::Path;
/// # use gallerist::ImageSearchOptions;
/// let options = ImageSearchOptions { texts: vec!["a red shoe".to_owned()], ..ImageSearchOptions::default() };
/// let found = gallerist::search(Path::new("photos.safetensors"), &[], &options, &mut ())?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When the gallery or its network cannot be found or read, when there is a text and no text tower, when the condition
/// or the group names a column that the gallery does not have, when the gallery is compared by the inner product, for another
/// number of regions than 1 or that of the query images, and when no query image can be read.
pub fn search(
    gallery: &Path,
    queries: &[PathBuf],
    options: &ImageSearchOptions,
    observer: &mut dyn Observer,
) -> Result<Found> {
    if options.k == 0 {
        return Err(Error::new("-k must be 1 or more, not 0", None));
    }
    if queries.is_empty() && options.texts.is_empty() {
        return Err(Error::new("nothing to search with", Some("give a query image or a text")));
    }
    if queries.is_empty() && !options.regions.is_empty() {
        return Err(Error::new(
            "a region needs a query image",
            Some("leave out the region, or give an image"),
        ));
    }
    if let Some(page) = &options.page {
        prepare_to_write(page)?;
    }
    let warner = observer.warner();
    let opened = working(observer, "reading the gallery", || Gallery::open(gallery, warner))?;
    let (metric, size, origin) = (opened.metric()?, opened.len()?, opened.origin());
    // Before the network is read: a condition and the regions may be wrong.
    let condition = options.condition.as_ref();
    if let Some(condition) = condition {
        opened.check(condition)?;
    }
    let images = match queries.is_empty() {
        true => None,
        false => Some(query_images(queries, &options.regions)?),
    };
    // Groups compare all of their items.
    let opened = match options.group_by.is_some() {
        true => Narrowed::Rows(opened.matching(condition)?),
        false => Narrowed::All(opened),
    };
    let groups = match (&opened, &options.group_by) {
        // An index gives a set without lists where no item meets the condition.
        (Narrowed::Rows((set, _)), Some(_)) if set.embeddings.rows() == 0 => {
            Some(Groups { of_rows: Vec::new(), by: options.group_score })
        }
        (Narrowed::Rows((set, _)), Some(column)) => {
            Some(Groups { of_rows: groups_of(set, column)?, by: options.group_score })
        }
        _ => None,
    };
    let model = of_gallery(gallery, options.run.as_deref(), options.checkpoint, &origin, observer)?;
    // Queries come once: they are not cached.
    let model = on_device(model, options.device, options.products, observer)?.with_cache(None)?;
    // First the texts, because the network may have no text tower.
    let texts = embed_texts(&model, &options.texts, observer)?;
    let Embedded { queries, images, regions, broken_images } = match images {
        Some(images) => with_texts(embed_images(&model, images, observer)?, texts)?,
        None => Embedded {
            images: None,
            regions: vec![None; options.texts.len()],
            queries: texts.expect("there are images or texts"),
            broken_images: 0,
        },
    };
    let (gallery, names) = match opened {
        Narrowed::All(opened) => opened.candidates(&queries.embeddings, options.k, condition)?,
        Narrowed::Rows(rows) => rows,
    };
    let lists = nearest(&queries, &gallery, metric, options.k, groups.as_ref())?;
    if let Some(path) = &options.page {
        let of_gallery = options.images.as_deref().map(absolute_or_address);
        let of_gallery = of_gallery.as_deref();
        let mut page = pages::search_page(images.as_ref(), &queries, of_gallery, &gallery, metric, &lists);
        if let Some(condition) = &options.condition {
            page.facts.push(("condition".into(), condition.to_string()));
        }
        if let Some(column) = &options.group_by {
            page.facts.push(("one result for each".into(), column.clone()));
        }
        for (list, region) in page.lists.iter_mut().zip(&regions) {
            list.note = region.as_ref().map(|region| format!("Region {region} of the image."));
        }
        // The candidates may contain only the results.
        for (name, value) in &mut page.facts {
            if name == "gallery" {
                *value = count(size, "image");
            }
        }
        page.notices.iter().for_each(|notice| observer.warning(notice));
        page.write(path)?;
        observer.note(&format!("page: {}", path.display()));
    }
    let threshold = rule_of(&gallery, (metric, size), groups.as_ref(), observer);
    let mut lists = named(&queries, (&gallery, &names), groups.as_ref(), &lists, threshold.as_ref());
    lists.iter_mut().zip(regions).for_each(|(list, region)| list.region = region);
    Ok(Found { lists, threshold, broken_images })
}

/// The rows that are searched with.
struct Embedded {
    queries: EmbeddingSet,
    /// The images of the first rows; the others are of texts.
    images: Option<ImageSet>,
    /// Per row the region of its image, if it is not all of it.
    regions: Vec<Option<String>>,
    broken_images: usize,
}

fn embed_images(model: &Model, images: ImageSet, observer: &mut dyn Observer) -> Result<Embedded> {
    let queries = embed_set(model, images.clone(), "embedding the queries", observer)?;
    // Images that cannot be read have no row.
    let is_broken: HashSet<usize> = queries.broken.iter().map(|broken| broken.item as usize).collect();
    let read: Vec<u32> =
        (0..images.len()).filter(|image| !is_broken.contains(image)).map(|image| image as u32).collect();
    let images = images.subset(&read);
    let region = |image| images.region(image).map(|region| region.to_string());
    let regions = (0..images.len()).map(region).collect();
    Ok(Embedded { queries: queries.set, images: Some(images), regions, broken_images: is_broken.len() })
}

/// One row per text, whose path is the text; `None` without texts.
fn embed_texts(model: &Model, texts: &[String], observer: &mut dyn Observer) -> Result<Option<EmbeddingSet>> {
    let mut rows: Vec<f32> = Vec::new();
    for text in texts {
        let EmbeddedText { embedding, cut_to } = model.embed_text(text)?;
        if let Some(tokens) = cut_to {
            observer.warning(&format!(
                "the text `{text}` is too long: its first {tokens} tokens are searched with"
            ));
        }
        rows.extend(embedding);
    }
    if texts.is_empty() {
        return Ok(None);
    }
    let embeddings = Matrix::new(texts.len(), rows.len() / texts.len(), rows)?;
    Ok(Some(EmbeddingSet {
        paths: Some(texts.to_vec()),
        model: Some(model.fingerprint().to_owned()),
        metric: Some(model.metric()),
        ..EmbeddingSet::from(embeddings)
    }))
}

/// The rows of images, followed by those of texts. What only images have is left out.
fn with_texts(images: Embedded, texts: Option<EmbeddingSet>) -> Result<Embedded> {
    let Some(texts) = texts else { return Ok(images) };
    let Embedded { queries, images, mut regions, broken_images } = images;
    let (count, width) = (queries.embeddings.rows() + texts.embeddings.rows(), texts.embeddings.cols());
    regions.resize(count, None);
    let rows = [queries.embeddings.as_slice(), texts.embeddings.as_slice()].concat();
    let paths = queries.paths.into_iter().chain(texts.paths).flatten().collect();
    let queries = EmbeddingSet {
        paths: Some(paths),
        model: texts.model,
        metric: texts.metric,
        ..EmbeddingSet::from(Matrix::new(count, width, rows)?)
    };
    Ok(Embedded { queries, images, regions, broken_images })
}

/// The query images, or the regions of them.
fn query_images(queries: &[PathBuf], regions: &[Region]) -> Result<ImageSet> {
    // Several regions of one image are several queries.
    let options = OpenOptions { allow_repeats: true, ..OpenOptions::default() };
    let images = ImageSet::open_with(queries, &options)?;
    match (regions, images.len()) {
        ([], _) => Ok(images),
        (&[one], all) => Ok(images.with_regions(&vec![one; all])),
        (each, all) if each.len() == all => Ok(images.with_regions(each)),
        (each, all) => Err(Error::new(
            format!("{} for {}", count(each.len(), "region"), count(all, "query image")),
            Some("give one --region for all query images, or one for each, in their order"),
        )),
    }
}

/// What a search looks through.
enum Narrowed {
    All(Gallery),
    Rows((EmbeddingSet, Names)),
}

/// The nearest rows or groups by Euclidean distance; the cosine is shown as the distance of rows of length 1.
fn nearest(
    queries: &EmbeddingSet,
    gallery: &EmbeddingSet,
    metric: Metric,
    k: usize,
    groups: Option<&Groups>,
) -> Result<search::RankedLists> {
    if gallery.embeddings.rows() == 0 {
        return Ok(search::RankedLists::empty(k, queries.embeddings.rows()));
    }
    let unit = |rows: &Matrix| rows.l2_normalized().0;
    let scaled = metric == Metric::Cosine;
    // Queries that declare the cosine have length 1 already, unless their fingerprint says otherwise.
    let is_unscaled = queries.model.as_deref().is_some_and(|model| fingerprint::split(model).1);
    let are_unit = queries.metric == Some(metric) && !is_unscaled;
    let rows_of_queries = (scaled && !are_unit).then(|| unit(&queries.embeddings));
    let rows_of_gallery = scaled.then(|| unit(&gallery.embeddings));
    let queries = rows_of_queries.as_ref().unwrap_or(&queries.embeddings);
    let gallery = rows_of_gallery.as_ref().unwrap_or(&gallery.embeddings);
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(k) };
    Ok(match groups {
        None => search::search(queries, gallery, &options)?,
        Some(groups) => search::search_groups(queries, gallery, &groups.of_rows, groups.by, &options)?,
    })
}
