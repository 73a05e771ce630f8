//! Trains a network on a folder of photographs and finds those that are nearest to another photograph.
//!
//! ```text
//! cargo run --release --example train_and_search -- PHOTOS QUERY RUN
//! ```
//!
//! `PHOTOS` has one folder per class (`photos/heron/1.jpg`, `photos/wren/7.jpg`, …), `QUERY` is one image, and `RUN` is
//! the run directory to be made.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gallerist::prelude::*;

const RUN_FILE: &str = r#"
[image]
size = 32
[sampler]
classes_per_batch = 4
images_per_class = 3
[network]
kind = "conv_blocks"
channels = [32, 32, 32]
dimensions = 32
[loss]
name = "contrastive"
"#;

/// Returns the paths of the nearest photographs.
pub fn run(photos: &Path, query: &Path, run: &Path, steps: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let mut config = RunConfig::parse(RUN_FILE, "train_and_search.rs", &[])?;
    config.data.train = vec![photos.into()];
    config.train.steps = steps;
    let trained = gallerist::train(&config, run, &mut (), &AtomicBool::new(false))?;
    println!("{} steps; report: {:?}", trained.steps, trained.report);

    let gallery = run.join("photos.safetensors");
    let photos = [PathBuf::from(photos)];
    gallerist::embed(run, &photos, &EmbedOptions::default(), &mut ())?.set.save(&gallery)?;

    let options = ImageSearchOptions { k: 3, ..ImageSearchOptions::default() };
    let found = gallerist::search(&gallery, &[query.into()], &options, &mut ())?;
    for item in &found.lists[0].results {
        println!("{}. {} at {:.3}", item.rank, item.path.as_deref().unwrap_or_default(), item.distance);
    }
    Ok(found.lists[0].results.iter().filter_map(|item| item.path.clone()).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [photos, query, directory] = &paths[..] else {
        return Err("usage: train_and_search PHOTOS QUERY RUN".into());
    };
    run(photos, query, directory, 500)?;
    Ok(())
}
