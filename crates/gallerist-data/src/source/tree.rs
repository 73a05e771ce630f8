//! The files of a folder or archive, as layouts look for them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::archive::Archive;
use super::content::ImageContent;
use super::folder;
use super::idx::Pictures;
use super::names::{extension, is_image, unread_pictures};
use super::objects::Objects;
use super::part::Lines;
use super::tar::TarArchive;
use crate::decode::MAX_FILE_BYTES;
use crate::error::Error;
use gallerist_util::shard::Shard;

/// Where the bytes of images are.
pub(super) enum Root {
    Folder(PathBuf),
    Zip(Archive, PathBuf),
    Tar(TarArchive, PathBuf),
    /// Objects of a store, and their address.
    Objects(Objects),
    /// Pictures that are no files of their own, and the source they were read from.
    Pictures(Pictures, PathBuf),
}

impl Root {
    pub(super) fn read(&self, path: &str) -> Result<ImageContent, Error> {
        Ok(match self {
            Root::Folder(root) => ImageContent::Encoded(read_limited(&root.join(path))?),
            Root::Zip(archive, _) => ImageContent::Encoded(archive.read(path)?),
            Root::Tar(archive, _) => ImageContent::Encoded(archive.read(path)?),
            Root::Objects(objects) => ImageContent::Encoded(objects.read(path)?),
            Root::Pictures(pictures, _) => ImageContent::Decoded(pictures.image(path)),
        })
    }

    /// What changes when the file at `path` does: in a folder length and time of change, in an archive
    /// length and CRC-32. `None` for pictures that are no files, and for files that are not there.
    pub(super) fn version(&self, path: &str) -> Option<[u64; 3]> {
        match self {
            Root::Folder(root) => {
                let file = std::fs::metadata(root.join(path)).ok()?;
                let changed = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
                Some([file.len(), changed.as_secs(), changed.subsec_nanos().into()])
            }
            Root::Zip(archive, _) => {
                archive.content(path).map(|(crc, length)| [length, crc.into(), u64::MAX])
            }
            Root::Tar(archive, file) => {
                let changed =
                    std::fs::metadata(file).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
                archive.place(path).map(|(start, length)| [length, start, changed.as_secs()])
            }
            Root::Objects(objects) => objects.version(path),
            Root::Pictures(..) => None,
        }
    }

    /// The folder or archive that paths are relative to.
    pub(super) fn path(&self) -> &Path {
        match self {
            Root::Folder(path) | Root::Zip(_, path) | Root::Tar(_, path) | Root::Pictures(_, path) => path,
            Root::Objects(objects) => objects.address(),
        }
    }

    /// The source and the path in it, for messages.
    pub(super) fn location(&self, path: &str) -> String {
        match self {
            Root::Folder(root) => root.join(path).display().to_string(),
            Root::Objects(objects) => objects.location(path),
            Root::Zip(_, file) | Root::Tar(_, file) | Root::Pictures(_, file) => {
                format!("{}/{path}", file.display())
            }
        }
    }
}

/// A source with the list of its files.
pub(super) struct Tree {
    pub(super) root: Root,
    /// As the user wrote it.
    pub(super) name: String,
    /// Sorted; `/` between the parts. Empty for a folder that was not listed.
    files: Vec<String>,
    /// Those of its files that are links which lead nowhere, sorted.
    lost_links: Vec<String>,
    /// The shard of its manifest that is read; `None`: all of it.
    pub(super) shard: Option<Shard>,
}

impl Tree {
    /// The tree of a folder or an archive.
    pub(super) fn open(path: &Path) -> Result<Tree, Error> {
        if path.is_dir() { Tree::folder(path) } else { Tree::archive(path) }
    }

    pub(super) fn folder(path: &Path) -> Result<Tree, Error> {
        let listed = folder::list(path)?;
        let tree = Tree::new(Root::Folder(path.to_owned()), path, listed.files);
        Ok(tree.with_lost_links(listed.lost_links))
    }

    /// The tree of a zip or tar archive.
    pub(super) fn archive(path: &Path) -> Result<Tree, Error> {
        Tree::archive_of(path, path)
    }

    /// A folder whose files are read by name, never listed; `name` is what the user wrote.
    pub(super) fn unlisted(folder: PathBuf, name: &Path, shard: Option<Shard>) -> Tree {
        Tree { shard, ..Tree::new(Root::Folder(folder), name, Vec::new()) }
    }

    /// The objects below an address.
    pub(super) fn objects(objects: Objects, name: &Path, shard: Option<Shard>) -> Tree {
        let files = objects.names();
        Tree { shard, ..Tree::new(Root::Objects(objects), name, files) }
    }

    /// An archive, called `address` in messages and sources, of which `path` is a copy.
    pub(super) fn archive_of(path: &Path, address: &Path) -> Result<Tree, Error> {
        if extension(&address.to_string_lossy()) == "tar" {
            let archive = TarArchive::open(path, address)?;
            let (files, lost_links) = (archive.list(), archive.lost_links());
            let tree = Tree::new(Root::Tar(archive, address.to_owned()), address, files);
            return Ok(tree.with_lost_links(lost_links));
        }
        let archive = Archive::open(path, address)?;
        let (files, lost_links) = (archive.list(), archive.lost_links());
        let tree = Tree::new(Root::Zip(archive, address.to_owned()), address, files);
        Ok(tree.with_lost_links(lost_links))
    }

    fn new(root: Root, name: &Path, mut files: Vec<String>) -> Tree {
        files.sort_unstable();
        Tree { root, name: name.display().to_string(), files, lost_links: Vec::new(), shard: None }
    }

    fn with_lost_links(self, mut lost_links: Vec<String>) -> Tree {
        lost_links.sort_unstable();
        Tree { lost_links, ..self }
    }

    /// Forgets the list of files, which only opening needs.
    pub(super) fn forget_files(&mut self) {
        self.files = Vec::new();
    }

    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// The number of pictures in formats that are not read, in words.
    pub(super) fn unread_pictures(&self) -> Option<String> {
        unread_pictures(self.files.iter().map(String::as_str))
    }

    /// Links that lead nowhere and are no images by their names, which would be broken ones.
    pub(super) fn lost_links(&self) -> impl Iterator<Item = &str> {
        self.lost_links.iter().map(String::as_str).filter(|link| !is_image(link))
    }

    /// Refuses an archive that holds another.
    pub(super) fn refuse_nested_archives(&self) -> Result<(), Error> {
        match &self.root {
            Root::Zip(archive, _) => archive.refuse_nested(),
            _ => Ok(()),
        }
    }

    /// Whether there is a file at `path`, readable or not: named pipes and links that lead nowhere are there, too.
    pub(super) fn contains(&self, path: &str) -> bool {
        match &self.root {
            // A manifest may name files outside the listed folder.
            Root::Folder(root) => {
                self.files.binary_search_by(|f| f.as_str().cmp(path)).is_ok() || is_there(&root.join(path))
            }
            Root::Zip(archive, _) => archive.contains(path),
            Root::Tar(archive, _) => archive.contains(path),
            Root::Objects(objects) => objects.contains(path),
            Root::Pictures(..) => true,
        }
    }

    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        self.root.read(path).map(ImageContent::into_bytes)
    }

    /// The manifest at `path`: its first line and the lines of the shard, or all of it.
    pub(super) fn read_manifest(&self, path: &str) -> Result<Vec<u8>, Error> {
        match (&self.root, self.shard) {
            (Root::Folder(folder), Some(shard)) => Ok(Lines::of_file(&folder.join(path), shard)?.bytes),
            (Root::Objects(objects), Some(shard)) => Ok(objects.lines(path, shard)?.bytes),
            _ => self.read(path),
        }
    }

    pub(super) fn location(&self, path: &str) -> String {
        self.root.location(path)
    }

    /// The folders that hold a file or folder `wanted`, with their last `/` (empty for the top), the
    /// shallowest first.
    pub(super) fn folders_with<'a>(&'a self, wanted: &str) -> Vec<&'a str> {
        let mut found: Vec<&str> = Vec::new();
        for file in &self.files {
            let at = if file.starts_with(wanted) {
                Some(0)
            } else {
                file.match_indices(wanted).map(|(at, _)| at).find(|&at| file.as_bytes()[at - 1] == b'/')
            };
            let Some(at) = at.filter(|&at| wanted.ends_with('/') || file.len() == at + wanted.len()) else {
                continue;
            };
            if found.last() != Some(&&file[..at]) {
                found.push(&file[..at]);
            }
        }
        found.sort_by_key(|f| (f.matches('/').count(), *f));
        found.dedup();
        found
    }

    /// The shallowest folder that holds `wanted`, as in [`Tree::folders_with`].
    pub(super) fn folder_with(&self, wanted: &str) -> Option<&str> {
        self.folders_with(wanted).into_iter().next()
    }

    /// The files below a folder `prefix` (with its last `/`, or empty).
    pub(super) fn below<'a>(&'a self, prefix: &str) -> &'a [String] {
        let start = self.files.partition_point(|f| f.as_str() < prefix);
        let length = self.files[start..].partition_point(|f| f.starts_with(prefix));
        &self.files[start..start + length]
    }

    /// The images below a folder, by their extension.
    pub(super) fn images<'a>(&'a self, prefix: &str) -> impl Iterator<Item = &'a str> {
        self.below(prefix).iter().map(String::as_str).filter(|f| is_image(f))
    }
}

/// Whether something else than a folder is at `path`.
fn is_there(path: &Path) -> bool {
    match path.metadata() {
        Ok(file) => !file.is_dir(),
        // A link that leads nowhere is there itself.
        Err(_) => path.is_symlink(),
    }
}

/// A whole file, its size checked before memory is taken for it.
fn read_limited(path: &Path) -> Result<Vec<u8>, Error> {
    let name = || path.display().to_string();
    let failed = |e| Error::io("read", name(), e);
    let file = gallerist_util::files::open_regular(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let too_large =
        || Error::Decode { path: name(), problem: format!("a file may have {} MiB", MAX_FILE_BYTES >> 20) };
    if size > MAX_FILE_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    // A pipe or a growing file has more than its size says.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> Tree {
        let files = files.iter().map(ToString::to_string).collect();
        Tree::new(Root::Folder("nowhere".into()), Path::new("nowhere"), files)
    }

    #[test]
    fn a_file_or_folder_is_found_by_its_whole_name_and_the_shallowest_first() {
        let tree = tree(&["a/b/list.txt", "a/mylist.txt", "c/list.txt", "c/list.txt.old", "query/1.jpg"]);
        assert_eq!(tree.folders_with("list.txt"), ["c/", "a/b/"]);
        assert_eq!(tree.folder_with("query/"), Some(""));
        assert_eq!(tree.folder_with("b/"), Some("a/"));
        assert_eq!(tree.folder_with("uery/"), None);
        assert_eq!(tree.below("c/"), ["c/list.txt", "c/list.txt.old"]);
        assert_eq!(tree.images("").collect::<Vec<_>>(), ["query/1.jpg"]);
    }
}
