//! Files for readers that take a path.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder of this process, in memory where the system has such a place.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("gallerist-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files can be made");
        folder
    })
}

/// A path in the folder.
pub(crate) fn path(name: &str) -> PathBuf {
    folder().join(name)
}

/// A new file with these bytes. It replaces an older one of its name, which may be mapped.
pub(crate) fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).expect("a folder for temporary files can be made");
    }
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).expect("a temporary file can be written");
    path
}

/// A picture of 3 x 2 pixels of one grey, as bitmap.
pub(crate) fn picture(grey: u8) -> Vec<u8> {
    let picture = image::GrayImage::from_pixel(3, 2, image::Luma([grey]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Bmp).expect("memory");
    bytes.into_inner()
}

/// A folder with these pictures, which is made once.
pub(crate) fn pictures(folder: &str, names: &[&str]) -> PathBuf {
    let folder = path(folder);
    if !folder.is_dir() {
        for name in names {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, picture(9)).expect("a picture");
        }
    }
    folder
}

/// Removes the folder.
pub(crate) fn remove() {
    let _ = std::fs::remove_dir_all(folder());
}
