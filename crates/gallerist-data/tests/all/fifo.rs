//! Named pipes and other things in the place of files: nothing waits for them.
#![cfg(unix)]

use std::sync::Arc;

use crate::common::*;
use gallerist_data::{
    AugmentConfig, BatchPlan, ImageConfig, ImageSet, ImageStore, Loader, LoaderOptions, Transform,
};
use gallerist_testkit::pipe::{in_time, make};

#[test]
fn a_named_pipe_or_a_folder_is_no_manifest_archive_or_image() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["list.csv", "images.zip", "1.png"] {
        let path = folder.path().join(name);
        make(&path);
        let error = in_time(move || ImageSet::open(path).unwrap_err().to_string());
        assert!(error.ends_with("it is a named pipe, not a file"), "{name}: {error}");
    }
    write_tree(folder.path(), &[("m.csv".to_owned(), b"path,label\n1.png,a\n".to_vec())]);
    let path = folder.path().join("m.csv");
    let error = in_time(move || ImageSet::open(path).unwrap_err().to_string());
    assert!(error.ends_with("line 2: there is no file `1.png`"), "{error}");
}

#[test]
fn a_named_pipe_that_takes_the_place_of_an_image_is_one_broken_image() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(2, 4));
    let set = Arc::new(ImageSet::open(folder.path()).unwrap());
    for broken in ["class00/01.png", "class01/02.png"] {
        let path = folder.path().join(broken);
        std::fs::remove_file(&path).unwrap();
        if broken.starts_with("class00") {
            make(&path);
        } else {
            std::fs::create_dir(&path).unwrap();
        }
    }
    let batches = in_time(move || {
        let transform = Transform::training(&ImageConfig::new(8, 3), &AugmentConfig::default()).unwrap();
        let store = Arc::new(ImageStore::new(set, transform, 1 << 20));
        let plan = BatchPlan::in_order(8, 8).chain(BatchPlan::in_order(8, 8));
        Loader::new(store, plan, LoaderOptions::training(1, 2))
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap()
    });
    let broken: Vec<String> = batches.iter().flat_map(|b| &b.broken).map(ToString::to_string).collect();
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(broken[0].ends_with("class00/01.png`: it is a named pipe, not a file"), "{broken:?}");
    assert!(broken[1].ends_with("class01/02.png`: it is a folder, not a file"), "{broken:?}");
    assert!(batches.iter().all(|batch| batch.len() == 8 && batch.replaced == 2));
}
