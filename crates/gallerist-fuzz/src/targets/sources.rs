//! Sources of images: manifests, corrections, archives, annotations.

use std::io::{Cursor, Write};
use std::path::Path;

use gallerist_data::{ImageSet, OneShotRuns, OpenOptions};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

/// Images of a set that are decoded.
const DECODED: usize = 3;

/// A file of more bytes is not given to the readers of whole trees.
const MOST: usize = 1 << 20;

/// Opens a set and asks for everything that it knows.
fn open(path: &Path, bytes: &[u8], limit: Limit, options: &OpenOptions) {
    let Ok(set) = within(limit, bytes, || ImageSet::open_with(&[path], options)) else { return };
    reached("opened");
    assert!(!set.is_empty(), "a set without images is refused");
    if let Some(labels) = set.labels() {
        assert_eq!(labels.len(), set.len());
        assert!(labels.iter().all(|&label| (label as usize) < set.class_names().len()));
    }
    assert!(set.cameras().is_none_or(|cameras| cameras.len() == set.len()));
    for (_, values) in set.columns() {
        reached("columns");
        assert_eq!(values.len(), set.len());
    }
    for image in 0..set.len() {
        let _ = (set.path(image), set.location(image), set.split(image), set.bounding_box(image));
    }
    for image in 0..set.len().min(DECODED) {
        // Before it is decoded, a file that has a size is read.
        let _ = within(limit, bytes, || set.read(image));
        if set.decode(image).is_ok() {
            reached("decoded");
        }
    }
}

/// A list of images in CSV or, where the first line has a tab, TSV.
pub(super) fn manifest(bytes: &[u8]) {
    let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes);
    let name = if first.contains(&b'\t') { "input.tsv" } else { "input.csv" };
    let folder = scratch::pictures("listed", &["1.png", "a/1.png", "a/2.png", "a, b.png"]);
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file");
    open(&path, bytes, Limit::TEXT, &OpenOptions::default());
}

/// Corrections of the labels of a set.
pub(super) fn relabel(bytes: &[u8]) {
    let set = scratch::pictures("set", &["a/1.png", "a/2.png", "b/3.png"]);
    let file = scratch::file("corrections.csv", bytes);
    let options = OpenOptions { relabel: vec![file], ..OpenOptions::default() };
    open(&set, bytes, Limit::TEXT, &options);
}

/// An archive.
pub(super) fn zip(bytes: &[u8]) {
    let path = scratch::file("input.zip", bytes);
    open(&path, bytes, Limit::DEFLATED, &OpenOptions::default());
}

/// An archive without compression.
pub(super) fn tar(bytes: &[u8]) {
    let path = scratch::file("input.tar", bytes);
    open(&path, bytes, Limit::TEXT, &OpenOptions::default());
}

/// A whole data set: parts that begin with the byte 0x1E and the name of a file in a line, the rest being its content.
/// They become an archive without compression, in which the layout is found. A file without content is a picture.
pub(super) fn tree(bytes: &[u8]) {
    if bytes.len() > MOST {
        return;
    }
    let picture = scratch::picture(9);
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for part in bytes.split(|&byte| byte == 0x1E) {
        let end = part.iter().position(|&byte| byte == b'\n').unwrap_or(part.len());
        let (name, content) = (&part[..end], part.get(end + 1..).unwrap_or(&[]));
        if name.is_empty() {
            continue;
        }
        // Two files of one name are refused by the writer.
        if writer.start_file(String::from_utf8_lossy(name), options).is_ok() {
            writer.write_all(if content.is_empty() { &picture } else { content }).expect("memory");
        }
    }
    let packed = writer.finish().expect("memory").into_inner();
    let path = scratch::file("tree.zip", &packed);
    open(&path, &packed, Limit::TEXT, &OpenOptions::default());
    if let Ok(runs) = within(Limit::TEXT, &packed, || OneShotRuns::open(&path)) {
        reached("one-shot runs");
        for run in &runs.runs {
            assert_eq!(run.tests.len(), run.answers.len());
            assert!(run.answers.iter().all(|&answer| answer < run.training.len()));
        }
    }
}

/// Annotations of Cars196.
pub(super) fn mat(bytes: &[u8]) {
    let folder = scratch::pictures("cars", &["car_ims/000001.jpg", "car_ims/000002.jpg"]);
    scratch::file("cars/cars_annos.mat", bytes);
    open(&folder, bytes, Limit::DEFLATED, &OpenOptions::default());
}

/// Pictures of MNIST: an array of three dimensions, packed or not, with labels that fit.
pub(super) fn idx(bytes: &[u8]) {
    let folder = scratch::path("mnist");
    std::fs::create_dir_all(&folder).expect("a folder");
    // As many labels as the header says, where it is not packed.
    let count = bytes.get(4..8).map_or(1, |count| u32::from_be_bytes(count.try_into().expect("four bytes")));
    let count = if bytes.starts_with(&[0x1F, 0x8B]) { 2 } else { count.min(1000) };
    let labels = [&[0, 0, 8, 1][..], &count.to_be_bytes(), &vec![7; count as usize]].concat();
    scratch::file("mnist/train-images-idx3-ubyte", bytes);
    scratch::file("mnist/train-labels-idx1-ubyte", &labels);
    open(&folder, bytes, Limit::DEFLATED, &OpenOptions::default());
    // The same bytes as labels.
    scratch::file("mnist/train-images-idx3-ubyte", &[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9]);
    scratch::file("mnist/train-labels-idx1-ubyte", bytes);
    open(&folder, bytes, Limit::DEFLATED, &OpenOptions::default());
}
