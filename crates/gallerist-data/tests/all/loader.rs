//! The loader: order, bits, broken images, shutdown.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use gallerist_data::*;

fn augment() -> AugmentConfig {
    AugmentConfig {
        rotation_degrees: 15.0,
        scale: [0.8, 1.2],
        shear_degrees: 10.0,
        shift: 0.1,
        flip: 0.5,
        ..AugmentConfig::default()
    }
}

fn store(folder: &Path, training: bool, limit: usize) -> Arc<ImageStore> {
    let config = ImageConfig { stored_size: Some(Size::square(16)), ..ImageConfig::new(8, 3) };
    let transform = if training {
        Transform::training(&config, &augment()).unwrap()
    } else {
        Transform::evaluation(&config).unwrap()
    };
    Arc::new(ImageStore::new(Arc::new(ImageSet::open(folder).unwrap()), transform, limit))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(6, 5));
    folder
}

fn plan(set: &ImageSet, epochs: u64) -> Vec<BatchPlan> {
    let config = ClassesImagesConfig {
        classes_per_batch: 3,
        images_per_class: 3,
        small_classes: SmallClasses::LeaveOut,
    };
    let sampler = SamplerConfig::from(config).build(set).unwrap();
    (0..epochs).flat_map(|e| BatchPlan::epoch(e, sampler.epoch(5, e))).collect()
}

fn all(store: &Arc<ImageStore>, plan: Vec<BatchPlan>, options: LoaderOptions) -> Vec<Batch> {
    Loader::new(store.clone(), plan, options).unwrap().map(|b| b.unwrap()).collect()
}

#[test]
fn bits_do_not_depend_on_threads_prefetch_or_cache() {
    let folder = folder();
    let mut reference: Option<Vec<Batch>> = None;
    for (threads, prefetch, limit) in [(1, 1, 0), (2, 3, 1 << 20), (5, 2, 4000), (7, 9, 0)] {
        let store = store(folder.path(), true, limit);
        let plan = plan(store.set(), 4);
        let options = LoaderOptions { prefetch, ..LoaderOptions::training(9, threads) };
        let batches = all(&store, plan.clone(), options);
        assert!(store.cached_bytes() <= limit);
        assert_eq!(batches.len(), plan.len());
        for (i, (batch, plan)) in batches.iter().zip(&plan).enumerate() {
            assert_eq!((batch.index, batch.epoch), (i as u64, plan.epoch));
            assert_eq!(batch.items, plan.items);
            assert_eq!(batch.shape(), [9, 3, 8, 8]);
            assert_eq!(batch.images.len(), 9 * 3 * 8 * 8);
            assert!(batch.labels.chunks(3).all(|l| l == [l[0]; 3]));
        }
        let reference = reference.get_or_insert_with(|| batches.clone());
        for (a, b) in reference.iter().zip(&batches) {
            assert!(a.images.iter().zip(&b.images).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}

#[test]
fn a_resumed_plan_gives_the_batches_it_would_have_given() {
    let folder = folder();
    let store = store(folder.path(), true, 1 << 20);
    let plan = plan(store.set(), 3);
    let options = LoaderOptions::training(1, 2);
    let whole = all(&store, plan.clone(), options);
    let rest = all(&store, plan[3..].to_vec(), options);
    for (a, b) in whole[3..].iter().zip(&rest) {
        assert_eq!(a.images, b.images);
    }
    let other = all(&store, plan, LoaderOptions::training(2, 2));
    assert_ne!(whole[0].images, other[0].images);
}

#[test]
fn the_same_image_is_changed_differently_every_time() {
    let folder = folder();
    let store = store(folder.path(), true, 1 << 20);
    let plan = [0, 0, 1].map(|epoch| BatchPlan { epoch, first: 0, items: vec![4, 4] });
    let batches = all(&store, plan.into(), LoaderOptions::training(1, 2));
    let image = |b: usize, i: usize| &batches[b].images[i * 192..(i + 1) * 192];
    assert_ne!(image(0, 0), image(0, 1));
    assert_ne!(image(0, 0), image(2, 0));
    assert_eq!(image(0, 0), image(1, 0));
}

#[test]
fn a_whole_set_comes_in_order_in_blocks() {
    let folder = folder();
    let store = store(folder.path(), false, 0);
    for (block, sizes) in [(7, vec![7, 7, 7, 7, 2]), (30, vec![30]), (64, vec![30])] {
        let plan: Vec<_> = BatchPlan::in_order(store.set().len(), block).collect();
        let batches = all(&store, plan, LoaderOptions::evaluation(3));
        assert_eq!(batches.iter().map(Batch::len).collect::<Vec<_>>(), sizes);
        let items: Vec<u32> = batches.iter().flat_map(|b| b.items.clone()).collect();
        assert_eq!(items, (0..30).collect::<Vec<_>>());
        let labels: Vec<u32> = batches.iter().flat_map(|b| b.labels.clone()).collect();
        assert_eq!(labels, store.set().labels().unwrap());
    }
    assert_eq!(store.cached_bytes(), 0);
}

#[test]
fn broken_images_are_replaced_by_classmates_and_reported_once() {
    let folder = folder();
    let broken = folder.path().join("class02/03.png");
    std::fs::write(&broken, b"").unwrap();
    let mut reference: Option<Vec<Vec<u32>>> = None;
    for threads in [1, 4] {
        let store = store(folder.path(), true, 1 << 20);
        let labels = store.set().labels().unwrap().to_vec();
        // Place 1 is broken, and images 10 and 12 of its class are in the batch.
        let plan: Vec<_> =
            (0..20).map(|epoch| BatchPlan { epoch, first: 0, items: vec![10, 13, 12, 13] }).collect();
        let batches = all(&store, plan, LoaderOptions::training(3, threads));
        let reported: Vec<&Broken> = batches.iter().flat_map(|b| &b.broken).collect();
        assert_eq!(reported.len(), 1);
        assert_eq!(reported[0].item, 13);
        let text = reported[0].to_string();
        assert!(text.ends_with("class02/03.png`: the file is empty"), "{text}");
        let items: Vec<Vec<u32>> = batches.iter().map(|b| b.items.clone()).collect();
        for (batch, items) in batches.iter().zip(&items) {
            assert_eq!(batch.replaced, 2);
            assert_eq!(batch.len(), 4);
            // Images 11 and 14 are the ones of the class that the batch has not.
            assert!([11, 14].contains(&items[1]) && [11, 14].contains(&items[3]), "{items:?}");
            assert!(batch.labels.iter().all(|&l| l == labels[13]));
        }
        assert!(items.iter().any(|i| i[1] == 11) && items.iter().any(|i| i[1] == 14));
        assert_eq!(reference.get_or_insert_with(|| items.clone()), &items);
        // The next epoch's loader shares the store and says nothing again.
        let plan = vec![BatchPlan { epoch: 21, first: 0, items: vec![13] }];
        let again = all(&store, plan, LoaderOptions::training(3, threads));
        assert_eq!((again[0].broken.len(), again[0].replaced), (0, 1));
    }
}

#[test]
fn a_class_of_broken_images_ends_the_loader() {
    let folder = folder();
    for i in 0..5 {
        std::fs::write(folder.path().join(format!("class04/0{i}.png")), b"oops").unwrap();
    }
    let store = store(folder.path(), true, 0);
    let plan = [vec![0], vec![21, 0], vec![1]].map(|items| BatchPlan { epoch: 0, first: 0, items });
    let mut loader = Loader::new(store, plan, LoaderOptions::training(0, 2)).unwrap();
    assert!(loader.next().unwrap().is_ok());
    let error = loader.next().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("all 5 images of class `class04` in `"), "{text}");
    assert!(text.contains("class04/01.png`: not an image"), "{text}");
    assert!(error.hint().is_some());
    assert!(loader.next().is_none());
}

#[test]
fn in_evaluation_broken_images_are_left_out_and_reported() {
    let folder = folder();
    std::fs::write(folder.path().join("class00/01.png"), b"").unwrap();
    std::fs::write(folder.path().join("class00/02.png"), b"").unwrap();
    for threads in [1, 3] {
        let store = store(folder.path(), false, 0);
        let plan =
            [vec![0, 1, 2, 3], vec![1, 2], vec![4]].map(|items| BatchPlan { epoch: 0, first: 0, items });
        let batches = all(&store, plan.into(), LoaderOptions::evaluation(threads));
        assert_eq!(batches[0].items, [0, 3]);
        assert_eq!(batches[0].images.len(), 2 * 192);
        let items: Vec<u32> = batches[0].broken.iter().map(|b| b.item).collect();
        assert_eq!(items, [1, 2]);
        assert!(batches[1].is_empty() && batches[1].broken.len() == 2);
        assert_eq!(batches[2].items, [4]);
        let plan = vec![BatchPlan { epoch: 0, first: 0, items: vec![0, 1] }];
        let options = LoaderOptions { on_broken: OnBroken::Fail, ..LoaderOptions::evaluation(threads) };
        let error = Loader::new(store, plan, options).unwrap().next().unwrap().unwrap_err();
        assert!(error.to_string().ends_with("the file is empty"), "{error}");
    }
}

#[test]
fn a_panic_in_a_worker_is_an_error_in_its_place() {
    let folder = folder();
    let store = store(folder.path(), false, 0);
    let plan = [vec![0], vec![1, 999], vec![2]].map(|items| BatchPlan { epoch: 0, first: 0, items });
    let mut loader = Loader::new(store.clone(), plan, LoaderOptions::evaluation(3)).unwrap();
    assert_eq!(loader.next().unwrap().unwrap().items, [0]);
    let text = loader.next().unwrap().unwrap_err().to_string();
    assert!(text.starts_with("a loader thread panicked in batch 1: index out of bounds"), "{text}");
    assert!(loader.next().is_none());

    let plan = (0..3u32).map(|i| {
        assert!(i < 1, "the plan gave up");
        BatchPlan { epoch: 0, first: 0, items: vec![i] }
    });
    let mut loader = Loader::new(store, plan, LoaderOptions::evaluation(2)).unwrap();
    assert!(loader.next().unwrap().is_ok());
    let text = loader.next().unwrap().unwrap_err().to_string();
    assert_eq!(text, "a loader thread panicked in batch 1: the plan gave up");
    assert!(loader.next().is_none());
}

#[test]
fn an_endless_plan_is_pulled_no_further_than_the_window_and_dropping_stops_it() {
    let folder = folder();
    let store = store(folder.path(), true, 1 << 20);
    let pulled = Arc::new(AtomicUsize::new(0));
    let counter = pulled.clone();
    let plan = (0..).map(move |epoch| {
        counter.fetch_add(1, Ordering::SeqCst);
        BatchPlan { epoch, first: 0, items: vec![0, 1, 2, 3] }
    });
    let options = LoaderOptions { prefetch: 3, ..LoaderOptions::training(0, 4) };
    let mut loader = Loader::new(store.clone(), plan, options).unwrap();
    for taken in 1..=10 {
        assert!(loader.next().unwrap().is_ok());
        assert!(pulled.load(Ordering::SeqCst) <= taken + 3);
    }
    let share = loader.waited_share();
    assert!((0.0..=1.0).contains(&share), "{share}");
    drop(loader);
    // All workers are gone: nothing else holds the store.
    assert_eq!(Arc::strong_count(&store), 1);
    // Dropped before anything was taken.
    let plan = (0..).map(|epoch| BatchPlan { epoch, first: 0, items: vec![0] });
    drop(Loader::new(store.clone(), plan, options).unwrap());
    assert_eq!(Arc::strong_count(&store), 1);
}

#[test]
fn empty_plans_and_empty_batches_end_well() {
    let folder = folder();
    let store = store(folder.path(), false, 0);
    assert!(all(&store, Vec::new(), LoaderOptions::evaluation(2)).is_empty());
    let plan = vec![BatchPlan { epoch: 0, first: 0, items: Vec::new() }; 3];
    let batches = all(&store, plan, LoaderOptions::evaluation(2));
    assert!(batches.len() == 3 && batches.iter().all(Batch::is_empty));
}

#[test]
fn an_image_that_disappears_or_changes_is_replaced_and_reported_once() {
    let folder = folder();
    let [gone, changed, touched] =
        [13, 14, 12].map(|item| folder.path().join(format!("class02/0{}.png", item - 10)));
    for threads in [1, 3] {
        std::fs::write(&gone, png(picture(12, 10, 13))).unwrap();
        std::fs::write(&changed, png(picture(12, 10, 14))).unwrap();
        // Nothing is kept in memory: images are read again.
        let store = store(folder.path(), false, 0);
        let batch = |epoch: u64| {
            let plan = vec![BatchPlan { epoch, first: 0, items: vec![12, 13, 14] }];
            all(&store, plan, LoaderOptions::training(3, threads)).remove(0)
        };
        let before = batch(0);
        assert_eq!((&before.items[..], before.broken.len()), (&[12, 13, 14][..], 0));
        std::fs::remove_file(&gone).unwrap();
        // The same length and a good image; and an image with the same content, written again.
        let other = png(picture(12, 10, 15));
        std::fs::write(&changed, &other).unwrap();
        std::fs::write(&touched, std::fs::read(&touched).unwrap()).unwrap();
        let after = batch(1);
        assert_eq!((after.items[0], after.replaced), (12, 2), "{:?}", after.broken);
        assert!(after.items[1..].iter().all(|item| [10, 11].contains(item)), "{:?}", after.items);
        let reasons: Vec<String> = after.broken.iter().map(ToString::to_string).collect();
        let [first, second] = &reasons[..] else { panic!("{reasons:?}") };
        assert!(first.contains("03.png"), "{first}");
        assert!(second.ends_with("04.png` has changed since it was read first"), "{second}");
        // They stay broken, also when they are there again.
        std::fs::write(&gone, png(picture(12, 10, 13))).unwrap();
        let again = batch(2);
        assert_eq!((again.broken.len(), again.replaced), (0, 2));
    }
}

#[test]
fn an_image_from_the_cache_on_disk_that_changes_is_broken_and_one_in_memory_stays() {
    let folder = folder();
    let cache = tempfile::tempdir().unwrap();
    let open = |limit| {
        let set = Arc::new(ImageSet::open(folder.path()).unwrap());
        let transform = Transform::evaluation(&ImageConfig::new(8, 3)).unwrap();
        ImageStore::new(set, transform, limit).with_disk_cache(cache.path()).unwrap()
    };
    let first = open(0).get(13).unwrap();
    let (store, in_memory) = (open(0), open(1 << 20));
    assert_eq!(store.get(13).unwrap(), first, "from the cache");
    assert_eq!(in_memory.get(13).unwrap(), first);
    let file = folder.path().join("class02/03.png");
    std::fs::write(&file, png(picture(12, 10, 77))).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    let error = store.get(13).unwrap_err().to_string();
    assert!(error.ends_with("03.png` has changed since it was read first"), "{error}");
    assert_eq!(in_memory.get(13).unwrap(), first);
    // A later run takes it as it is now.
    assert_ne!(open(0).get(13).unwrap(), first);
}
