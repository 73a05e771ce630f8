//! Images in tar archives, and links in archives.

use std::fs;
use std::io::Write;
use std::path::Path;

use gallerist_data::ImageSet;

use crate::common::{picture, png};

/// An archive of these files.
fn write_tar(path: &Path, files: &[(&str, Vec<u8>)]) {
    let mut archive = tar::Builder::new(fs::File::create(path).unwrap());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    archive.finish().unwrap();
}

fn images() -> Vec<(&'static str, Vec<u8>)> {
    // A name that does not fit into a header of the format.
    let long: &'static str = Box::leak(format!("birds/wren/{}.png", "x".repeat(150)).into_boxed_str());
    ["birds/heron/1.png", "birds/heron/2.png", long, "._hidden.png", "birds/readme.txt"]
        .into_iter()
        .enumerate()
        .map(|(i, name)| (name, png(picture(3, 2, 40 * i as u8))))
        .collect()
}

#[test]
fn an_archive_is_read_as_the_folder_that_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in images() {
        let path = folder.path().join("all").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let path = folder.path().join("all.tar");
    write_tar(&path, &images());
    let (packed, plain) =
        (ImageSet::open(&path).unwrap(), ImageSet::open(folder.path().join("all")).unwrap());
    assert_eq!(packed.len(), 3);
    assert_eq!((packed.class_names(), packed.labels()), (plain.class_names(), plain.labels()));
    for i in 0..packed.len() {
        assert_eq!(packed.path(i), plain.path(i));
        assert_eq!(packed.read(i).unwrap(), plain.read(i).unwrap());
    }
    assert_eq!(packed.source_root(0), path);
}

#[test]
fn an_archive_that_is_cut_short_leads_outside_or_has_a_file_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    write_tar(&path, &images());
    let whole = fs::read(&path).unwrap();
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        ImageSet::open(&path).unwrap_err().to_string()
    };
    assert!(message(&whole[..530]).contains("x.tar"), "{}", message(&whole[..530]));
    assert!(message(&[b'x'; 2000]).contains("not a whole tar archive"));
    let packed = [b"\x1f\x8b\x08\0".to_vec(), vec![200; 2000]].concat();
    assert!(
        message(&packed).ends_with("it is called .tar, and is of the format gzip"),
        "{}",
        message(&packed)
    );
    let damaged = message(&[200; 2000]);
    assert!(damaged.is_ascii() && !damaged.contains(|c: char| c.is_control()), "{damaged}");
    write_tar(&path, &[images().remove(0), images().remove(0)]);
    let error = ImageSet::open(&path).unwrap_err().to_string();
    assert!(error.contains("two of its entries are the file `birds/heron/1.png`"), "{error}");
    // The program that packs refuses such a name.
    let mut outside = whole.clone();
    outside[..17].copy_from_slice(b"birds/../../1.png");
    let sum: u32 = outside[..512]
        .iter()
        .enumerate()
        .map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u32::from(b) })
        .sum();
    outside[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let error = message(&outside);
    assert!(error.contains("leads outside"), "{error}");
}

/// An archive of an image `a/1.png`, and of links of a type with their names.
fn write_links(path: &Path, links: &[(&str, &str, tar::EntryType)]) {
    let mut archive = tar::Builder::new(fs::File::create(path).unwrap());
    let mut header = tar::Header::new_gnu();
    let bytes = png(picture(3, 2, 7));
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "a/1.png", &bytes[..]).unwrap();
    for (name, target, kind) in links {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        header.set_entry_type(*kind);
        archive.append_link(&mut header, name, target).unwrap();
    }
    archive.finish().unwrap();
}

#[test]
fn links_in_an_archive_are_followed_and_those_that_lead_nowhere_are_broken_images_or_named() {
    use tar::EntryType::{Link, Symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.tar");
    let links = [
        ("b/hard.png", "a/1.png", Link),
        ("b/soft.png", "../a/1.png", Symlink),
        ("b/gone.png", "../z/1.png", Symlink),
        ("c", "a", Symlink),
        ("d", "nowhere", Symlink),
    ];
    write_links(&path, &links);
    let set = ImageSet::open(&path).unwrap();
    let paths: Vec<_> = (0..set.len()).map(|i| set.path(i)).collect();
    assert_eq!(paths, ["a/1.png", "b/gone.png", "b/hard.png", "b/soft.png", "c/1.png"]);
    assert_eq!(set.class_names(), ["a", "b", "c"]);
    for i in [2, 3, 4] {
        assert_eq!(set.read(i).unwrap(), set.read(0).unwrap());
    }
    let error = set.read(1).unwrap_err().to_string();
    assert!(error.ends_with("it is a link to `../z/1.png`, which is not in the archive"), "{error}");
    let note = format!("1 link of `{}` leads nowhere and is left out: `d`", path.display());
    assert_eq!((set.notes(), set.skipped()), (&[note][..], 1));
    write_links(&path, &[("a/back", ".", Symlink)]);
    let error = ImageSet::open(&path).unwrap_err().to_string();
    assert!(error.ends_with("`a/back` is a link to a folder above it"), "{error}");
}

#[test]
fn symbolic_links_in_a_zip_archive_are_followed_and_those_that_lead_nowhere_are_broken_images_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.zip");
    let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("a/1.png", options).unwrap();
    zip.write_all(&png(picture(3, 2, 7))).unwrap();
    for (name, target) in [
        ("b/soft.png", "../a/1.png"),
        ("b/gone.png", "../z/1.png"),
        ("b/long.png", &"a/".repeat(3000)),
        ("c", "a"),
        ("d", "nowhere"),
    ] {
        zip.add_symlink(name, target, options).unwrap();
    }
    zip.finish().unwrap();
    let set = ImageSet::open(&path).unwrap();
    let paths: Vec<_> = (0..set.len()).map(|i| set.path(i)).collect();
    assert_eq!(paths, ["a/1.png", "b/gone.png", "b/long.png", "b/soft.png", "c/1.png"]);
    assert_eq!(set.class_names(), ["a", "b", "c"]);
    for i in [3, 4] {
        assert_eq!(set.read(i).unwrap(), set.read(0).unwrap());
    }
    let error = set.read(1).unwrap_err().to_string();
    assert!(error.ends_with("it is a link to `../z/1.png`, which is not in the archive"), "{error}");
    let error = set.decode(2).unwrap_err().to_string();
    assert!(error.contains("b/long.png"), "{error}");
    let note = format!("1 link of `{}` leads nowhere and is left out: `d`", path.display());
    assert_eq!((set.notes(), set.skipped()), (&[note][..], 1));
}

#[test]
fn a_zip_archive_with_records_of_zip64_is_read_whatever_the_length_of_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.zip");
    // These records have 76 bytes, and so has the directory's first entry with a name of 30 bytes.
    for length in [20, 21, 22] {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in ["1.png", "2.png"] {
            let options = zip::write::SimpleFileOptions::default();
            zip.start_file(format!("{}/000{name}", "a".repeat(length)), options).unwrap();
            zip.write_all(&png(picture(3, 2, 7))).unwrap();
        }
        let mut bytes = zip.finish().unwrap().into_inner();
        let end = bytes.split_off(bytes.len() - 22);
        let number = |at: usize| u64::from(u32::from_le_bytes(end[at..at + 4].try_into().unwrap()));
        let (size, start, records) = (number(12), number(16), bytes.len() as u64);
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for value in [2, 2, size, start] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(records.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(end);
        fs::write(&path, bytes).unwrap();
        let set = ImageSet::open(&path).unwrap_or_else(|error| panic!("{length}: {error}"));
        assert_eq!(set.len(), 2);
        assert_eq!(set.read(0).unwrap(), set.read(1).unwrap());
    }
}
