//! Seconds for one pass of the loader over a folder: `images_bench FOLDER STORED SIZE THREADS BATCH`.
//!
//! Decode, fit to STORED, crop as the ranked list loss does (journal version), scale to SIZE, flip,
//! normalise; nothing is kept in memory. `bench/images/run.py` runs it beside its peers.

use std::sync::Arc;
use std::time::Instant;

use gallerist_data::*;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, numbers @ ..] = arguments.as_slice() else { usage() };
    let numbers: Vec<usize> = numbers.iter().map(|n| n.parse().unwrap_or_else(|_| usage())).collect();
    let &[stored, size, threads, batch] = numbers.as_slice() else { usage() };
    let config = ImageConfig {
        stored_size: Some(Size::square(stored)),
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
        ..ImageConfig::new(size, 3)
    };
    let crop = CropConfig::Side { scale: [0.5, 1.0], ratio: [0.75, 4.0 / 3.0] };
    let augment = AugmentConfig { crop, flip: 0.5, ..AugmentConfig::default() };
    let set = Arc::new(ImageSet::open(folder)?);
    let store = Arc::new(ImageStore::new(set.clone(), Transform::training(&config, &augment)?, 0));
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
    eprintln!("usage: images_bench FOLDER STORED SIZE THREADS BATCH");
    std::process::exit(2);
}
