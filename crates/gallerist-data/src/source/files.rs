//! The files of a folder or archive as a source of images.

use std::fs;
use std::path::{Path, PathBuf};

use super::content::ImageContent;
use super::image_source::ImageSource;
use super::layout::DatasetLayout;
use super::names::{is_any_archive, is_archive, is_archive_or_manifest, is_image, is_manifest};
use super::objects::Objects;
use super::part::{check_is_manifest, of_shard};
use super::record::{ImageListing, ImageRecord};
use super::tree::{Root, Tree};
use crate::error::Error;
use crate::text::{counted, some_of};
use gallerist_store::{LocalCopy, Store, split_address};
use gallerist_util::shard::Shard;

/// A folder, a zip archive, a CSV manifest or a single image.
pub(super) struct FileSource {
    /// As the user wrote it.
    path: PathBuf,
    tree: Tree,
    layout: DatasetLayout,
    list: List,
    /// The copy of an archive in a store, which is removed with the source.
    #[expect(dead_code, reason = "it is kept for its end")]
    copy: Option<LocalCopy>,
}

/// How the images are listed.
enum List {
    /// By the layout; where in the tree it begins.
    Layout(String),
    /// One image.
    Single(String),
}

impl FileSource {
    /// Opens what is at `path`, in the layout that is named, or else in the first that fits; of a manifest, a shard or all.
    pub(super) fn open(
        path: &Path,
        layout: Option<DatasetLayout>,
        shard: Option<Shard>,
    ) -> Result<FileSource, Error> {
        if shard.is_some() {
            check_is_manifest(&path.display().to_string())?;
        }
        if let Some(address) = path.to_str().filter(|text| gallerist_store::is_address(text)) {
            return FileSource::open_address(address, layout, shard);
        }
        let failed = |e| Error::io("open", path.display().to_string(), e);
        let is_folder = fs::metadata(path).map_err(failed)?.is_dir();
        if !is_folder {
            gallerist_util::files::open_regular(path).map_err(failed)?;
        }
        if is_folder || is_archive(&path.display().to_string()) {
            let tree = Tree::open(path)?;
            let (layout, at) = find_layout(&tree, layout)?;
            return Ok(FileSource {
                path: path.to_owned(),
                tree,
                layout,
                list: List::Layout(at),
                copy: None,
            });
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let Some(file) = path.file_name().and_then(|f| f.to_str()) else {
            return Err(Error::Layout {
                path: path.display().to_string(),
                problem: "its name is not UTF-8".to_owned(),
                hint: "rename the file",
            });
        };
        if is_any_archive(file) {
            return Err(Error::Archive {
                path: path.display().to_string(),
                problem: "it is of a kind that is not read".to_owned(),
                hint: Some("zip and tar are read; unpack it, or decompress it to a .tar"),
            });
        }
        let tree = Tree::unlisted(folder, path, shard);
        let is_manifest = is_manifest(file);
        if let Some(other) = layout.filter(|l| !(is_manifest && *l == DatasetLayout::MANIFEST)) {
            return Err(Error::Layout {
                path: tree.name.clone(),
                problem: format!("it is one file, not laid out as {}", other.title()),
                hint: "give the folder or zip of the data set",
            });
        }
        let (layout, list) = match is_manifest {
            true => (DatasetLayout::MANIFEST, List::Layout(file.to_owned())),
            false => (DatasetLayout::FOLDERS, List::Single(file.to_owned())),
        };
        Ok(FileSource { path: path.to_owned(), tree, layout, list, copy: None })
    }

    /// Opens the objects of a store: an archive, of which a temporary copy is made, a manifest, an image, or all objects below
    /// an address.
    fn open_address(
        address: &str,
        layout: Option<DatasetLayout>,
        shard: Option<Shard>,
    ) -> Result<FileSource, Error> {
        let path = Path::new(address);
        let of_tree = |tree: Tree, copy| {
            let (layout, at) = find_layout(&tree, layout)?;
            Ok(FileSource { path: path.to_owned(), tree, layout, list: List::Layout(at), copy })
        };
        let Some((above, name)) = split_address(address)?.filter(|(_, name)| is_file(name)) else {
            return of_tree(Tree::objects(Objects::list(address)?, path, None), None);
        };
        let name = &*name;
        if is_archive(name) {
            let copy = Store::open(above)?.download(name)?;
            return of_tree(Tree::archive_of(copy.path(), path)?, Some(copy));
        }
        if layout.is_some_and(|layout| !(is_manifest(name) && layout == DatasetLayout::MANIFEST)) {
            return Err(Error::Source {
                name: address.to_owned(),
                problem: "it is one object, and not laid out in folders".to_owned(),
                hint: Some("leave out the layout, or give the address of the folder".to_owned()),
            });
        }
        let tree = Tree::objects(Objects::unlisted(above)?, path, shard);
        let (layout, list) = match is_manifest(name) {
            true => (DatasetLayout::MANIFEST, List::Layout(name.to_owned())),
            false => (DatasetLayout::FOLDERS, List::Single(name.to_owned())),
        };
        Ok(FileSource { path: path.to_owned(), tree, layout, list, copy: None })
    }
}

/// Whether the last part of an address is of one object, by its extension.
fn is_file(name: &str) -> bool {
    is_archive_or_manifest(name) || is_image(name)
}

/// The layout of a tree, and where in it the layout begins.
fn find_layout(tree: &Tree, layout: Option<DatasetLayout>) -> Result<(DatasetLayout, String), Error> {
    match layout {
        Some(layout) => {
            let at = layout.find(tree).ok_or_else(|| Error::Layout {
                path: tree.name.clone(),
                problem: format!("it is not laid out as {}: there is no {}", layout.title(), layout.wants()),
                hint: "leave the layout out to have it told by the content",
            })?;
            Ok((layout, at))
        }
        None => {
            let mut fitting = DatasetLayout::all().filter_map(|layout| Some((layout, layout.find(tree)?)));
            Ok(fitting.next().expect("class folders fit everything"))
        }
    }
}

/// Names the links that lead nowhere: one may have been a folder of images.
fn lost_links_note(tree: &Tree) -> Option<String> {
    let links: Vec<&str> = tree.lost_links().collect();
    let (lead, are) = if links.len() == 1 { ("leads", "is") } else { ("lead", "are") };
    (!links.is_empty()).then(|| {
        let count = counted(links.len(), "link", "links");
        format!("{count} of `{}` {lead} nowhere and {are} left out: {}", tree.name, some_of(&links))
    })
}

/// Names the objects of a store whose names no client takes.
fn unreadable_note(tree: &Tree) -> Option<String> {
    let Root::Objects(objects) = &tree.root else { return None };
    let names: Vec<&str> = objects.unreadable().iter().map(String::as_str).collect();
    let (have, are) = if names.len() == 1 { ("has a name", "is") } else { ("have names", "are") };
    (!names.is_empty()).then(|| {
        format!(
            "{} of `{}` {have} with an empty part (`//`), a part `.` or `..`, or control characters, and {are} left out; copy to other \
             names what is needed: {}",
            counted(names.len(), "object", "objects"),
            tree.name,
            some_of(&names)
        )
    })
}

impl ImageSource for FileSource {
    fn name(&self) -> &str {
        &self.tree.name
    }

    fn list(&mut self) -> Result<ImageListing, Error> {
        let mut listing = match &self.list {
            List::Layout(at) => self.layout.read(&self.tree, at).map_err(|e| of_shard(e, self.tree.shard))?,
            List::Single(file) => vec![ImageRecord::new(file)].into(),
        };
        listing.notes.extend(lost_links_note(&self.tree));
        listing.notes.extend(unreadable_note(&self.tree));
        // A manifest may list other files than those in its folder.
        if self.layout != DatasetLayout::MANIFEST {
            let unread = self.tree.unread_pictures();
            let note = |pictures| {
                format!("`{}` has {pictures}; they are left out: convert them to JPEG or PNG", self.name())
            };
            listing.notes.extend(unread.map(note));
        }
        if let Some(pictures) = listing.pictures.take() {
            self.tree.root = Root::Pictures(pictures, self.path.clone());
        }
        Ok(listing)
    }

    fn check(&mut self, listing: &mut ImageListing, split: Option<&str>) -> Result<(), Error> {
        self.layout.check_files(&self.tree, listing).map_err(|e| of_shard(e, self.tree.shard))?;
        self.layout.compare_with_published(listing, split);
        self.tree.forget_files();
        Ok(())
    }

    fn read(&self, _number: usize, path: &str) -> Result<ImageContent, Error> {
        self.tree.root.read(path)
    }

    fn version(&self, _number: usize, path: &str) -> Option<[u64; 3]> {
        self.tree.root.version(path)
    }

    fn location(&self, path: &str) -> String {
        self.tree.location(path)
    }

    fn root(&self) -> &Path {
        self.tree.root.path()
    }

    fn address(&self) -> &Path {
        if is_image(&self.path.to_string_lossy()) { self.root() } else { &self.path }
    }

    fn layout(&self) -> Option<DatasetLayout> {
        Some(self.layout)
    }
}
