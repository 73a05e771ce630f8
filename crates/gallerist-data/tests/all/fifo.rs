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
    let manifest = folder.path().join("manifest.csv");
    make(&manifest);
    let path = folder.path().to_owned();
    let error = in_time(move || ImageSet::open(path).unwrap_err().to_string());
    assert!(error.ends_with("manifest.csv`: it is a named pipe, not a file"), "{error}");
    // A folder that a manifest lists is no image.
    std::fs::create_dir(folder.path().join("2.png")).unwrap();
    write_tree(folder.path(), &[("m.csv".to_owned(), b"path,label\n1.png,a\n2.png,a\n".to_vec())]);
    let error = ImageSet::open(folder.path().join("m.csv")).unwrap_err().to_string();
    assert!(error.ends_with("line 3: there is no file `2.png`"), "{error}");
}

#[test]
fn a_pipe_a_socket_or_a_link_to_nothing_is_a_broken_image_of_a_folder_and_of_a_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let files = class_folders(2, 4);
    write_tree(folder.path(), &files);
    let at = |path: &str| folder.path().join(path);
    let broken = ["class00/01.png", "class00/02.png", "class01/03.png"];
    broken.iter().for_each(|path| std::fs::remove_file(at(path)).unwrap());
    make(&at(broken[0]));
    std::os::unix::fs::symlink("nothing", at(broken[1])).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at(broken[2])).unwrap();
    let rows: Vec<String> = files.iter().map(|(path, _)| format!("{path},{}\n", &path[..7])).collect();
    let list = format!("path,label\n{}", rows.concat());
    // A folder, a manifest next to the images, and a folder with a manifest.
    for (source, manifest) in [("", None), ("list.csv", Some("list.csv")), ("", Some("manifest.csv"))] {
        if let Some(manifest) = manifest {
            std::fs::write(at(manifest), &list).unwrap();
        }
        let path = at(source);
        let (count, errors) = in_time(move || {
            let set = ImageSet::open(path).unwrap();
            let errors = (0..set.len()).filter_map(|i| set.read(i).err()).map(|error| error.to_string());
            (set.len(), errors.collect::<Vec<_>>())
        });
        assert_eq!((count, errors.len()), (8, 3), "{manifest:?}: {errors:?}");
        assert!(broken.iter().zip(&errors).all(|(path, error)| error.contains(path)), "{errors:?}");
        assert!(errors[0].ends_with("it is a named pipe, not a file"), "{errors:?}");
        assert!(errors[1].to_lowercase().contains("no such file"), "{errors:?}");
    }
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
