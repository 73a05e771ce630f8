//! Folders that are splits, what lies next to them, and labels that are the same whatever the source.

use std::fs;
use std::path::Path;

use crate::common::*;
use gallerist_data::{Error, ImageSet, LabelFrom, OpenOptions, inspect};

/// Empty files: nothing here is decoded.
fn files(paths: &[&str]) -> Vec<(String, Vec<u8>)> {
    paths.iter().map(|path| (path.to_string(), Vec::new())).collect()
}

fn opened(paths: &[&str]) -> Result<ImageSet, Error> {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &files(paths));
    ImageSet::open(folder.path())
}

fn split(name: &str) -> OpenOptions {
    OpenOptions { split: Some(name.to_owned()), ..OpenOptions::default() }
}

/// Path, class and split of each image.
fn rows(set: &ImageSet) -> Vec<(String, String, Option<String>)> {
    let class = |i: usize| set.class_names()[set.labels().unwrap()[i] as usize].clone();
    (0..set.len()).map(|i| (set.path(i).to_owned(), class(i), set.split(i).map(str::to_owned))).collect()
}

const GROCERY: [&str; 8] = [
    "train/Fruit/Apple/Golden/1.png",
    "train/Fruit/Pear/1.png",
    "val/Fruit/Pear/2.png",
    "test/Fruit/Apple/Golden/3.png",
    "test/Milk/Oat/3.png",
    "icons/Fruit/Apple/Golden/icon.png",
    "icons/Milk/Oat/icon.png",
    "cover.jpg",
];

#[test]
fn splits_are_found_next_to_other_folders_and_these_are_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &files(&GROCERY));
    write_tree(folder.path(), &[("classes.csv".to_owned(), b"a,b\n".to_vec())]);
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.class_names(), ["Fruit/Apple/Golden", "Fruit/Pear", "Milk/Oat"]);
    assert_eq!(
        (0..set.len()).map(|i| set.split(i).unwrap()).collect::<Vec<_>>(),
        ["test", "test", "train", "train", "val"]
    );
    assert_eq!(set.left_out(), [("cover.jpg".to_owned(), 1), ("icons".to_owned(), 2)]);
    let note = "the folders `test`, `train`, `val` are taken as splits, and what lies next to them is left out: \
                `cover.jpg` (1 image), `icons` (2 images)";
    assert_eq!(set.notes(), [note]);
    let train = ImageSet::open_with(&[folder.path()], &split("train")).unwrap();
    assert_eq!(train.len(), 2);
    let test = ImageSet::open_with(&[folder.path()], &split("test")).unwrap();
    let overlap = test.overlap_with(&train).unwrap();
    assert_eq!(overlap.to_string(), "1 of 2 test classes was trained on");

    let found = inspect(&set, None, 1, &|_| {});
    let json: Vec<_> = found.left_out.iter().map(|out| (out.folder.as_str(), out.images)).collect();
    assert_eq!(json, [("cover.jpg", 1), ("icons", 2)]);
    let trained: Vec<_> = found.splits.iter().map(|s| (s.name.as_str(), s.trained_classes)).collect();
    assert_eq!(trained, [("test", Some(1)), ("train", None), ("val", Some(1))]);
}

#[test]
fn a_class_of_the_name_of_a_split_is_a_class() {
    let mut paths: Vec<String> = (0..49).map(|i| format!("class{i:02}/1.png")).collect();
    paths.push("test/1.png".to_owned());
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let set = opened(&paths).unwrap();
    assert_eq!(set.class_names().len(), 50);
    assert_eq!((set.split(49), set.left_out().len()), (None, 0));
    // Also two of them, while `train` has no class folders; and a branch of subclasses alone.
    let set = opened(&["train/1.png", "test/1.png", "bus/1.png"]).unwrap();
    assert_eq!(set.class_names(), ["bus", "test", "train"]);
    let set = opened(&["train/steam/1.png", "train/diesel/1.png", "bus/1.png"]).unwrap();
    assert_eq!(set.class_names(), ["bus", "train/diesel", "train/steam"]);
    assert_eq!(set.split(1), None);
}

#[test]
fn splits_alone_in_any_case_and_below_other_folders_are_found() {
    let of = |paths: &[&str]| {
        let set = opened(paths).unwrap();
        let splits: Vec<_> = (0..set.len()).map(|i| set.split(i).unwrap_or("-").to_owned()).collect();
        (set.class_names().to_vec(), splits, set.left_out().to_vec())
    };
    let expected = |left_out: &[(&str, usize)]| {
        let left_out = left_out.iter().map(|(folder, images)| (folder.to_string(), *images)).collect();
        (vec!["a".to_owned(), "b".to_owned()], vec!["test".to_owned(), "train".to_owned()], left_out)
    };
    assert_eq!(of(&["train/a/1.png", "test/b/1.png"]), expected(&[]));
    assert_eq!(of(&["Train/a/1.png", "TEST/b/1.png"]), expected(&[]));
    assert_eq!(of(&["Train/a/1.png", "Test/b/1.png", "Icons/1.png"]), expected(&[("Icons", 1)]));
    assert_eq!(of(&["x/images/train/a/1.png", "x/images/test/b/1.png"]), expected(&[]));
    assert_eq!(
        of(&["images/train/a/1.png", "images/test/b/1.png", "icons/a/1.png", "images/extra/a/1.png"]),
        expected(&[("icons", 1), ("images/extra", 1)])
    );
    // Two sets side by side: which is meant cannot be told.
    let set = opened(&["x/train/a/1.png", "x/test/b/1.png", "y/train/a/1.png", "y/test/b/1.png", "z/1.png"])
        .unwrap();
    assert_eq!((set.len(), set.split(0)), (5, None));
}

#[test]
fn images_next_to_the_class_folders_of_a_split_are_refused() {
    let error = opened(&["train/a/1.png", "test/b/1.png", "test/2.png", "icons/1.png"]).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("1 of 3 images are next to the class folders, `test/2.png` for one"), "{text}");
    let error = opened(&["train/a/1.png", "test/1.png", "test/2.png"]).unwrap_err().to_string();
    assert!(error.contains("2 of 3 images are next to the class folders"), "{error}");
}

#[test]
fn images_without_a_class_in_another_split_than_the_chosen_one_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &files(&["train/a/1.png", "train/b/1.png", "test/1.png", "test/2.png"]));
    let error = ImageSet::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("2 of 4 images are next to the class folders"), "{error}");
    assert!(error.hint().unwrap().contains("choose the split (--split"), "{:?}", error.hint());
    let train = ImageSet::open_with(&[folder.path()], &split("train")).unwrap();
    assert_eq!((train.len(), train.class_names()), (2, &["a".to_owned(), "b".to_owned()][..]));
    let test = ImageSet::open_with(&[folder.path()], &split("test")).unwrap();
    assert_eq!((test.len(), test.labels()), (2, None));
    // In one split they do.
    write_tree(folder.path(), &files(&["train/3.png"]));
    let error = ImageSet::open_with(&[folder.path()], &split("train")).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("1 of 3 images are next to the class folders, `train/3.png` for one"), "{text}");
    let hint = error.hint().unwrap();
    assert_eq!(hint, "put every image into the folder of its class, or all into one folder");
}

#[test]
fn a_split_that_all_images_share_is_one_if_a_split_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    // Classes as they are, and with the split `train`.
    for (name, paths, plain, chosen) in [
        (
            "two",
            &["train/heron/1.jpg", "train/wren/1.jpg"][..],
            &["heron", "wren"][..],
            &["heron", "wren"][..],
        ),
        ("one", &["images/Training/heron/1.jpg"], &["heron"], &["heron"]),
        (
            "deep",
            &["train/Fruit/Apple/1.jpg", "train/Fruit/Pear/1.jpg"],
            &["Apple", "Pear"],
            &["Fruit/Apple", "Fruit/Pear"],
        ),
        ("flat", &["train/1.jpg"], &[], &[]),
    ] {
        let place = folder.path().join(name);
        write_tree(&place, &files(paths));
        let set = ImageSet::open(&place).unwrap();
        assert_eq!((set.class_names(), set.split(0)), (&texts(plain)[..], None), "{name}");
        let set = ImageSet::open_with(&[&place], &split("train")).unwrap();
        assert_eq!((set.class_names(), set.split(0)), (&texts(chosen)[..], Some("train")), "{name}");
        assert_eq!(set.len(), paths.len());
        let error = ImageSet::open_with(&[&place], &split("test")).unwrap_err().to_string();
        let wanted = format!("no image has the split `test`; there are `train` ({})", paths.len());
        assert!(error.ends_with(&wanted), "{error}");
        // With images of another split, the classes are the same.
        if name != "flat" {
            let test = format!("{}/test/other/1.jpg", if name == "one" { "images" } else { "." });
            write_tree(&place, &files(&[&test]));
            let again = ImageSet::open_with(&[&place], &split("train")).unwrap();
            assert_eq!(again.class_names(), set.class_names(), "{name}");
        }
    }
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn a_folder_a_zip_and_a_manifest_of_the_same_images_have_the_same_labels() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_tree(&at("images"), &files(&GROCERY));
    write_zip(&at("inside.zip"), &files(&GROCERY));
    let nested: Vec<_> = GROCERY.iter().map(|path| (format!("grocery/{path}"), Vec::new())).collect();
    write_zip(&at("whole.zip"), &nested);
    let mut manifest = "path,label,split\n".to_owned();
    for path in &GROCERY[..5] {
        let (split, rest) = path.split_once('/').unwrap();
        let (class, _) = rest.rsplit_once('/').unwrap();
        manifest += &format!("{path},{class},{split}\n");
    }
    fs::write(at("images/list.csv"), &manifest).unwrap();
    let mut with_manifest = files(&GROCERY);
    with_manifest.push(("manifest.csv".to_owned(), manifest.into_bytes()));
    write_zip(&at("manifest.zip"), &with_manifest);

    for part in [None, Some("train"), Some("test"), Some("val")] {
        for label_from in [LabelFrom::Path, LabelFrom::Leaf] {
            let options =
                OpenOptions { split: part.map(str::to_owned), label_from, ..OpenOptions::default() };
            let of = |name: &str| {
                let mut rows = rows(&ImageSet::open_with(&[at(name)], &options).unwrap());
                // The manifest keeps its own order; the zip of the folder itself has its name in the paths.
                rows.iter_mut().for_each(|row| row.0 = row.0.trim_start_matches("grocery/").to_owned());
                rows.sort();
                rows
            };
            let expected = of("images");
            assert_eq!(
                expected.len(),
                [5, 2, 2, 1]
                    [["", "train", "test", "val"].iter().position(|p| *p == part.unwrap_or("")).unwrap()]
            );
            for name in ["inside.zip", "whole.zip", "images/list.csv", "manifest.zip"] {
                assert_eq!(of(name), expected, "{name}, {part:?}, {label_from}");
            }
        }
    }
}

#[test]
fn the_last_part_of_a_label_is_the_class_where_that_is_asked_for_and_what_it_joins_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions { label_from: LabelFrom::Leaf, ..OpenOptions::default() };
    write_tree(folder.path(), &files(&["Fruit/Apple/1.png", "Fruit/Other/1.png", "Milk/Other/1.png"]));
    let set = ImageSet::open_with(&[folder.path()], &options).unwrap();
    assert_eq!(
        (set.class_names(), set.labels().unwrap()),
        (&["Apple".into(), "Other".into()][..], &[0, 1, 1][..])
    );
    assert_eq!(
        set.notes(),
        [
            "with the last part of each label as its class, one class joins several: `Other` (`Fruit/Other`, `Milk/Other`)"
        ]
    );
    let list = folder.path().join("list.csv");
    fs::write(&list, "path,label\nFruit/Apple/1.png,Fruit/Apple|Red\nMilk/Other/1.png,Milk/Red\n").unwrap();
    let set = ImageSet::open_with(&[list], &options).unwrap();
    assert_eq!(set.label_names(), ["Apple", "Red"]);
    assert_eq!(set.label_sets().unwrap(), [vec![0, 1], vec![1]]);
    assert_eq!("leaf".parse::<LabelFrom>().unwrap(), LabelFrom::Leaf);
    let error = "leave".parse::<LabelFrom>().unwrap_err().to_string();
    assert_eq!(error, "`label` must be `path` or `leaf`, not `leave`");
}

fn error_of(path: &Path) -> String {
    ImageSet::open(path).unwrap_err().to_string()
}

#[test]
fn a_path_of_an_archive_has_one_spelling_and_names_a_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zip");
    for spelling in ["a/./0.png", "a//0.png", "./a/0.png", "a\\0.png", "a/0.png"] {
        write_zip(&path, &files(&["b/1.png", spelling]));
        let set = ImageSet::open(&path).unwrap();
        assert_eq!((set.path(0), set.len(), set.class_names().len()), ("a/0.png", 2, 2), "{spelling}");
        assert!(set.read(0).is_ok());
    }
    for (one, other) in [("a/./0.png", "a//0.png"), ("a/0.png", "a/./0.png"), ("a\\0.png", "a/0.png")] {
        write_zip(&path, &files(&[one, other]));
        let error = error_of(&path);
        assert!(error.ends_with(&format!("its entries `{one}` and `{other}` are the same file")), "{error}");
    }
    for outside in ["/a/0.png", "\\a\\0.png", "a/../../0.png", "a\\..\\0.png", "C:\\0.png", ".."] {
        write_zip(&path, &files(&["b/1.png", outside]));
        let error = error_of(&path);
        assert!(error.ends_with(&format!("entry `{outside}` has a path that leads outside")), "{error}");
    }
}

#[test]
fn a_path_of_a_manifest_has_one_spelling_and_names_a_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    write_tree(folder.path(), &files(&["a/0.png", "b/1.png"]));
    let absolute = folder.path().join("a/0.png").display().to_string();
    for spelling in ["a/./0.png", "a//0.png", "./a/0.png", "a\\0.png"] {
        fs::write(&list, format!("path,label\n{spelling},x\nb/1.png,y\n")).unwrap();
        assert_eq!(ImageSet::open(&list).unwrap().path(0), "a/0.png", "{spelling}");
    }
    for other in ["a/./0.png", "a//0.png", "a\\0.png", "b/../a/0.png", &absolute] {
        fs::write(&list, format!("path,label\na/0.png,x\n{other},y\n")).unwrap();
        let error = error_of(&list);
        assert!(error.contains("line 3: ") && error.contains("is listed already"), "{other}: {error}");
        assert!(error.ends_with("on line 2"), "{other}: {error}");
    }
    // In an archive nothing may lead out of it.
    let zip = folder.path().join("x.zip");
    for (other, text) in
        [("b\\..\\a\\0.png", "is listed already, on line 2"), ("..\\0.png", "leads out of the archive")]
    {
        let manifest = format!("path,label\na/0.png,x\n{other},y\n").into_bytes();
        write_zip(&zip, &[("manifest.csv".to_owned(), manifest), ("a/0.png".to_owned(), Vec::new())]);
        let error = error_of(&zip);
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn training_and_testing_are_splits_in_folders_and_in_manifests_in_any_case() {
    let set = opened(&["Training/apple/1.jpg", "Training/pear/1.jpg", "Test/apple/2.jpg", "Test/pear/2.jpg"])
        .unwrap();
    assert_eq!(set.class_names(), ["apple", "pear"]);
    assert_eq!((0..4).map(|i| set.split(i).unwrap()).collect::<Vec<_>>(), ["test", "test", "train", "train"]);
    assert_eq!(set.notes(), [] as [&str; 0]);

    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &files(&["1.jpg", "2.jpg", "3.jpg", "4.jpg"]));
    let list = folder.path().join("list.csv");
    fs::write(&list, "path,label,split\n1.jpg,a,Training\n2.jpg,a,TEST\n3.jpg,b,testing\n4.jpg,b,Fold 1\n")
        .unwrap();
    let set = ImageSet::open(&list).unwrap();
    let splits: Vec<_> = (0..4).map(|i| set.split(i).unwrap()).collect();
    assert_eq!(splits, ["train", "test", "test", "Fold 1"]);
    assert!(set.has_split("Train") && set.has_split("test") && !set.has_split("fold 1"));
    for (name, images) in [("Test", 2), ("training", 1), ("Fold 1", 1)] {
        assert_eq!(ImageSet::open_with(&[&list], &split(name)).unwrap().len(), images, "{name}");
    }
}

#[test]
fn folders_with_the_same_subfolders_are_named() {
    let paths =
        ["seg_train/apple/1.jpg", "seg_train/fig/1.jpg", "seg_train/pear/1.jpg", "seg_test/apple/2.jpg"];
    let note = |paths: &[&str]| opened(paths).unwrap().notes().join("; ");
    let both = [&paths[..], &["seg_test/pear/2.jpg"]].concat();
    assert!(
        note(&both).starts_with(
            "the folders `seg_test`, `seg_train` have the same subfolders, and each of these is a class of its own, such \
             as `seg_test/apple` and `seg_train/apple`; if the folders are splits"
        ),
        "{}",
        note(&both)
    );
    // One subfolder may have the same name by chance, and a folder may have others.
    assert_eq!(note(&paths), "");
    assert_eq!(note(&[&both[..], &["seg_test/plum/2.jpg"]].concat()), "");
    // With the last part as the class, they are one class each, which another note says.
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &files(&both));
    let options = OpenOptions { label_from: LabelFrom::Leaf, ..OpenOptions::default() };
    let set = ImageSet::open_with(&[folder.path()], &options).unwrap();
    assert_eq!((set.class_names().len(), set.notes().len()), (3, 1));
}

#[test]
fn a_label_is_the_same_class_in_every_form_of_unicode() {
    // An accented letter as one character and as two, as macOS writes it.
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    let folder = tempfile::tempdir().unwrap();
    let tree = [format!("{composed}/1.png"), format!("{decomposed}/2.png"), "tea/1.png".to_owned()];
    write_tree(folder.path(), &tree.map(|path| (path, Vec::new())));
    let set = ImageSet::open(folder.path()).unwrap();
    assert_eq!(set.class_names(), [composed, "tea"]);
    assert_eq!(
        set.notes(),
        ["1 label is written in two forms of Unicode (NFC and another), and count as the same label"]
    );
    // Paths stay as they are.
    assert!((0..3).any(|i| set.path(i) == format!("{decomposed}/2.png")));
    let list = folder.path().join("list.csv");
    fs::write(&list, format!("path,label\n{decomposed}/2.png,{decomposed}\ntea/1.png,tea\n")).unwrap();
    let listed = ImageSet::open(&list).unwrap();
    assert_eq!((listed.class_names(), listed.notes().len()), (set.class_names(), 0));
    assert_eq!(listed.overlap_with(&set).unwrap().shared, 2);
    // Corrections may be written in either form.
    let corrections = folder.path().join("fixes.csv");
    fs::write(&corrections, format!("image,label,action,new_label\n,{composed},relabel,tea\n")).unwrap();
    let options = OpenOptions { relabel: vec![corrections], ..OpenOptions::default() };
    assert_eq!(ImageSet::open_with(&[&list], &options).unwrap().class_names(), ["tea"]);
}
