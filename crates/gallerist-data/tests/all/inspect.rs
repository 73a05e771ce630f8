//! What `inspect` counts and finds.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use gallerist_data::{ImageSet, Inspection, inspect};

fn quiet(set: &ImageSet, test: Option<&ImageSet>) -> Inspection {
    inspect(set, test, 3, &|_| ())
}

#[test]
fn counts_broken_files_and_leaks_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let shared = picture(6, 5, 1);
    let mut files = vec![
        ("train/a/1.png", png(shared.clone())),
        ("train/a/2.png", png(picture(6, 5, 2))),
        ("train/a/3.png", png(picture(6, 5, 3))),
        ("train/b/1.png", png(picture(6, 5, 4))),
        ("test/b/1.png", png(shared.clone())),
        // The same pixels in another format.
        ("test/c/1.bmp", encode(shared, image::ImageFormat::Bmp)),
        ("test/c/2.png", png(picture(6, 5, 7))[..40].to_vec()),
        ("test/c/notes.txt", b"x".to_vec()),
    ];
    files.push(("test/c/3.png", png(picture(6, 5, 3))));
    write_tree(folder.path(), &files.into_iter().map(|(p, b)| (p.to_owned(), b)).collect::<Vec<_>>());
    let set = ImageSet::open(folder.path()).unwrap();
    let seen = AtomicUsize::new(0);
    let found = inspect(&set, None, 2, &|done| {
        seen.fetch_max(done, Ordering::Relaxed);
    });
    assert_eq!(seen.into_inner(), 8);
    assert_eq!(found, quiet(&set, None));
    assert_eq!((found.images, found.classes, found.skipped_files), (8, 3, 1));
    let splits: Vec<_> =
        found.splits.iter().map(|s| (s.name.as_str(), s.images, s.classes, s.images_per_class)).collect();
    assert_eq!(splits, [("test", 4, 2, [1, 3]), ("train", 4, 2, [1, 3])]);
    let bins: Vec<_> = found.histogram.iter().map(|b| (b.images, b.classes)).collect();
    assert_eq!(bins, [([2, 2], 1), ([3, 3], 2)]);
    assert_eq!(found.shared_classes, Some(1));
    assert_eq!(found.broken.len(), 1);
    assert!(found.broken[0].contains("test/c/2.png`: "), "{}", found.broken[0]);
    assert_eq!((found.duplicates, found.conflicts), (3, 2));
    let leaks: Vec<_> = found
        .leaks
        .iter()
        .map(|l| {
            let end =
                |path: &str| path.rsplitn(4, '/').take(3).map(str::to_owned).collect::<Vec<_>>().join("<");
            (end(&l.training), end(&l.other), l.split.as_str(), l.same_file)
        })
        .collect();
    let leak = |a: &str, b: &str, same| (a.to_owned(), b.to_owned(), "test", same);
    assert_eq!(
        leaks,
        [
            leak("1.png<a<train", "1.png<b<test", true),
            leak("1.png<a<train", "1.bmp<c<test", false),
            leak("3.png<a<train", "3.png<c<test", true),
        ]
    );
    assert!(!found.is_clean());
}

#[test]
fn a_test_set_of_its_own_is_held_against_the_training_set() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let files = class_folders(4, 2);
    write_tree(&a, &files[..4]);
    write_tree(&b, &files[4..]);
    let (a, b) = (ImageSet::open(a).unwrap(), ImageSet::open(b).unwrap());
    let found = quiet(&a, Some(&b));
    assert!(found.is_clean());
    assert_eq!((found.images, found.classes, found.shared_classes), (8, 4, Some(0)));
    assert_eq!(found.splits.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["test", "train"]);
    let found = quiet(&a, Some(&a));
    assert_eq!((found.leaks.len(), found.shared_classes), (4, Some(2)));
    // Alone it has no splits: its duplicates are no leaks.
    let alone = quiet(&a, None);
    assert!(alone.is_clean() && alone.splits.is_empty());
    assert_eq!(alone.shared_classes, None);
}

#[test]
fn copies_without_a_class_are_no_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (folder.path().join("train"), folder.path().join("new"));
    let files = class_folders(2, 2);
    write_tree(&train, &files);
    write_tree(&test, &[("1.png".to_owned(), files[0].1.clone()), ("2.png".to_owned(), files[2].1.clone())]);
    let (train, test) = (ImageSet::open(train).unwrap(), ImageSet::open(test).unwrap());
    let found = quiet(&train, Some(&test));
    assert_eq!((found.duplicates, found.conflicts, found.leaks.len()), (2, 0, 2));
    // The copies of another class are.
    let labelled = folder.path().join("labelled");
    write_tree(
        &labelled,
        &[
            ("class01/1.png".to_owned(), files[0].1.clone()),
            ("class02/1.png".to_owned(), png(picture(12, 10, 99))),
        ],
    );
    let found = quiet(&train, Some(&ImageSet::open(labelled).unwrap()));
    assert_eq!((found.duplicates, found.conflicts), (1, 1));

    let market = folder.path().join("market");
    let same = png(picture(64, 128, 1));
    let files = [
        ("bounding_box_train/0002_c1s1_000451_03.jpg", png(picture(64, 128, 2))),
        ("query/0001_c2s1_001976_00.jpg", png(picture(64, 128, 3))),
        ("bounding_box_test/-1_c3s1_000401_03.jpg", same.clone()),
        ("bounding_box_test/0001_c1s1_001051_00.jpg", same),
    ];
    write_tree(&market, &files.map(|(path, bytes)| (path.to_owned(), bytes)));
    let found = quiet(&ImageSet::open(market).unwrap(), None);
    assert_eq!((found.duplicates, found.conflicts), (1, 0));
}

#[test]
fn junk_and_distractors_are_no_classes() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "bounding_box_train/0002_c1s1_000451_03.jpg",
        "query/0001_c2s1_001976_00.jpg",
        "bounding_box_test/-1_c3s1_000401_03.jpg",
        "bounding_box_test/0000_c6s3_094992_01.jpg",
        "bounding_box_test/0000_c6s3_094992_02.jpg",
        "bounding_box_test/0001_c1s1_001051_00.jpg",
    ];
    let files = names.iter().zip(1..).map(|(name, i)| ((*name).to_owned(), png(picture(64, 128, i))));
    write_tree(folder.path(), &files.collect::<Vec<_>>());
    let found = quiet(&ImageSet::open(folder.path()).unwrap(), None);
    assert_eq!((found.images, found.classes, found.images_of_no_class), (6, 2, 3));
    let splits: Vec<_> =
        found.splits.iter().map(|s| (s.name.as_str(), s.images, s.classes, s.images_per_class)).collect();
    assert_eq!(splits, [("gallery", 4, 1, [1, 1]), ("query", 1, 1, [1, 1]), ("train", 1, 1, [1, 1])]);
    let bins: Vec<_> = found.histogram.iter().map(|b| (b.images, b.classes)).collect();
    assert_eq!(bins, [([1, 1], 1), ([2, 2], 1)]);
}
