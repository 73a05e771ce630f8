//! The cache of features on disk; that of decoded images has the same places.

use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use gallerist_data::{FeatureFile, ImageConfig, ImageSet, OpenOptions, Transform};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

const IMAGES: usize = 3;

/// Features of an image.
const LENGTH: usize = 4;

/// Bytes of a place: digest, checksum, features.
const PLACE: usize = 12 + 4 * LENGTH;

/// The images, which are never decoded. In an archive their digests do not depend on the time.
fn set() -> &'static Arc<ImageSet> {
    static SET: OnceLock<Arc<ImageSet>> = OnceLock::new();
    SET.get_or_init(|| {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for i in 0..IMAGES {
            writer.start_file(format!("a/{i}.png"), options).expect("memory");
            writer.write_all(&[i as u8]).expect("memory");
        }
        let path = scratch::file("cached.zip", &writer.finish().expect("memory").into_inner());
        Arc::new(ImageSet::open_with(&[path], &OpenOptions::default()).expect("a set"))
    })
}

fn open() -> FeatureFile {
    let transform = Transform::evaluation(&ImageConfig::new(28, 1)).expect("a transform");
    FeatureFile::open(&scratch::path("cache"), set(), &transform, "model", LENGTH).expect("a cache")
}

/// The path of the file, and the digest of each image: the first bytes of a place that was written.
fn layout() -> &'static (PathBuf, Vec<[u8; 8]>) {
    static LAYOUT: OnceLock<(PathBuf, Vec<[u8; 8]>)> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let file = open();
        (0..IMAGES).for_each(|i| file.write(i, &[0.0; LENGTH]));
        let mut entries = std::fs::read_dir(scratch::path("cache")).expect("the folder of the cache");
        let path = entries.next().expect("a file").expect("a file").path();
        let bytes = std::fs::read(&path).expect("the file");
        assert_eq!(bytes.len(), IMAGES * PLACE);
        let digests = bytes.chunks(PLACE).map(|place| place[..8].try_into().expect("eight bytes"));
        (path.clone(), digests.collect())
    })
}

fn checksum(place: &[u8]) -> [u8; 4] {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&place[..8]);
    checksum.update(&place[12..]);
    checksum.finalize().to_le_bytes()
}

/// A byte whose bits choose the places that get the right digest (0 to 2) and the right checksum (3 to 5), and the file.
pub(super) fn run(bytes: &[u8]) {
    let Some((&repaired, file)) = bytes.split_first() else { return };
    let (path, digests) = layout();
    let mut file = file.to_vec();
    for (i, place) in file.chunks_exact_mut(PLACE).take(IMAGES).enumerate() {
        if repaired >> i & 1 == 1 {
            place[..8].copy_from_slice(&digests[i]);
        }
        if repaired >> (3 + i) & 1 == 1 {
            let checksum = checksum(place);
            place[8..12].copy_from_slice(&checksum);
        }
    }
    std::fs::write(path, &file).expect("the file of the cache can be written");

    let cache = within(Limit::TEXT, bytes, open);
    let bits = |row: Option<Vec<f32>>| row.map(|row| row.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    let expected: Vec<Option<Vec<u32>>> = (0..IMAGES)
        .map(|i| {
            let place = file.get(i * PLACE..(i + 1) * PLACE)?;
            let valid = place[..8] == digests[i] && place[8..12] == checksum(place);
            let values = place[12..].chunks(4);
            valid.then(|| {
                values.map(|value| u32::from_le_bytes(value.try_into().expect("four bytes"))).collect()
            })
        })
        .collect();
    if expected.iter().any(Option::is_some) {
        reached("a row");
    }
    let read = |i| bits(within(Limit::TEXT, bytes, || cache.read(i)));
    assert_eq!((0..IMAGES).map(read).collect::<Vec<_>>(), expected, "a place is taken as it should not be");

    let row = [1.5, -0.0, f32::INFINITY, 7.0];
    cache.write(1, &row);
    assert!(cache.problem().is_none());
    assert_eq!(read(1), bits(Some(row.to_vec())), "a place that was written is read");
    for i in [0, 2] {
        assert_eq!(read(i), expected[i], "the place of another image changes");
    }
}
