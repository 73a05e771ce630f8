//! What the names of files say.

/// Extensions of the files that count as images when a folder or an archive is listed.
const IMAGES: [&str; 8] = ["png", "jpg", "jpeg", "gif", "bmp", "webp", "tif", "tiff"];

/// The extension in lower case; empty where there is none.
pub(super) fn extension(path: &str) -> String {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    file.rsplit_once('.').map_or(String::new(), |(_, ext)| ext.to_ascii_lowercase())
}

/// Whether a name has the extension of an image.
pub(super) fn is_image(name: &str) -> bool {
    IMAGES.contains(&extension(name).as_str())
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

/// Hidden files, and the folder that one operating system adds to its archives.
pub(super) fn is_ignored(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX"
}

/// Whether some part of a path [is ignored](is_ignored).
pub(super) fn has_ignored_part(path: &str) -> bool {
    path.split('/').any(is_ignored)
}
