//! Serving a gallery as a page and an HTTP API.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gallerist_data::Image;
use gallerist_nn::Products;
use gallerist_retrieval::file::TableColumns;
use gallerist_retrieval::search::Metric;
use gallerist_serve::{
    BatchEmbedder, Companion, Contents, Embedder, FeatureMap, Gallery, Images, Options, Server, TextVector,
};
use gallerist_tensor::device::DeviceChoice;
use gallerist_train::model::{EmbeddedText, ImageMaps, Model};
use gallerist_train::{CheckpointKind, RunDirectory};
use gallerist_util::text::shell_word;

use super::database::{self, is_remote};
use super::gallery::{not_applied, of_smaller_gallery};
use super::model::{of_gallery, on_device};
use crate::image_places::{ImagePlaces, is_there};
use crate::observer::working;
use crate::unread::warn_of_unread;
use crate::{Error, Observer, Result};

/// What [`serve`] serves, and how.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Images of the gallery; by default the place they were embedded from.
    pub images: Option<PathBuf>,
    /// Images of the sources that the gallery's items name, if `images` is absent: pairs of a name and a path.
    pub image_sources: Vec<(String, PathBuf)>,
    /// The run directory of the network; by default the one that embedded the gallery.
    pub run: Option<PathBuf>,
    /// The checkpoint of the run; by default the one that embedded the gallery, or the run's `evaluation.checkpoint` if the
    /// gallery does not say which network embedded it.
    pub checkpoint: Option<CheckpointKind>,
    /// The device of the network.
    pub device: DeviceChoice,
    /// The products of the network on the CPU; absent: those of its run.
    pub products: Option<Products>,
    /// Embeddings of queries, which failures, confusions and metrics are computed for.
    pub queries: Option<PathBuf>,
    /// Images of the queries; by default the place they were embedded from.
    pub query_images: Option<PathBuf>,
    /// The protocol, as in [`EvaluateOptions`](crate::EvaluateOptions).
    pub protocol: Option<String>,
    /// The same gallery embedded by another network, or the run directory of that network.
    pub compare: Option<PathBuf>,
    /// The queries embedded by the other network.
    pub compare_queries: Option<PathBuf>,
    /// Training images embedded by the gallery's network, to be looked for in the gallery.
    pub training: Option<PathBuf>,
    /// Training images; by default the place they were embedded from.
    pub training_images: Option<PathBuf>,
    /// The address, the limits, and the tokens that allow clients to read and to change the gallery.
    pub server: Options,
}

/// Opens a gallery with its images and its network, and binds a server; [`Server::run`] then answers requests.
///
/// The gallery is a file of embeddings, an index, a run directory (its test images, and its queries if there are any)
/// or `milvus://HOST[:PORT]/COLLECTION` (feature `milvus`) or `qdrant://HOST[:PORT]/COLLECTION` (feature `qdrant`).
///
/// # Example
///
/// ```no_run
/// use std::path::Path;
///
/// let server = gallerist::serve(Path::new("runs/first"), Default::default(), &mut ())?;
/// println!("{}", server.url()?);
/// server.run()?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When a file cannot be read, when embeddings, network and images do not fit each other, and when the address is in
/// use. A network or images that are not named and cannot be found are a warning.
pub fn serve(gallery: &Path, options: ServeOptions, observer: &mut dyn Observer) -> Result<Server> {
    let server = options.server.clone();
    let named = NamedGallery { name: None, gallery: gallery.to_owned(), options };
    serve_all(vec![named], server, observer)
}

/// A gallery of [`serve_all`].
#[derive(Clone, Debug, Default)]
pub struct NamedGallery {
    /// Its name on the server; `None` for that of its file, or of its run directory.
    pub name: Option<String>,
    /// The gallery, as in [`serve`].
    pub gallery: PathBuf,
    /// Its images, network, queries and so on. `server` is not used.
    pub options: ServeOptions,
}

/// As [`serve`], for several galleries on one server: a request chooses one by its parameter `gallery`, and the page has a
/// list of them. Galleries of one network share it.
///
/// SIGHUP, a client with the token and [`Server::reload`] open the galleries again whose files have changed.
///
/// # Errors
///
/// As [`serve`], with the name of the gallery; and for two galleries of one name.
pub fn serve_all(
    galleries: Vec<NamedGallery>,
    server: Options,
    observer: &mut dyn Observer,
) -> Result<Server> {
    let several = galleries.len() > 1;
    let has_queries =
        |one: &NamedGallery| with_run_directories(&one.gallery, one.options.clone()).1.queries.is_some();
    if galleries.iter().any(|one| one.options.query_images.is_some()) && !galleries.iter().any(has_queries) {
        return Err(Error::new(
            "there are images of queries, and no queries",
            Some("give the queries, too: --queries FILE"),
        ));
    }
    let mut networks = Networks::default();
    let mut all = Vec::with_capacity(galleries.len());
    let mut known = HashMap::new();
    for NamedGallery { name, gallery, options } in galleries {
        let options = ServeOptions { server: server.clone(), ..options };
        let called = name.clone().unwrap_or_else(|| gallery.display().to_string());
        if several {
            observer.note(&format!("gallery `{called}`"));
        }
        let contents =
            contents(&gallery, options.clone(), &mut networks, observer).map_err(|error| match several {
                true => Error::new(format!("the gallery `{called}`: {error}"), error.hint().as_deref()),
                false => error,
            })?;
        let name = name.unwrap_or_else(|| contents.gallery.short_name());
        known.insert(name.clone(), (gallery, options));
        all.push((name, contents));
    }
    let note = server.note;
    let networks = Mutex::new(networks);
    let reopen = move |name: &str| {
        let (gallery, options) = &known[name];
        let mut networks = networks.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = contents(gallery, options.clone(), &mut networks, &mut Notes(note));
        // The network of a gallery that was replaced is released with that gallery.
        let result = opened.map_err(|error| gallerist_serve::Error::Option {
            problem: error.to_string(),
            hint: error.hint(),
        });
        networks.retain(|(_, network)| Arc::strong_count(network) > 1);
        result
    };
    Ok(Server::bind_all(all, server)?.with_reopen(reopen))
}

/// Sends warnings to the operator of a running server.
struct Notes(fn(&str));

impl gallerist_train::Observer for Notes {
    fn warning(&mut self, message: &str) {
        (self.0)(message);
    }
}

impl Observer for Notes {
    fn warner(&self) -> fn(&str) {
        self.0
    }
}

/// The networks that were opened, with what they embed like.
type Networks = Vec<(Embedding, Arc<dyn Embedder>)>;

/// What decides the embedding of an image: galleries that agree in it share their network.
#[derive(Clone, PartialEq)]
struct Embedding {
    /// The fingerprint, which also names the heads.
    model: Option<String>,
    /// Rows that are compared by the cosine have length 1.
    metric: Option<Metric>,
    device: DeviceChoice,
    products: Option<Products>,
}

/// Opens a gallery with its images and its network.
fn contents(
    gallery: &Path,
    options: ServeOptions,
    networks: &mut Networks,
    observer: &mut dyn Observer,
) -> Result<Contents> {
    let (path, options) = with_run_directories(gallery, options);
    let warner = observer.warner();
    let gallery =
        working(observer, "reading the gallery", || open(&path, !options.server.tokens.is_empty(), warner))?;
    if let Some(rule) = &gallery.origin().threshold {
        let warning = match rule.metric == gallery.metric() {
            true => of_smaller_gallery(rule, gallery.count()),
            false => Some(not_applied(rule, gallery.metric())),
        };
        if let Some(warning) = warning {
            observer.warning(&warning);
        }
    }
    let images = images(&options, &gallery, observer)?;
    let embedder = network(&path, &options, &gallery, networks, observer)?;
    if options.queries.is_none() {
        let queries = path.with_file_name("query.safetensors");
        if path.file_name().is_some_and(|name| name == "gallery.safetensors") && queries.exists() {
            observer.note(&format!(
                "a query set is next to the gallery: add --queries {} to use it",
                shell_word(&queries.to_string_lossy())
            ));
        }
    }
    // Queries and training images are often of the same folders as the gallery.
    let places = places_of(&gallery);
    let of_gallery = images.as_ref().map(|images| (images, &places));
    let queries = match &options.queries {
        Some(file) => {
            let asked = (options.query_images.as_deref(), "--query-images");
            Some(companion(file, asked, of_gallery, &options.server, observer)?)
        }
        None => None,
    };
    let training = match &options.training {
        Some(file) => {
            let asked = (options.training_images.as_deref(), "--training-images");
            Some(companion(file, asked, of_gallery, &options.server, observer)?)
        }
        None => None,
    };
    Ok(Contents {
        gallery,
        images,
        embedder,
        queries,
        protocol: options.protocol,
        compare: options.compare,
        compare_queries: options.compare_queries,
        training,
    })
}

/// A run directory names the embeddings of its test images, and its queries if it has any.
fn with_run_directories(gallery: &Path, mut options: ServeOptions) -> (PathBuf, ServeOptions) {
    let mut path = gallery.to_path_buf();
    if let Some((of_run, queries)) = of_run(gallery) {
        options.run = options.run.or(Some(path));
        path = of_run;
        options.queries = options.queries.or(queries);
    }
    if let Some((compare, queries)) = options.compare.as_deref().and_then(of_run) {
        options.compare = Some(compare);
        options.compare_queries = options.compare_queries.or(queries.filter(|_| options.queries.is_some()));
    }
    (path, options)
}

/// The file in a run directory for the embeddings of images that the run was not measured on. `embeddings.safetensors` there are
/// its test images.
pub(crate) const FURTHER_IMAGES: &str = "images.safetensors";

/// The embeddings of a run directory: the gallery, and the queries if there are any; of a run without test images, those of
/// further images.
fn of_run(path: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    let run = RunDirectory::open(path).ok().filter(|_| path.is_dir())?;
    let (all, query, gallery) = (run.embeddings(), run.query(), run.gallery());
    let further = run.path().join(FURTHER_IMAGES);
    Some(match () {
        () if query.exists() && gallery.exists() => (gallery, Some(query)),
        () if !all.exists() && further.exists() => (further, None),
        () => (all, None),
    })
}

/// Embeddings that accompany the gallery, with their images if these are available.
fn companion(
    file: &Path,
    (asked, option): (Option<&Path>, &str),
    of_gallery: Option<(&Images, &ImagePlaces<'_>)>,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Companion> {
    let companion = Companion::open(file)?;
    if let Some(path) = asked {
        let images = Images::open(path, options.thumbnail_bytes, options.thumbnails.clone())?;
        return Ok(companion.with_images(Some(images)));
    }
    let places = ImagePlaces::of_set(companion.set());
    let shared = of_gallery.filter(|(_, of_gallery)| places.is_same(of_gallery));
    let found = places.found();
    let images = match (shared, found.is_empty()) {
        (Some((images, _)), _) => Some(images.clone()),
        (None, false) => {
            match Images::open_all(&found, options.thumbnail_bytes, options.thumbnails.clone()) {
                Ok(images) => Some(images),
                Err(error) => {
                    observer.warning(&format!("the images of `{}` are not shown: {error}", file.display()));
                    None
                }
            }
        }
        (None, true) => {
            observer.warning(&format!(
                "the images of `{}` are not shown: they are not where it says; give {option} PATH",
                file.display()
            ));
            None
        }
    };
    Ok(companion.with_images(images))
}

fn open(path: &Path, writable: bool, warn: fn(&str)) -> Result<Gallery> {
    if !is_remote(path) {
        let gallery = Gallery::open(path, writable)?;
        warn_of_unread(path, &TableColumns::default(), warn)?;
        return Ok(gallery);
    }
    Ok(Gallery::from_index(path.display().to_string(), database::open(path, None, warn)?.index)?)
}

/// Where the images of a gallery are.
fn places_of(gallery: &Gallery) -> ImagePlaces<'_> {
    ImagePlaces::new(gallery.origin().source.as_deref(), gallery.sources())
}

/// The images of the options, or those that were embedded if they still exist. Sources whose images are not found are a
/// warning.
fn images(options: &ServeOptions, gallery: &Gallery, observer: &mut dyn Observer) -> Result<Option<Images>> {
    /// The most sources that the warning names.
    const SHOWN: usize = 3;
    let Some(images) = open_images(options, gallery, observer)? else { return Ok(None) };
    // Images that belong to no item at all are an error.
    images.check(gallery)?;
    match &images.missing_sources(gallery)[..] {
        [] => {}
        [source] => observer.warning(&format!(
            "no image of the source `{source}` is found; give --images {}",
            shell_word(&format!("{source}=PATH"))
        )),
        several => {
            let names: Vec<String> = several.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
            let more = if several.len() > SHOWN { ", …" } else { "" };
            observer.warning(&format!(
                "no image of {} of the gallery's sources is found: {}{more}; give --images SOURCE=PATH for each",
                several.len(),
                names.join(", ")
            ));
        }
    }
    Ok(Some(images))
}

/// As [`images`], without the warning of single sources.
fn open_images(
    options: &ServeOptions,
    gallery: &Gallery,
    observer: &mut dyn Observer,
) -> Result<Option<Images>> {
    let Options { thumbnail_bytes, thumbnails, .. } = &options.server;
    if let Some(path) = &options.images {
        return Ok(Some(Images::open(path, *thumbnail_bytes, thumbnails.clone())?));
    }
    if !options.image_sources.is_empty() {
        return Ok(Some(images_of_sources(options, gallery, observer)?));
    }
    let places = places_of(gallery);
    let found = places.found();
    let opened = (!found.is_empty()).then(|| {
        let images = Images::open_all(&found, *thumbnail_bytes, thumbnails.clone())?;
        images.check(gallery)?;
        Ok::<_, gallerist_serve::Error>(images)
    });
    match opened {
        Some(Ok(images)) => Ok(Some(images)),
        Some(Err(error)) => {
            observer.warning(&format!("no images are shown: {error}"));
            Ok(None)
        }
        None => {
            let reason = match places.is_empty() {
                false => format!("they were at {places}, and are not there"),
                true => "the gallery does not say where they are".into(),
            };
            observer.warning(&format!("no images are shown: {reason}; give --images PATH"));
            Ok(None)
        }
    }
}

/// The images of the sources that the options name, and of the others where the gallery says if they still exist.
fn images_of_sources(
    options: &ServeOptions,
    gallery: &Gallery,
    observer: &mut dyn Observer,
) -> Result<Images> {
    let named = &options.image_sources;
    let known: Vec<&str> = gallery.sources().iter().map(|source| source.name.as_str()).collect();
    if let Some((name, _)) = named.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return Err(Error::new(
            format!("no item of `{}` is of the source `{name}`", gallery.name()),
            Some(&format!("its sources: {}", known.join(", "))),
        ));
    }
    let others = gallery.sources().iter().filter(|source| named.iter().all(|(name, _)| *name != source.name));
    let others =
        others.filter_map(|source| Some((source.name.clone(), PathBuf::from(source.images.as_ref()?))));
    let others: Vec<(String, PathBuf)> = others.filter(|(_, place)| is_there(place)).collect();
    let Options { thumbnail_bytes, thumbnails, .. } = &options.server;
    let open =
        |sources: &[(String, PathBuf)]| Images::open_sources(sources, *thumbnail_bytes, thumbnails.clone());
    match open(&[named.as_slice(), others.as_slice()].concat()) {
        // An error of the images that were asked for ends the start, one of the others does not.
        Err(error) if !others.is_empty() => {
            let images = open(named)?;
            observer.warning(&format!("only the images that --images names are shown: {error}"));
            Ok(images)
        }
        opened => Ok(opened?),
    }
}

/// The network of the options, or the one that embedded the gallery if it still exists. A run and a checkpoint that the
/// options name are opened even if another gallery has the network, so that a wrong one is refused.
fn network(
    path: &Path,
    options: &ServeOptions,
    gallery: &Gallery,
    networks: &mut Networks,
    observer: &mut dyn Observer,
) -> Result<Option<Arc<dyn Embedder>>> {
    let origin = gallery.origin();
    let &ServeOptions { ref run, checkpoint, device, products, .. } = options;
    let embedding = Embedding { model: origin.model.clone(), metric: origin.metric, device, products };
    // Two galleries that do not name their network may be of two.
    let is_same = |other: &Embedding| other.model.is_some() && *other == embedding;
    let known = networks.iter().find(|(other, _)| is_same(other)).map(|(_, network)| Arc::clone(network));
    if known.is_some() && run.is_none() && checkpoint.is_none() {
        return Ok(known);
    }
    let model = match of_gallery(path, run.as_deref(), checkpoint, origin, observer) {
        Ok(model) => model,
        Err(error) if run.is_some() => return Err(error),
        Err(error) => {
            observer.warning(&format!("no image can be uploaded: {error}"));
            return Ok(None);
        }
    };
    if known.is_some() {
        return Ok(known);
    }
    let network = Network::new(on_device(model, device, products, observer)?)?;
    let network: Arc<dyn Embedder> = Arc::new(network);
    networks.push((embedding, Arc::clone(&network)));
    Ok(Some(network))
}

/// The network of the server.
struct Network {
    model: Model,
    dimensions: usize,
}

impl Network {
    /// Embeds one image, which gives the number of dimensions and allocates what later images need.
    fn new(model: Model) -> Result<Self> {
        let unknown = |problem: String| Error::new(format!("the network embeds no image: {problem}"), None);
        let mut network = Network { model, dimensions: 0 };
        let grey = Image::new(16, 16, 1, vec![127; 256]);
        network.dimensions = network.embed(&grey).map_err(unknown)?.len();
        if network.model.has_text() {
            network.model.embed_text("a")?;
        }
        Ok(network)
    }
}

impl Embedder for Network {
    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn fingerprint(&self) -> &str {
        self.model.fingerprint()
    }

    fn embed(&self, image: &Image) -> Result<Vec<f32>, String> {
        self.model.embed_image(image.clone()).map_err(|error| error.to_string())
    }

    fn batched(self: Arc<Self>) -> Option<Arc<dyn BatchEmbedder>> {
        Some(self)
    }

    fn has_text(&self) -> bool {
        self.model.has_text()
    }

    fn embed_text(&self, text: &str) -> Result<TextVector, String> {
        let EmbeddedText { embedding: vector, cut_to } =
            self.model.embed_text(text).map_err(|error| error.to_string())?;
        Ok(TextVector { vector, cut_to })
    }

    fn feature_map(&self, image: &Image) -> Option<FeatureMap> {
        let ImageMaps { maps: values, shape: [height, width, channels], .. } =
            self.model.embed_with_maps(image.clone()).ok()?;
        Some(FeatureMap { height, width, channels, values })
    }
}

impl BatchEmbedder for Network {
    fn preprocess(&self, image: &Image) -> Result<Vec<f32>, String> {
        self.model.preprocess(image.clone()).map_err(|error| error.to_string())
    }

    fn embed_preprocessed(&self, images: &[&[f32]]) -> Result<Vec<Vec<f32>>, String> {
        self.model.embed_preprocessed(images).map_err(|error| error.to_string())
    }
}
