//! What the names of files say.

use std::collections::BTreeMap;

use crate::text::counted;

/// Extensions of the files that count as images when a folder or an archive is listed.
const IMAGES: [&str; 10] = ["png", "jpg", "jpeg", "jpe", "jfif", "gif", "bmp", "webp", "tif", "tiff"];

/// Extensions of pictures that are not read.
const OTHER_PICTURES: [&str; 30] = [
    "heic", "heif", "hif", "avif", "jxl", "jp2", "j2k", "jpx", "svg", "psd", "xcf", "ico", "tga", "exr",
    "hdr", "pnm", "ppm", "pgm", "pbm", "dng", "raw", "cr2", "cr3", "nef", "arw", "orf", "raf", "rw2", "pef",
    "srw",
];

/// Names of splits, in lower case, and the splits that they are.
const SPLITS: [(&str, &str); 9] = [
    ("train", "train"),
    ("training", "train"),
    ("val", "val"),
    ("valid", "valid"),
    ("validation", "validation"),
    ("test", "test"),
    ("testing", "test"),
    ("query", "query"),
    ("gallery", "gallery"),
];

/// The extension in lower case; empty where there is none.
pub(super) fn extension(path: &str) -> String {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    file.rsplit_once('.').map_or(String::new(), |(_, ext)| ext.to_ascii_lowercase())
}

/// Whether a name has the extension of an image.
pub(super) fn is_image(name: &str) -> bool {
    IMAGES.contains(&extension(name).as_str())
}

/// The pictures among files that are not read, by their extensions, the most frequent first; `None` where there are none.
pub(super) fn unread_pictures<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        let extension = extension(name);
        if let Some(known) = OTHER_PICTURES.into_iter().find(|known| *known == extension) {
            *counts.entry(known).or_default() += 1;
        }
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let total = counted(counts.iter().map(|(_, count)| count).sum(), "picture", "pictures");
    let named: Vec<String> =
        counts.iter().map(|(extension, count)| format!("{count} .{extension}")).collect();
    (!counts.is_empty()).then(|| format!("{total} of formats that are not read ({})", named.join(", ")))
}

/// The split that a folder of this name, or a value of a manifest, is: `Training` is `train`.
pub(super) fn split_name(name: &str) -> Option<&'static str> {
    SPLITS.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, split)| split)
}

/// Whether a split is of training images, which must not occur in another one: `train`, and splits whose names begin with it, such
/// as `train_shop` and `trainval`. A run file selects one split by its whole name.
///
/// ```
/// use gallerist_data::is_training_split;
///
/// assert!(is_training_split("train") && is_training_split("Trainval"));
/// assert!(!is_training_split("test"));
/// ```
pub fn is_training_split(name: &str) -> bool {
    name.as_bytes().get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"train"))
}

/// Whether a name has the extension of an archive that is read.
pub(super) fn is_archive(name: &str) -> bool {
    matches!(extension(name).as_str(), "tar" | "zip")
}

/// Whether a name has the extension of an archive, read or not.
pub(super) fn is_any_archive(name: &str) -> bool {
    const OTHERS: [&str; 8] = ["tgz", "gz", "bz2", "xz", "zst", "7z", "rar", "tbz2"];
    is_archive(name) || OTHERS.contains(&extension(name).as_str())
}

/// Whether a name has the extension of a manifest.
pub(super) fn is_manifest(name: &str) -> bool {
    matches!(extension(name).as_str(), "csv" | "tsv")
}

/// Whether a name has the extension of an archive or a manifest, which is not a part of the name of the images in it.
///
/// ```
/// use gallerist_data::is_archive_or_manifest;
///
/// assert!(is_archive_or_manifest("birds.tar") && is_archive_or_manifest("lists/birds.TSV"));
/// assert!(!is_archive_or_manifest("photos.v2"));
/// ```
pub fn is_archive_or_manifest(name: &str) -> bool {
    is_archive(name) || is_manifest(name)
}

/// Hidden files, and the folder that one operating system adds to its archives.
pub(super) fn is_ignored(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX"
}

/// Whether some part of a path [is ignored](is_ignored).
pub(super) fn has_ignored_part(path: &str) -> bool {
    path.split('/').any(is_ignored)
}
