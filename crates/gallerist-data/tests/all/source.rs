//! Folders, archives, manifests and single files.

use std::fs;

use crate::common::*;
use gallerist_data::{Error, ImageSet, OpenOptions, Region, Size};

fn paths(set: &ImageSet) -> Vec<&str> {
    (0..set.len()).map(|i| set.path(i)).collect()
}

fn open_error(path: impl AsRef<std::path::Path>) -> Error {
    ImageSet::open(path).unwrap_err()
}

fn text(path: &str) -> (String, Vec<u8>) {
    (path.to_owned(), b"text".to_vec())
}

#[test]
fn class_folders_are_classes_and_other_files_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = class_folders(3, 2);
    files.extend([text("readme.txt"), text("class00/notes.md"), text(".hidden.png")]);
    files.extend([text("__MACOSX/class00/00.png"), text("class01/.DS_Store")]);
    write_tree(folder.path(), &files);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.len(), 6);
    assert_eq!(set.skipped(), 2);
    assert_eq!(set.labels().unwrap(), [0, 0, 1, 1, 2, 2]);
    assert_eq!(set.class_names(), ["class00", "class01", "class02"]);
    assert_eq!(set.path(3), "class01/01.png");
    assert_eq!(set.read(3).unwrap(), files[3].1);
    let image = set.decode(3).unwrap();
    assert_eq!((image.width(), image.height(), image.channels()), (12, 10, 3));
}

#[test]
fn pictures_of_other_formats_are_named_and_other_names_of_jpeg_are_images() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = class_folders(2, 1);
    files.extend(["class00/a.jfif", "class01/b.JPE"].map(|path| (path.to_owned(), jpeg(8, 8, 90))));
    files.extend([text("class00/1.HEIC"), text("class00/2.heic"), text("class01/3.avif"), text("notes.txt")]);
    write_tree(folder.path(), &files);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(paths(&set), ["class00/00.png", "class00/a.jfif", "class01/00.png", "class01/b.JPE"]);
    assert!((0..4).all(|i| set.decode(i).is_ok()));
    assert_eq!(set.skipped(), 4);
    let name = folder.path().display();
    let note = format!(
        "`{name}` has 3 pictures of formats that are not read (2 .heic, 1 .avif); they are left out: convert them to JPEG or \
         PNG"
    );
    assert_eq!(set.notes(), [note]);
    let only = tempfile::tempdir().unwrap();
    write_tree(only.path(), &[text("class00/1.heic")]);
    let error = open_error(only.path());
    assert!(
        error.to_string().ends_with("; it has 1 picture of formats that are not read (1 .heic)"),
        "{error}"
    );
    assert!(error.hint().unwrap().starts_with("convert them to JPEG or PNG; images end in .png"));
}

#[test]
fn images_that_the_manifest_of_a_folder_does_not_list_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(2, 3));
    write_tree(folder.path(), &[text("notes.txt"), text("class00/.hidden.png")]);
    let list = folder.path().join("manifest.csv");
    fs::write(&list, "path,label\nclass00/00.png,a\n./class01/02.png,b\n").unwrap();
    let set = ImageSet::open(folder.path()).unwrap();
    let note = format!(
        "`{}` lists 2 images; 4 images next to it are no part of the set, `class00/01.png` for one",
        list.display()
    );
    assert_eq!((set.len(), set.skipped(), set.notes()), (2, 1, &[note][..]));
    // Its folder is not listed where a manifest is given.
    assert_eq!(ImageSet::open(&list).unwrap().notes().len(), 0);
}

#[test]
fn nested_classes_lose_the_folders_that_all_share() {
    let folder = tempfile::tempdir().unwrap();
    let image = png(picture(2, 2, 0));
    let files: Vec<_> =
        ["images/all/Greek/c1/a.png", "images/all/Greek/c2/a.png", "images/all/Latin/c1/a.png"]
            .map(|p| (p.to_owned(), image.clone()))
            .into();
    write_tree(folder.path(), &files);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.class_names(), ["Greek/c1", "Greek/c2", "Latin/c1"]);
    assert_eq!(set.path(0), "images/all/Greek/c1/a.png");
}

#[test]
fn folders_that_share_a_part_of_a_name_share_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let image = png(picture(2, 2, 0));
    let files: Vec<_> = ["top/ab1/x.png", "top/ab2/x.png"].map(|p| (p.to_owned(), image.clone())).into();
    write_tree(folder.path(), &files);
    assert_eq!(ImageSet::open(folder.path()).unwrap().class_names(), ["ab1", "ab2"]);
}

#[test]
fn a_flat_folder_and_a_single_file_have_no_labels() {
    let folder = tempfile::tempdir().unwrap();
    let image = png(picture(2, 2, 0));
    let files: Vec<_> = ["b.png", "a.PNG", "c.jpg"].map(|p| (p.to_owned(), image.clone())).into();
    write_tree(folder.path(), &files);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(paths(&set), ["a.PNG", "b.png", "c.jpg"]);
    assert_eq!(set.labels(), None);
    // A PNG called .jpg: the content counts.
    assert!(set.decode(2).is_ok());
    let single = ImageSet::open(folder.path().join("b.png")).unwrap();
    assert_eq!((single.len(), single.path(0)), (1, "b.png"));
    assert!(single.decode(0).is_ok());
    let error = set.split_classes(0.5, 1).unwrap_err();
    assert!(error.to_string().starts_with("a split by classes needs class labels, and `"), "{error}");
}

#[test]
fn a_single_class_folder_is_a_class_and_a_folder_of_images_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let image = png(picture(2, 2, 0));
    let open = |name: &str, files: &[&str]| {
        let files: Vec<_> = files.iter().map(|path| (format!("{name}/{path}"), image.clone())).collect();
        write_tree(folder.path(), &files);
        ImageSet::open(folder.path().join(name)).unwrap()
    };
    let shop = open("shop", &["shoes/1.png", "shoes/2.png"]);
    assert_eq!((shop.class_names(), shop.labels()), (&["shoes".to_owned()][..], Some(&[0, 0][..])));
    let notes = shop.notes().join(" ");
    assert!(
        notes.contains("2 images of the class `shoes`; to open them without a class, give the folder itself"),
        "{notes}"
    );
    assert_eq!(open("shop/shoes", &[]).labels(), None);
    assert_eq!(open("deep", &["2024/new/hats/1.png"]).class_names(), ["hats"]);
    // Named like a split, like what is in it, or like the set.
    for (set, file) in
        [("a", "train/1.png"), ("b", "Images/1.png"), ("c", "c/1.png"), ("d", "x/Photos/1.png")]
    {
        let set = open(set, &[file]);
        assert_eq!((set.labels(), set.notes()), (None, &[][..]), "{file}");
    }
    // It cannot be split by classes.
    assert!(shop.split_classes(0.5, 1).unwrap_err().to_string().contains("there is 1"));
}

#[test]
fn a_region_of_an_image_is_decoded_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pixels = picture(8, 4, 1);
    write_tree(
        folder.path(),
        &[("a.png".to_owned(), png(pixels.clone())), ("b.png".to_owned(), png(picture(2, 2, 0)))],
    );
    let whole = ImageSet::open(folder.path()).unwrap();
    let of_pixels: Region = "2px,1px,4px,2px".parse().unwrap();
    let parts = whole.clone().with_regions(&[of_pixels, "0,0.5,1,0.5".parse().unwrap()]);
    assert_eq!(parts.decode(0).unwrap(), whole.decode(0).unwrap().crop(2, 1, Size { height: 2, width: 4 }));
    assert_eq!((parts.decode(1).unwrap().width(), parts.decode(1).unwrap().height()), (2, 1));
    assert!(parts.is_cropped(0) && !whole.is_cropped(0));
    // The second image is smaller than the region.
    let small = whole.with_regions(&[of_pixels, of_pixels]);
    let error = small.decode(1).unwrap_err().to_string();
    assert!(error.contains("b.png") && error.contains("2 pixels wide and 2 high"), "{error}");
}

#[test]
fn images_next_to_class_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = class_folders(2, 2);
    files.push(("stray.png".to_owned(), png(picture(2, 2, 0))));
    write_tree(folder.path(), &files);
    let error = open_error(folder.path());
    let text = error.to_string();
    assert!(text.ends_with("1 of 5 images are next to the class folders, `stray.png` for one"), "{text}");
    assert!(error.hint().is_some());
}

#[test]
fn folders_called_train_and_test_above_the_classes_are_splits() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = ["train/a/1.png", "train/b/2.png", "test/a/3.png", "test/c/d/4.png"]
        .map(|p| (format!("top/{p}"), png(picture(2, 2, 0))))
        .into();
    write_tree(folder.path(), &files);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.class_names(), ["a", "b", "c/d"]);
    assert_eq!((0..4).map(|i| set.split(i).unwrap()).collect::<Vec<_>>(), ["test", "test", "train", "train"]);
    let options = OpenOptions { split: Some("train".to_owned()), ..OpenOptions::default() };
    let train = ImageSet::open_with(&[folder.path()], &options).unwrap();
    assert_eq!(paths(&train), ["top/train/a/1.png", "top/train/b/2.png"]);
    // A folder of another name next to them is left out.
    write_tree(folder.path(), &[("top/more/a/5.png".to_owned(), png(picture(2, 2, 0)))]);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.class_names(), ["a", "b", "c/d"]);
    assert_eq!((set.len(), set.left_out()), (4, &[("top/more".to_owned(), 1)][..]));
}

#[test]
fn nothing_there_and_no_images_are_different_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    let text = open_error(&missing).to_string();
    assert!(text.starts_with("cannot open `") && text.contains("nowhere"), "{text}");
    fs::write(folder.path().join("a.txt"), "x").unwrap();
    let error = open_error(folder.path());
    assert!(error.to_string().ends_with("; 1 other file was skipped"), "{error}");
    let corrections = folder.path().join("fixes.csv");
    write_tree(&folder.path().join("photos"), &class_folders(1, 2));
    fs::write(&corrections, "image,label,action\n,class00,drop\n").unwrap();
    let options = OpenOptions { relabel: vec![corrections], ..OpenOptions::default() };
    let error = ImageSet::open_with(&[folder.path().join("photos")], &options).unwrap_err();
    assert!(
        error.to_string().ends_with("photos`; the corrections of labels leave every image out"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn links_are_followed_but_not_in_circles() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(2, 1));
    let elsewhere = tempfile::tempdir().unwrap();
    write_tree(elsewhere.path(), &[("x.png".to_owned(), png(picture(2, 2, 0)))]);
    std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("linked")).unwrap();
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.class_names(), ["class00", "class01", "linked"]);
    std::os::unix::fs::symlink(folder.path(), folder.path().join("class01/back")).unwrap();
    let text = open_error(folder.path()).to_string();
    assert!(text.contains("is a link to a folder above it"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_a_broken_image_or_another_file_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(2, 1));
    for link in ["class01/gone.png", "README.txt"] {
        std::os::unix::fs::symlink("nowhere", folder.path().join(link)).unwrap();
    }
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(paths(&set), ["class00/00.png", "class01/00.png", "class01/gone.png"]);
    let error = set.read(2).unwrap_err();
    assert!(error.to_string().contains("gone.png"), "{error}");
    assert_eq!(error.hint(), None);
    let note = format!("1 link of `{}` leads nowhere and is left out: `README.txt`", folder.path().display());
    assert_eq!((set.notes(), set.skipped()), (&[note][..], 1));
}

#[test]
fn a_folder_and_a_zip_of_it_are_the_same_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = class_folders(4, 3);
    files.extend([text("readme.txt"), text("__MACOSX/class00/._00.png")]);
    write_tree(&folder.path().join("data"), &files);
    files.reverse();
    write_zip(&folder.path().join("data.zip"), &files);
    let a = ImageSet::open(folder.path().join("data")).unwrap();
    let b = ImageSet::open(folder.path().join("data.zip")).unwrap();
    assert_eq!(paths(&a), paths(&b));
    assert_eq!(a.labels(), b.labels());
    assert_eq!(a.class_names(), b.class_names());
    assert_eq!((a.skipped(), b.skipped()), (1, 1));
    for i in 0..a.len() {
        assert_eq!(a.read(i).unwrap(), b.read(i).unwrap());
        assert_eq!(a.decode(i).unwrap(), b.decode(i).unwrap());
    }
}

#[test]
fn an_archive_is_read_from_several_threads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = class_folders(8, 8);
    let path = folder.path().join("x.zip");
    write_zip(&path, &files);
    let set = ImageSet::open(&path).unwrap();
    std::thread::scope(|scope| {
        for start in 0..4 {
            let (set, files) = (&set, &files);
            scope.spawn(move || {
                for i in 0..files.len() {
                    let i = (i + start * 16) % files.len();
                    assert_eq!(set.read(i).unwrap(), files[i].1);
                }
            });
        }
    });
}

#[test]
fn manifests_give_labels_cameras_and_splits() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = class_folders(2, 2);
    let manifest = "path,label,camera,split\n\
                    class01/01.png,x|y,c2,test\n\
                    class00/00.png,b,c1,train\n\
                    class00/01.png,a,c1,train\n";
    files.push(("list.csv".to_owned(), manifest.into()));
    write_tree(folder.path(), &files);
    let path = folder.path().join("list.csv");
    let set = ImageSet::open(&path).unwrap();
    assert_eq!(paths(&set), ["class01/01.png", "class00/00.png", "class00/01.png"]);
    assert_eq!(set.class_names(), ["a", "b", "x|y"]);
    assert_eq!(set.labels().unwrap(), [2, 1, 0]);
    assert_eq!(set.cameras().unwrap(), ["c2", "c1", "c1"]);
    assert_eq!(set.read(0).unwrap(), files[3].1);

    let split = |name: &str| OpenOptions { split: Some(name.to_owned()), ..OpenOptions::default() };
    let train = ImageSet::open_with(&[&path], &split("train")).unwrap();
    assert_eq!(paths(&train), ["class00/00.png", "class00/01.png"]);
    let error = ImageSet::open_with(&[&path], &split("val")).unwrap_err().to_string();
    assert!(error.ends_with("no image has the split `val`; there are `test` (1), `train` (2)"), "{error}");
    let error = ImageSet::open_with(&[folder.path()], &split("val")).unwrap_err().to_string();
    assert!(error.ends_with("wanted the split `val`, found no splits"), "{error}");

    // Called manifest.csv it speaks for its folder and for an archive of it.
    fs::rename(&path, folder.path().join("manifest.csv")).unwrap();
    files.last_mut().unwrap().0 = "manifest.csv".to_owned();
    let wrapped: Vec<_> = files.iter().map(|(p, b)| (format!("top/{p}"), b.clone())).collect();
    let (plain, inner) = (folder.path().join("plain.zip"), folder.path().join("inner.zip"));
    write_zip(&plain, &files);
    write_zip(&inner, &wrapped);
    for source in [folder.path(), &plain, &inner] {
        let other = ImageSet::open(source).unwrap();
        assert_eq!(other.labels(), set.labels());
        assert_eq!(other.read(0).unwrap(), files[3].1);
    }
}

#[test]
fn a_manifest_that_names_a_missing_or_repeated_file_is_refused_by_line() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(1, 2));
    let path = folder.path().join("m.csv");
    let error = |rows: &str| {
        fs::write(&path, format!("path,label\n{rows}")).unwrap();
        ImageSet::open(&path).unwrap_err().to_string()
    };
    let missing = error("class00/00.png,a\nclass00/09.png,a\n");
    assert!(missing.ends_with("line 3: there is no file `class00/09.png`"), "{missing}");
    let several = error("class00/00.png,a\n1.png,a\n2.png,a\n3.png,b\n4.png,b\n5.png,b\n");
    let listed =
        "line 3: there is no file `1.png`; 4 further files are missing: `2.png`, `3.png`, `4.png`, …";
    assert!(several.ends_with(listed), "{several}");
    let address = error("class00/00.png,a\ns3://bucket/00.png,a\n");
    assert!(address.contains("line 3: `s3://bucket/00.png` is an address, which is not read"), "{address}");
    let twice = error("class00/00.png,a\nclass00/01.png,a\nclass00/00.png,b\n");
    assert!(twice.ends_with("line 4: `class00/00.png` is listed already, on line 2"), "{twice}");
    let none = error("");
    assert!(none.ends_with("m.csv`; the manifest has a header and no rows"), "{none}");
}

#[test]
fn several_sources_are_one_set() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(&folder.path().join("a"), &class_folders(2, 2));
    write_zip(&folder.path().join("b.zip"), &class_folders(3, 1));
    write_tree(&folder.path().join("flat"), &[("x.png".to_owned(), png(picture(2, 2, 0)))]);
    let both = [folder.path().join("a"), folder.path().join("b.zip")];
    let set = ImageSet::open_with(&both, &OpenOptions::default()).unwrap();
    assert_eq!(set.labels().unwrap(), [0, 0, 1, 1, 0, 1, 2]);
    assert!(set.location(0).ends_with("a/class00/00.png"));
    assert!(set.location(4).ends_with("b.zip/class00/00.png"));
    let mixed = [folder.path().join("a"), folder.path().join("flat")];
    let error = ImageSet::open_with(&mixed, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("4 of 5 images have labels, the others have none"), "{error}");
}

#[cfg(unix)]
#[test]
fn an_image_that_two_sources_have_is_refused_whatever_their_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write_tree(&root.join("photos"), &class_folders(2, 2));
    write_tree(&root.join("others"), &class_folders(2, 2));
    write_zip(&root.join("photos.zip"), &class_folders(2, 2));
    std::os::unix::fs::symlink(root.join("photos"), root.join("linked")).unwrap();
    fs::write(root.join("list.csv"), "path,label\nphotos/class01/00.png,a\n").unwrap();
    let open = |paths: &[&str], allow_repeats| {
        let paths: Vec<_> = paths.iter().map(|path| root.join(path)).collect();
        ImageSet::open_with(&paths, &OpenOptions { allow_repeats, ..OpenOptions::default() })
    };
    for (second, count) in [
        ("photos", "4 of its 4 images are"),
        ("others/../photos/", "4 of its 4 images are"),
        ("linked", "4 of its 4 images are"),
        ("photos/class00", "2 of its 2 images are"),
        // In the folder and through the link to it.
        (".", "8 of its 12 images are"),
        ("list.csv", "1 of its 1 image is"),
    ] {
        let error = open(&["photos", second], false).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{count} also in `")), "{second}: {text}");
        assert!(error.hint().unwrap().starts_with("give every folder, archive and list once"), "{second}");
    }
    assert!(open(&["photos.zip", "photos.zip"], false).is_err());
    // The same files in other places are other images.
    assert_eq!(open(&["photos", "photos.zip", "others"], false).unwrap().len(), 12);
    assert_eq!(open(&["photos", "photos"], true).unwrap().len(), 8);
}

#[test]
fn limits_keep_the_first_classes_and_images() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(5, 3));
    let open = |max_classes, max_images| {
        let options = OpenOptions { max_classes, max_images, ..OpenOptions::default() };
        ImageSet::open_with(&[folder.path()], &options)
    };
    assert_eq!(open(Some(2), None).unwrap().labels().unwrap(), [0, 0, 0, 1, 1, 1]);
    assert_eq!(open(Some(2), Some(4)).unwrap().labels().unwrap(), [0, 0, 0, 1]);
    assert_eq!(open(None, Some(99)).unwrap().len(), 15);
    let error = open(Some(0), None).unwrap_err();
    assert_eq!(error.to_string(), "`max_classes` must be at least 1, not 0");
}

#[test]
fn a_split_by_classes_shares_no_class_and_loses_no_image() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(10, 2));
    let set = ImageSet::open(folder.path()).unwrap();
    for (fraction, expected) in [(0.01, 1), (0.3, 3), (0.99, 9)] {
        let (rest, held) = set.split_classes(fraction, 7).unwrap();
        assert_eq!(held.class_names().len(), expected);
        assert_eq!(rest.class_names().len(), 10 - expected);
        assert!(held.class_names().iter().all(|c| !rest.class_names().contains(c)));
        assert_eq!(rest.len() + held.len(), 20);
        assert_eq!(*held.labels().unwrap().iter().max().unwrap() as usize, expected - 1);
        let again = set.split_classes(fraction, 7).unwrap();
        assert_eq!(again.1.class_names(), held.class_names());
    }
    let choices: std::collections::HashSet<_> =
        (0..20).map(|s| set.split_classes(0.3, s).unwrap().1.class_names().to_vec()).collect();
    assert!(choices.len() > 10, "20 seeds gave {} choices", choices.len());
    assert!(set.split_classes(0.0, 1).is_err());
    assert!(set.split_classes(f64::NAN, 1).is_err());
}

#[test]
fn class_folds_share_no_class_and_together_have_every_image_once() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(10, 2));
    let set = ImageSet::open(folder.path()).unwrap();
    for folds in [2, 4, 10] {
        let mut all = Vec::new();
        for fold in 0..folds {
            let (rest, held) = set.class_fold(fold, folds, 7).unwrap();
            let classes = held.class_names().len();
            assert!(
                (10 / folds..=10usize.div_ceil(folds)).contains(&classes),
                "{classes} in {fold} of {folds}"
            );
            assert!(held.class_names().iter().all(|class| !rest.class_names().contains(class)));
            assert_eq!(rest.len() + held.len(), 20);
            assert_eq!(set.class_fold(fold, folds, 7).unwrap().1.class_names(), held.class_names());
            all.extend(paths(&held).into_iter().map(str::to_owned));
        }
        all.sort();
        assert_eq!(all, paths(&set), "{folds} folds");
    }
    assert_ne!(
        set.class_fold(0, 2, 7).unwrap().1.class_names(),
        set.class_fold(0, 2, 8).unwrap().1.class_names()
    );
    let message = |fold, folds| set.class_fold(fold, folds, 7).unwrap_err().to_string();
    assert!(
        message(0, 11).ends_with("a split by classes needs 11 classes, and there are 10"),
        "{}",
        message(0, 11)
    );
    assert_eq!(message(4, 4), "`fold` must be one of 2 or more folds, not fold 5 of 4");
    assert_eq!(message(0, 1), "`fold` must be one of 2 or more folds, not fold 1 of 1");
}

#[test]
fn rotation_classes_turn_images_and_count_as_classes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(2, 2));
    let set = ImageSet::open(folder.path()).unwrap();
    let turned = set.with_rotation_classes().unwrap();
    assert_eq!(turned.len(), 16);
    assert_eq!(turned.class_names().len(), 8);
    assert_eq!(turned.class_names()[3], "class01@90");
    assert_eq!(turned.labels().unwrap()[4 * 3 + 2], 7);
    let upright = set.decode(1).unwrap();
    for turn in 0..4 {
        let i = turn * 4 + 1;
        assert_eq!(turned.path(i), set.path(1));
        assert_eq!(usize::from(turned.quarter_turns(i)), turn);
        assert_eq!(turned.decode(i).unwrap(), upright.rotate(turn as u8));
    }
    assert!(turned.with_rotation_classes().is_err());
    assert!(turned.split_classes(0.5, 1).is_err());
}

#[test]
fn archives_in_archives_and_paths_that_lead_outside_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zip");
    let image = png(picture(2, 2, 0));
    write_zip(&path, &[("a/1.png".to_owned(), image.clone()), text("more.ZIP")]);
    let error = open_error(&path);
    assert!(error.to_string().ends_with("it holds another archive, `more.ZIP`"), "{error}");
    assert!(error.hint().unwrap().starts_with("unpack it"));
    write_zip(&path, &[("../1.png".to_owned(), image)]);
    let error = open_error(&path).to_string();
    assert!(error.ends_with("entry `../1.png` has a path that leads outside"), "{error}");
}

#[test]
fn a_cut_or_damaged_archive_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zip");
    write_zip(&path, &class_folders(2, 2));
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = open_error(&path).to_string();
        assert!(error.contains("not a whole zip archive"), "{length}: {error}");
    }
    // A flipped bit in the data is found by the CRC-32 when the entry is read.
    let mut damaged = whole.clone();
    damaged[80] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let set = ImageSet::open(&path).unwrap();
    let error = set.read(0).unwrap_err().to_string();
    assert!(error.contains("x.zip/class00/00.png`: the archive is damaged here"), "{error}");
    assert!(set.read(1).is_ok());
}

#[test]
fn an_entry_that_promises_too_much_is_refused_before_memory_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zip");
    write_zip(&path, &[("a.png".to_owned(), png(picture(9, 9, 0)))]);
    let whole = fs::read(&path).unwrap();
    // The uncompressed size is at byte 24 of the entry's central header.
    let header = whole.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    for (size, text) in [
        (300u32 << 20, "it unpacks to 300 MiB, and a file may have 256 MiB"),
        (200 << 20, "more than deflate can give"),
        (1, "larger than its declared uncompressed size"),
    ] {
        let mut lying = whole.clone();
        lying[header + 24..header + 28].copy_from_slice(&size.to_le_bytes());
        fs::write(&path, &lying).unwrap();
        let error = ImageSet::open(&path).unwrap().read(0).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    // The packed size promises more, too: nothing is allocated for it.
    let mut lying = whole.clone();
    lying[header + 20..header + 24].copy_from_slice(&(200u32 << 20).to_le_bytes());
    lying[header + 24..header + 28].copy_from_slice(&(200u32 << 20).to_le_bytes());
    fs::write(&path, &lying).unwrap();
    let error = ImageSet::open(&path).unwrap().read(0).unwrap_err().to_string();
    let wanted = format!("the archive promises 209715200 packed bytes, and has {} in all", whole.len());
    assert!(error.contains(&wanted), "{error}");
}

#[test]
fn the_real_omniglot_archives_have_their_classes() {
    for (name, classes) in [("omniglot_images_background.zip", 964), ("omniglot_images_evaluation.zip", 659)]
    {
        let path = omniglot(name);
        if !path.exists() {
            eprintln!("skipped: {} is not there", path.display());
            continue;
        }
        let set = ImageSet::open(path).unwrap();
        assert_eq!(set.len(), classes * 20);
        assert_eq!(set.class_names().len(), classes);
        let mut sizes = vec![0; classes];
        for &label in set.labels().unwrap() {
            sizes[label as usize] += 1;
        }
        assert!(sizes.iter().all(|&n| n == 20));
        let image = set.decode(set.len() - 1).unwrap();
        assert_eq!((image.width(), image.height(), image.channels()), (105, 105, 1));
        assert!(set.class_names()[0].ends_with("/character01"), "{}", set.class_names()[0]);
    }
}

#[test]
fn labels_in_sets_are_shared_kept_by_subsets_and_split_by_groups() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &class_folders(3, 2));
    let path = folder.path().join("list.csv");
    let write = |labels: [&str; 6]| {
        let rows: Vec<String> =
            (0..6).map(|i| format!("class{:02}/{:02}.png,{}\n", i / 2, i % 2, labels[i])).collect();
        fs::write(&path, format!("path,label\n{}", rows.concat())).unwrap();
        ImageSet::open(&path)
    };
    let set = write(["red|dress", "dress|red", "red", "shoe", "shoe|blue", "hat"]).unwrap();
    assert_eq!(set.label_names(), ["blue", "dress", "hat", "red", "shoe"]);
    assert_eq!(set.label_sets().unwrap(), [vec![1, 3], vec![1, 3], vec![3], vec![4], vec![0, 4], vec![2]]);
    assert_eq!(set.class_names(), ["blue|shoe", "dress|red", "hat", "red", "shoe"]);
    assert_eq!(set.labels().unwrap(), [1, 1, 3, 4, 0, 2]);

    let part = set.subset(&[5, 0]);
    assert_eq!(part.label_names(), ["dress", "hat", "red"]);
    assert_eq!(part.label_sets().unwrap(), [vec![1], vec![0, 2]]);

    let turned = set.with_rotation_classes().unwrap();
    assert_eq!(turned.label_names()[5], "blue@90");
    assert_eq!(turned.label_sets().unwrap()[6 + 4], [5, 9]);

    for seed in 0..10 {
        let (rest, held) = set.split_classes(0.3, seed).unwrap();
        assert_eq!(rest.len() + held.len(), 6);
        assert!(held.label_names().iter().all(|l| !rest.label_names().contains(l)), "{held:?}");
    }
    let linked = write(["a|b", "b|c", "c", "a", "b", "c"]).unwrap();
    let error = linked.split_classes(0.5, 1).unwrap_err().to_string();
    assert!(error.ends_with("all are linked by labels they share"), "{error}");

    assert!(write(["a", "b", "a", "b", "a", "b"]).unwrap().label_sets().is_none());
    let error = write(["a", "b|", "a", "b", "a", "b"]).unwrap_err().to_string();
    assert!(error.ends_with("line 3: the label `b|` has an empty part"), "{error}");
}

#[test]
fn corrections_change_labels_and_leave_images_out_before_a_split_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["train/Bird/a/1.png", "train/Bird/b/1.png", "test/Bird/c/1.png", "test/Bird/c/2.png"];
    let photos = folder.path().join("photos");
    write_tree(&photos, &files.map(|path| (path.to_owned(), Vec::new())));
    let csv = folder.path().join("issues.csv");
    let open = |text: &str, split: Option<&str>| {
        fs::write(&csv, text).unwrap();
        let options = OpenOptions {
            relabel: vec![csv.clone()],
            split: split.map(str::to_owned),
            label_from: gallerist_data::LabelFrom::Leaf,
            ..OpenOptions::default()
        };
        ImageSet::open_with(&[&photos], &options)
    };
    // A new label is the name of a class, and no path of folders.
    let text = "image,label,action,new_label\n\
                train/Bird/a/1.png,a,relabel,b\ntest/Bird/c/1.png,c,drop,\n,c,relabel,and/or\n";
    let all = open(text, None).unwrap();
    assert_eq!((all.len(), all.class_names()), (3, &["and/or".to_owned(), "b".to_owned()][..]));
    assert!(all.notes().iter().all(|note| !note.contains("joins")), "{:?}", all.notes());
    let note = "corrections: 2 images relabelled, 1 image left out";
    assert!(all.notes().iter().any(|n| n == note), "{:?}", all.notes());
    // Rows for another split of the source are no fault.
    let train = open(text, Some("train")).unwrap();
    assert_eq!((train.len(), train.class_names().len()), (2, 1));
    let message = open("image,action\ntrain/Bird/a/9.png,drop\n", None).unwrap_err();
    assert!(message.to_string().contains("has no image `train/Bird/a/9.png`"), "{message}");
    assert!(message.hint().unwrap().contains("another set"), "{message}");
    let gone = OpenOptions { relabel: vec![folder.path().join("gone.csv")], ..OpenOptions::default() };
    assert!(ImageSet::open_with(&[&photos], &gone).unwrap_err().to_string().contains("gone.csv"));
}

#[test]
fn a_path_of_a_manifest_with_a_space_before_it_is_the_file_of_that_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.png", " a.png"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let list = folder.path().join("list.csv");
    let paths = |text: &str| {
        std::fs::write(&list, text).unwrap();
        let set = ImageSet::open(&list).unwrap();
        (0..set.len()).map(|i| set.path(i).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(paths("path,label\n\" a.png\",x\na.png,y\n"), [" a.png", "a.png"]);
    // There is no file of that name.
    assert_eq!(paths("label, path\nx,  a.png \n"), ["a.png"]);
}
