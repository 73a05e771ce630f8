//! `gallerist serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::data::Image;
use crate::model::{Model, Seen};
use crate::serve::{Companion, Contents, Embedder, FeatureMap, Gallery, Images, Options, Server};
use crate::train::RunDirectory;

use super::remote::{self, is_remote};
use super::search::model_for;
use super::{Failure, Outcome, working};
use crate::cli::args::Serve;
use crate::cli::printer;

pub(super) fn run(args: Serve) -> Outcome {
    super::set_threads(args.threads);
    let args = with_run_directories(args);
    let options = options(&args)?;
    let gallery = working("reading the gallery", || open(&args))?;
    let images = images(&args, &gallery, &options)?;
    let embedder = network(&args, &gallery)?;
    let origin = gallery.origin().source.clone();
    if args.queries.is_none() {
        let queries = args.gallery.with_file_name("query.safetensors");
        if args.gallery.file_name().is_some_and(|name| name == "gallery.safetensors") && queries.exists() {
            printer::note(&format!("there are queries beside the gallery: --queries {}", queries.display()));
        }
    }
    // Queries and training images are often of the same folder as the gallery.
    let of_gallery = images.as_ref().zip(origin.as_deref());
    let beside = |file: &Option<PathBuf>, asked: &Option<PathBuf>, what: &str| {
        let companion = |file: &PathBuf| companion(file, asked.as_deref(), what, of_gallery, &options);
        file.as_ref().map(companion).transpose()
    };
    let queries = beside(&args.queries, &args.query_images, "--query-images")?;
    let training = beside(&args.training, &args.training_images, "--training-images")?;
    let contents = Contents {
        gallery,
        images,
        embedder,
        queries,
        protocol: args.protocol,
        compare: args.compare,
        compare_queries: args.compare_queries,
        training,
    };
    let server = Server::bind(contents, options)?;
    let stop = server.stop();
    if let Err(error) = ctrlc::set_handler(move || stop.now()) {
        printer::warning(&format!("requests will not be finished on Ctrl-C: {error}"));
    }
    if !args.host.is_loopback() {
        printer::warning(&"everybody who reaches this machine can see the gallery and upload images");
    }
    printer::out(&format!("http://{}\n", server.address()?))?;
    server.run()?;
    Ok(ExitCode::SUCCESS)
}

/// A run directory names the embeddings of its test images, and its queries where it has some.
fn with_run_directories(mut args: Serve) -> Serve {
    if let Some((gallery, queries)) = of_run(&args.gallery) {
        args.run = args.run.or(Some(args.gallery));
        args.gallery = gallery;
        args.queries = args.queries.or(queries);
    }
    if let Some((compare, queries)) = args.compare.as_deref().and_then(of_run) {
        args.compare = Some(compare);
        args.compare_queries = args.compare_queries.or(queries.filter(|_| args.queries.is_some()));
    }
    args
}

/// The embeddings of a run directory: the gallery, and the queries where there are some.
fn of_run(path: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    let run = RunDirectory::open(path).ok().filter(|_| path.is_dir())?;
    let (query, gallery) = (run.query(), run.gallery());
    Some(if query.exists() && gallery.exists() { (gallery, Some(query)) } else { (run.embeddings(), None) })
}

/// Embeddings that accompany the gallery, with their images where these are available.
fn companion(
    file: &Path,
    asked: Option<&Path>,
    option: &str,
    of_gallery: Option<(&Images, &str)>,
    options: &Options,
) -> Result<Companion, Failure> {
    let companion = Companion::open(file)?;
    let open = |path: &Path| Images::open(path, options.thumbnail_bytes, options.thumbnails.clone());
    if let Some(path) = asked {
        return Ok(companion.with_images(Some(open(path)?)));
    }
    let set = companion.set();
    let shared = of_gallery.filter(|(_, other)| set.source.as_deref() == Some(*other));
    let sources = set.sources.iter().flat_map(|sources| sources.list());
    let of_rows = || sources.filter_map(|source| source.images.as_deref()).collect();
    let places: Vec<&str> = set.source.as_deref().map_or_else(of_rows, |source| vec![source]);
    let places: Vec<PathBuf> = places.into_iter().map(PathBuf::from).filter(|place| place.exists()).collect();
    let images = match (shared, places.is_empty()) {
        (Some((images, _)), _) => Some(images.clone()),
        (None, false) => match Images::open_all(&places, options.thumbnail_bytes, options.thumbnails.clone())
        {
            Ok(images) => Some(images),
            Err(error) => {
                printer::warning(&format!("the images of `{}` are not shown: {error}", file.display()));
                None
            }
        },
        (None, true) => {
            printer::warning(&format!(
                "the images of `{}` are not shown: they are not where it says; give {option} PATH",
                file.display()
            ));
            None
        }
    };
    Ok(companion.with_images(images))
}

fn options(args: &Serve) -> Result<Options, Failure> {
    let token = match args.writable {
        true => args.token.clone().or_else(|| std::env::var("GALLERIST_TOKEN").ok()),
        false => None,
    };
    if args.writable && token.as_ref().is_none_or(String::is_empty) {
        return Err(Failure::new(
            "--writable needs a token, so that not everybody changes the gallery",
            Some("set GALLERIST_TOKEN in the environment, or give --token TOKEN"),
        ));
    }
    Ok(Options {
        address: SocketAddr::new(args.host, args.port),
        hosts: args.host_name.clone(),
        token,
        threads: args.threads,
        upload_bytes: (args.upload_limit as usize) << 20,
        k: args.k_max as usize,
        decode_time: Duration::from_secs(args.decode_limit.into()),
        analysis_items: args.analysis_limit,
        thumbnails: args.thumbnails.clone(),
        note: |note| printer::warning(&note),
        ..Options::default()
    })
}

fn open(args: &Serve) -> Result<Gallery, Failure> {
    let path = &args.gallery;
    if !is_remote(path) {
        return Ok(Gallery::open(path, args.writable)?);
    }
    Ok(Gallery::from_index(path.display().to_string(), remote::open(path, None)?.index)?)
}

/// The images asked for; without `--images` those that were embedded, where they are still there.
fn images(args: &Serve, gallery: &Gallery, options: &Options) -> Result<Option<Images>, Failure> {
    let open = |path: &Path| Images::open(path, options.thumbnail_bytes, options.thumbnails.clone());
    if let Some(path) = &args.images {
        return Ok(Some(open(path)?));
    }
    let source = gallery.origin().source.as_ref().map(PathBuf::from).filter(|source| source.exists());
    let several = || -> Vec<PathBuf> {
        let places = gallery.sources().iter().filter_map(|source| source.images.as_ref().map(PathBuf::from));
        places.filter(|place| place.exists()).collect()
    };
    let places = source.map_or_else(several, |source| vec![source]);
    let found = (!places.is_empty()).then(|| {
        let images = Images::open_all(&places, options.thumbnail_bytes, options.thumbnails.clone())?;
        images.check(gallery)?;
        Ok::<_, crate::serve::Error>(images)
    });
    match found {
        Some(Ok(images)) => Ok(Some(images)),
        Some(Err(error)) => {
            printer::warning(&format!("no images are shown: {error}"));
            Ok(None)
        }
        None => {
            let place = match &gallery.origin().source {
                Some(source) => format!("they were at `{source}`, and are not there"),
                None => "the gallery does not say where they are".into(),
            };
            printer::warning(&format!("no images are shown: {place}; give --images PATH"));
            Ok(None)
        }
    }
}

/// The network asked for; without `--run` the one that embedded the gallery, where it is still there.
fn network(args: &Serve, gallery: &Gallery) -> Result<Option<Arc<dyn Embedder>>, Failure> {
    let model = model_for(&args.gallery, args.run.as_deref(), args.checkpoint, gallery.origin());
    match model {
        Ok(model) => Ok(Some(Arc::new(Network::new(super::on_device(model, args.device.device)?)?))),
        Err(failure) if args.run.is_some() => Err(failure),
        Err(failure) => {
            printer::warning(&format!("no image can be uploaded: {}", failure.message));
            Ok(None)
        }
    }
}

/// The network behind the server's door.
struct Network {
    model: Model,
    dimensions: usize,
}

impl Network {
    /// Embeds an image once, which says how many values there are, and takes the memory that later ones need.
    fn new(model: Model) -> Result<Self, Failure> {
        let unknown = |problem: String| Failure::new(format!("the network embeds no image: {problem}"), None);
        let mut network = Network { model, dimensions: 0 };
        let grey = Image::new(16, 16, 1, vec![127; 256]);
        network.dimensions = network.embed(&grey).map_err(unknown)?.len();
        Ok(network)
    }

    fn see(&self, image: &Image) -> Result<Seen, String> {
        self.model.see(image.clone()).map_err(|error| error.to_string())
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
        Ok(self.see(image)?.embedding)
    }

    fn feature_map(&self, image: &Image) -> Option<FeatureMap> {
        let Seen { maps: values, shape: [height, width, channels], .. } = self.see(image).ok()?;
        Some(FeatureMap { height, width, channels, values })
    }
}
