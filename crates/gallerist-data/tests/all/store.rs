//! The store: images kept on disk, and large ones decoded at a reduced size.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::*;
use gallerist_data::*;

fn transform() -> Transform {
    Transform::evaluation(&ImageConfig::new(9, 3)).unwrap()
}

fn store(source: &Path, cache: &Path) -> ImageStore {
    let set = Arc::new(ImageSet::open(source).unwrap());
    ImageStore::new(set, transform(), 0).with_disk_cache(cache).unwrap()
}

fn images(store: &ImageStore) -> Vec<Image> {
    (0..store.set().len()).map(|i| (*store.get(i).unwrap()).clone()).collect()
}

/// The one file in a cache.
fn cached(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    files[0].clone()
}

/// A folder of images, an empty cache, and the images as they should come.
fn scene() -> (tempfile::TempDir, tempfile::TempDir, Vec<Image>) {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tree(source.path(), &class_folders(2, 3));
    let set = ImageSet::open(source.path()).unwrap();
    let wanted = (0..set.len()).map(|i| transform().fit(set.decode(i).unwrap())).collect();
    (source, cache, wanted)
}

/// Other pixels in a file of the same length, changed at the same time.
fn overwrite_unseen(path: &Path) {
    let meta = fs::metadata(path).unwrap();
    fs::write(path, vec![0; meta.len() as usize]).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(meta.modified().unwrap()).unwrap();
}

#[test]
fn images_come_from_disk_the_second_time_with_the_same_bits() {
    let (source, cache, wanted) = scene();
    assert_eq!(images(&store(source.path(), cache.path())), wanted);
    // Nothing but the cache can know these images any more.
    for i in 0..wanted.len() {
        let set = ImageSet::open(source.path()).unwrap();
        overwrite_unseen(&source.path().join(set.path(i)));
    }
    assert_eq!(images(&store(source.path(), cache.path())), wanted);
}

#[test]
fn an_image_whose_file_changes_is_decoded_again() {
    let (source, cache, mut wanted) = scene();
    images(&store(source.path(), cache.path()));
    let other = picture(12, 10, 250);
    let path = source.path().join("class01/01.png");
    fs::write(&path, png(other.clone())).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    wanted[4] = transform().fit(decode(&png(other), "x").unwrap());
    for _ in 0..2 {
        assert_eq!(images(&store(source.path(), cache.path())), wanted);
    }
    // A broken file is broken, whatever was there before.
    fs::write(&path, b"no image").unwrap();
    assert!(store(source.path(), cache.path()).get(4).is_err());
}

#[test]
fn an_image_that_changes_in_an_archive_is_decoded_again() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("set.zip");
    let mut files = class_folders(2, 3);
    write_zip(&path, &files);
    let before = images(&store(&path, cache.path()));
    files[2].1 = png(picture(12, 10, 77));
    write_zip(&path, &files);
    let after = images(&store(&path, cache.path()));
    let changed: Vec<usize> = (0..6).filter(|&i| before[i] != after[i]).collect();
    assert_eq!(changed, [2]);
    cached(cache.path());
}

#[test]
fn damage_in_the_cache_is_found_and_repaired() {
    let (source, cache, wanted) = scene();
    images(&store(source.path(), cache.path()));
    let file = cached(cache.path());
    let whole = fs::read(&file).unwrap();
    // Cut anywhere, as by a process that was killed.
    for length in (0..whole.len()).step_by(37) {
        fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(images(&store(source.path(), cache.path())), wanted);
        assert!(fs::read(&file).unwrap() == whole, "cut at {length}");
    }
    for at in (0..whole.len()).step_by(11) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&file, &damaged).unwrap();
        assert_eq!(images(&store(source.path(), cache.path())), wanted);
        assert!(fs::read(&file).unwrap() == whole, "a bit of byte {at}");
    }
}

#[test]
fn stores_may_share_a_cache_at_the_same_time() {
    let (source, cache, wanted) = scene();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(images(&store(source.path(), cache.path())), wanted);
                }
            });
        }
    });
}

#[test]
fn other_forms_and_other_images_have_files_of_their_own() {
    let (source, cache, _) = scene();
    let set = Arc::new(ImageSet::open(source.path()).unwrap());
    let config = ImageConfig::new(9, 3);
    let trim = TrimConfig::default();
    let forms = [
        config.clone(),
        ImageConfig::new(9, 1),
        ImageConfig::new(10, 3),
        ImageConfig { fit: Fit::Crop, ..config.clone() },
        ImageConfig { bgr: true, ..config.clone() },
        ImageConfig { trim: Some(trim), ..config.clone() },
        ImageConfig { trim: Some(TrimConfig { padding: 1, ..trim }), ..config.clone() },
    ];
    let files = |cache: &Path| fs::read_dir(cache).unwrap().count();
    for (i, form) in forms.iter().enumerate() {
        let transform = Transform::evaluation(form).unwrap();
        ImageStore::new(set.clone(), transform, 0).with_disk_cache(cache.path()).unwrap();
        assert_eq!(files(cache.path()), i + 1, "{form:?}");
    }
    // What is done after the stored form makes no difference.
    let later = ImageConfig { mean: vec![0.5], invert: true, flip_average: true, ..config };
    let transform = Transform::evaluation(&later).unwrap();
    ImageStore::new(set.clone(), transform.clone(), 0).with_disk_cache(cache.path()).unwrap();
    assert_eq!(files(cache.path()), forms.len());
    let fewer = Arc::new(set.subset(&[0, 2]));
    ImageStore::new(fewer, transform, 0).with_disk_cache(cache.path()).unwrap();
    assert_eq!(files(cache.path()), forms.len() + 1);
}

#[test]
fn a_cache_that_cannot_be_opened_is_an_error() {
    let (source, cache, _) = scene();
    let file = cache.path().join("file");
    fs::write(&file, "").unwrap();
    let set = Arc::new(ImageSet::open(source.path()).unwrap());
    let error = ImageStore::new(set, transform(), 0).with_disk_cache(&file).err().unwrap();
    assert!(error.to_string().starts_with("cannot use as a cache `"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_reported_and_costs_nothing_but_time() {
    let (source, cache, wanted) = scene();
    let full = store(source.path(), cache.path());
    let file = cached(cache.path());
    drop(full);
    fs::remove_file(&file).unwrap();
    // Reading gives zeros, writing that there is no space.
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    let full = store(source.path(), cache.path());
    assert!(full.disk_problem().is_none());
    assert_eq!(images(&full), wanted);
    let problem = full.disk_problem().unwrap().to_string();
    assert!(problem.starts_with("cannot write to the cache `"), "{problem}");
}

#[test]
fn a_large_jpeg_looks_the_same_decoded_at_a_reduced_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.jpg");
    // Waves of 30 pixels and longer.
    let wave = |x: u32, y: u32, k: f64| {
        (128.0 + 100.0 * (f64::from(x) / k).sin() * (f64::from(y) / 9.0).cos()) as u8
    };
    let large = image::RgbImage::from_fn(601, 403, |x, y| {
        image::Rgb([wave(x, y, 7.0), wave(y, x, 5.0), (x / 3) as u8])
    });
    // All samplings in one orientation, one sampling in all orientations.
    let samplings = [(0x11, 1), (0x21, 1), (0x12, 1)].into_iter().chain((1..=8).map(|turn| (0x22, turn)));
    for (sampling, orientation) in samplings {
        let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 92);
        let (across, down) = (sampling >> 4, sampling & 15);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::from_factors(across, down).unwrap());
        encoder.add_app_segment(1, exif).unwrap();
        encoder.encode(&large, 601, 403, jpeg_encoder::ColorType::Rgb).unwrap();
        fs::write(&path, bytes).unwrap();
        let set = Arc::new(ImageSet::open(&path).unwrap());
        // 403 / 2, 403 / 4 and 403 / 8 are just above twice these sides.
        for (side, limit) in [(100, 1.0), (50, 1.0), (25, 2.0)] {
            for fit in [Fit::Warp, Fit::Crop] {
                let config = ImageConfig { fit, ..ImageConfig::new(side, 3) };
                let transform = Transform::evaluation(&config).unwrap();
                let whole = transform.fit(set.decode(0).unwrap());
                let reduced = ImageStore::new(set.clone(), transform, 0).get(0).unwrap();
                let pairs = whole.pixels().iter().zip(reduced.pixels());
                let sum: f64 = pairs.map(|(a, b)| f64::from(a.abs_diff(*b))).sum();
                let mean = sum / whole.pixels().len() as f64;
                assert!(
                    mean > 0.0 && mean < limit,
                    "{mean} grey levels: {side}, {fit:?}, {sampling:x}, orientation {orientation}"
                );
            }
        }
    }
}
