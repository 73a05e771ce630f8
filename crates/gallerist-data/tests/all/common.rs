//! Makers of small inputs.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageFormat};

/// A picture without symmetry: brightness grows to the right and downwards.
pub(crate) fn picture(width: u32, height: u32, tint: u8) -> image::RgbImage {
    image::RgbImage::from_fn(width, height, |x, y| {
        let (x, y) = ((x * 255 / width.max(2)) as u8, (y * 255 / height.max(2)) as u8);
        image::Rgb([x, y, tint])
    })
}

pub(crate) fn encode(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

pub(crate) fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
    encode(image, ImageFormat::Png)
}

pub(crate) fn jpeg(width: u16, height: u16, quality: u8) -> Vec<u8> {
    let picture = picture(width.into(), height.into(), 90);
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, quality)
        .encode(&picture, width, height, jpeg_encoder::ColorType::Rgb)
        .unwrap();
    bytes
}

/// Writes files below `root`, with their folders.
pub(crate) fn write_tree(root: &Path, files: &[(String, Vec<u8>)]) {
    for (path, bytes) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

pub(crate) fn write_zip(path: &Path, files: &[(String, Vec<u8>)]) {
    let mut zip = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (i, (name, bytes)) in files.iter().enumerate() {
        // Both methods that are read.
        let method = [zip::CompressionMethod::Deflated, zip::CompressionMethod::Stored][i % 2];
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file(name.as_str(), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// `classes` folders with `images` pictures each, every one different.
pub(crate) fn class_folders(classes: usize, images: usize) -> Vec<(String, Vec<u8>)> {
    (0..classes)
        .flat_map(|c| {
            (0..images).map(move |i| {
                let tint = (c * images + i) as u8;
                (format!("class{c:02}/{i:02}.png"), png(picture(12, 10, tint)))
            })
        })
        .collect()
}

pub(crate) fn omniglot(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/omniglot").join(name)
}
