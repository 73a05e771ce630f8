//! Serves a file of embeddings without a network: `serve GALLERY [IMAGES [PORT]]`.
//!
//! For work on the page: with `GALLERIST_ASSETS=DIR` it is read from there at every request;
//! `GALLERIST_QUERIES` names embeddings of queries; `GALLERIST_COMPARE` and `GALLERIST_TRAINING` those of another
//! network, and of the training set;
//! `GALLERIST_ANALYSIS=N` is the most items whose failures and whose t-SNE are computed.

use std::path::PathBuf;
use std::process::ExitCode;

use gallerist_serve::{Companion, Contents, Gallery, Images, Options, Result, Server};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("\nhint: {hint}");
            }
            ExitCode::from(2)
        }
    }
}

/// A file or folder named by a variable of the environment.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

fn run() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let gallery = args.next().map_or_else(|| PathBuf::from("gallery.safetensors"), PathBuf::from);
    let images = args.next().filter(|images| !images.is_empty()).map(PathBuf::from);
    let port = args.next().and_then(|port| port.to_str()?.parse().ok());
    let mut options =
        Options { assets: named("GALLERIST_ASSETS"), note: |note| eprintln!("{note}"), ..Options::default() };
    options.address.set_port(port.unwrap_or(8080));
    if let Some(items) = named("GALLERIST_ANALYSIS").and_then(|items| items.to_str()?.parse().ok()) {
        (options.analysis_items, options.tsne_items) = (items, items);
    }
    let gallery = Gallery::open(&gallery, false)?;
    let images = images.map(|path| Images::open(&path, options.thumbnail_bytes, None)).transpose()?;
    let companion = |file: &str, folder: &str| -> Result<_> {
        let Some(file) = named(file) else { return Ok(None) };
        let own = named(folder).map(|path| Images::open(&path, options.thumbnail_bytes, None));
        Ok(Some(Companion::open(&file)?.with_images(own.transpose()?.or(images.clone()))))
    };
    let queries = companion("GALLERIST_QUERIES", "GALLERIST_QUERY_IMAGES")?;
    let training = companion("GALLERIST_TRAINING", "GALLERIST_TRAINING_IMAGES")?;
    let server = Server::bind(
        Contents { images, queries, compare: named("GALLERIST_COMPARE"), training, ..gallery.into() },
        options,
    )?;
    eprintln!("http://{}", server.address()?);
    server.run_until_signal()
}
