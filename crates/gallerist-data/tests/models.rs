//! Models of the loader: its real code under many schedules of its threads.
//!
//! ```sh
//! RUSTFLAGS="--cfg shuttle" cargo test --release --target-dir target/shuttle -p gallerist-data --test models
//! ```
#![cfg(shuttle)]

use std::sync::Arc;

use gallerist_data::*;
use shuttle::thread;

const IMAGES: usize = 9;
/// Schedules of each model.
const SCHEDULES: usize = 3000;

struct Numbers;

impl ImageSource for Numbers {
    fn name(&self) -> &str {
        "numbers://model"
    }

    fn list(&mut self) -> Result<ImageListing, Error> {
        Ok((0..IMAGES).map(|i| ImageRecord::new(format!("{i}")).with_label("a")).collect::<Vec<_>>().into())
    }

    fn read(&self, number: usize, path: &str) -> Result<ImageContent, Error> {
        // Others run while an image is decoded.
        thread::yield_now();
        match number {
            BROKEN => Err(Error::Decode { path: self.location(path), problem: "it is broken".to_owned() }),
            _ => Ok(ImageContent::Decoded(Image::new(1, 1, 1, vec![number as u8]))),
        }
    }
}

/// An image that cannot be decoded; only plans that name it meet it.
const BROKEN: usize = IMAGES - 1;

fn store() -> Arc<ImageStore> {
    let set = ImageSet::from_source(Numbers).unwrap();
    let transform = Transform::evaluation(&ImageConfig::new(1, 1)).unwrap();
    Arc::new(ImageStore::new(Arc::new(set), transform, 0))
}

fn options(threads: usize, prefetch: usize, on_broken: OnBroken) -> LoaderOptions {
    LoaderOptions { prefetch, on_broken, ..LoaderOptions::training(1, threads) }
}

/// Batches of different sizes, one of them empty.
fn plan() -> Vec<Vec<u32>> {
    vec![vec![0, 1, 2], vec![], vec![3], vec![4, 5, 6, 7, 0]]
}

/// Schedules at random, and those that delay threads at few places (PCT), which find rare orders.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    shuttle::check_random(move || model(), SCHEDULES);
    shuttle::check_pct(move || again(), SCHEDULES, 3);
}

#[test]
fn every_batch_comes_once_whole_and_in_order() {
    for (threads, prefetch) in [(1, 1), (2, 1), (2, 3), (3, 2)] {
        check(move || {
            let options = options(threads, prefetch, OnBroken::Fail);
            let loader = Loader::new(store(), BatchPlan::epoch(0, plan()), options).unwrap();
            let batches: Vec<Batch> = loader.map(Result::unwrap).collect();
            let items: Vec<Vec<u32>> = batches.iter().map(|batch| batch.items.clone()).collect();
            assert_eq!(items, plan());
            assert!(batches.iter().zip(0..).all(|(batch, index)| batch.index == index));
            // The pixel of an image is its number: none is in the place of another.
            for batch in &batches {
                let numbers: Vec<u32> =
                    batch.images.iter().map(|pixel| (pixel * 255.0).round() as u32).collect();
                assert_eq!(numbers, batch.items);
            }
        });
    }
}

#[test]
fn a_loader_that_is_dropped_at_any_time_ends_its_workers() {
    for taken in 0..3 {
        check(move || {
            // An endless plan: workers never run out of work.
            let endless = (0..).map(|at| BatchPlan { epoch: 0, first: at, items: vec![0, 1, 2] });
            let store = store();
            let mut loader = Loader::new(store.clone(), endless, options(2, 2, OnBroken::Fail)).unwrap();
            for at in 0..taken {
                assert_eq!(loader.next().unwrap().unwrap().index, at);
            }
            drop(loader);
            assert_eq!(Arc::strong_count(&store), 1, "a worker still has the store");
        });
    }
}

#[test]
fn a_broken_image_ends_the_loader_at_its_batch_and_the_batches_before_it_come() {
    check(|| {
        let batches = vec![vec![0, 1], vec![2, BROKEN as u32, 3], vec![4]];
        let plan = BatchPlan::epoch(0, batches);
        let mut loader = Loader::new(store(), plan, options(2, 3, OnBroken::Fail)).unwrap();
        assert_eq!(loader.next().unwrap().unwrap().items, [0, 1]);
        assert!(loader.next().unwrap().is_err());
        assert!(loader.next().is_none());
    });
}

#[test]
fn a_plan_that_panics_ends_the_loader_after_the_batches_before_it() {
    check(|| {
        let plan = (0..3).map(|at| match at {
            2 => panic!("no more batches"),
            _ => BatchPlan { epoch: 0, first: 2 * at, items: vec![0, 1] },
        });
        let loader = Loader::new(store(), plan, options(2, 4, OnBroken::Fail)).unwrap();
        let batches: Vec<bool> = loader.map(|batch| batch.is_ok()).collect();
        assert_eq!(batches, [true, true, false]);
    });
}
