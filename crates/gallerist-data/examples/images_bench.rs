//! Seconds for one pass of the loader over a folder: `images_bench FOLDER STORED SIZE THREADS BATCH [CACHE]`.
//!
//! Decode, fit to STORED, crop as the ranked list loss does (journal version), scale to SIZE, flip,
//! normalise; nothing is kept in memory, and on disk only where a folder CACHE is named. `bench/images/run.py` compares it with other libraries.

use std::sync::Arc;
use std::time::Instant;

use gallerist_data::*;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, numbers @ ..] = arguments.as_slice() else { usage() };
    let [stored, size, threads, batch, cache @ ..] = numbers else { usage() };
    let [stored, size, threads, batch] =
        [stored, size, threads, batch].map(|n| n.parse().unwrap_or_else(|_| usage()));
    let config = ImageConfig {
        stored_size: Some(Size::square(stored)),
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
        ..ImageConfig::new(size, 3)
    };
    let crop = CropConfig::Side { scale: [0.5, 1.0], ratio: [0.75, 4.0 / 3.0] };
    let augment = AugmentConfig { crop, flip: 0.5, ..AugmentConfig::default() };
    let set = Arc::new(ImageSet::open(folder)?);
    let mut store = ImageStore::new(set.clone(), Transform::training(&config, &augment)?, 0);
    if let [cache] = cache {
        store = store.with_disk_cache(cache.as_ref())?;
    }
    let store = Arc::new(store);
    let plan = BatchPlan::in_order(set.len(), batch);
    let start = Instant::now();
    let mut images = 0;
    for batch in Loader::new(store, plan, LoaderOptions::training(1, threads))? {
        let batch = batch?;
        assert_eq!(batch.replaced, 0, "a broken image");
        images += std::hint::black_box(&batch).len();
    }
    assert_eq!(images, set.len());
    println!("{}", start.elapsed().as_secs_f64());
    Ok(())
}

fn usage() -> ! {
    eprintln!("usage: images_bench FOLDER STORED SIZE THREADS BATCH [CACHE]");
    std::process::exit(2);
}
