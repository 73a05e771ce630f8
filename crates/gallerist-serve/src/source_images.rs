//! Images by the sources and the paths of items.

use std::collections::HashMap;
use std::sync::Arc;

use gallerist_data::ImageSet;
use gallerist_retrieval::file::Source;

/// A source that was opened. Both paths are absolute.
#[derive(Debug)]
struct Opened {
    /// What the paths of its images are relative to.
    root: String,
    /// What was opened: the same, or a manifest in it.
    address: String,
}

/// The images of one or several sources, which are found by the source and the path of an item. Clones share them.
#[derive(Clone, Debug)]
pub struct SourceImages {
    set: Arc<ImageSet>,
    /// Numbers of the images in the order of their sources and paths.
    sorted: Arc<[u32]>,
    sources: Arc<[Opened]>,
    /// The places of the images of named sources.
    places: Arc<HashMap<String, String>>,
}

impl SourceImages {
    /// The images of a set.
    pub fn new(set: ImageSet) -> Self {
        let mut sorted: Vec<u32> = (0..set.len() as u32).collect();
        sorted.sort_by(|&a, &b| place(&set, a).cmp(&place(&set, b)));
        let opened = |source| Opened {
            root: Source::name_of(set.source_root(source)),
            address: Source::name_of(set.source_path(source)),
        };
        let sources = (0..set.sources()).map(opened).collect();
        Self { sources, set: Arc::new(set), sorted: sorted.into(), places: Arc::default() }
    }

    /// Gives the sources of the set, in their order, these names.
    pub(crate) fn named(self, names: impl Iterator<Item = String>) -> Self {
        let places = names.zip(self.sources.iter().map(|opened| opened.root.clone())).collect();
        Self { places: Arc::new(places), ..self }
    }

    /// The images.
    pub fn set(&self) -> &ImageSet {
        &self.set
    }

    /// For items whose sources these are: an item may name its source by another name than its place.
    #[must_use]
    pub fn of_sources(self, sources: &[Source]) -> Self {
        let place =
            |source: &Source| Some((source.name.clone(), Source::name_of(source.images.as_ref()?.as_ref())));
        let mut places: HashMap<_, _> = sources.iter().filter_map(place).collect();
        places.extend(self.places.iter().map(|(name, place)| (name.clone(), place.clone())));
        Self { places: Arc::new(places), ..self }
    }

    /// The number of the image of an item. Only images that were listed when the set was opened are found, so no path
    /// leads out of the folder.
    ///
    /// With several sources the same path may name different images: an image is then searched only in its own source, or
    /// in a folder that contains it. The image of a source that was moved is found by its path, if no other item has that
    /// path. `source` is `None` for items of one source: the path then identifies the image, if no two opened sources have it.
    pub fn find(&self, source: Option<&str>, path: &str, is_only_path: impl FnOnce() -> bool) -> Option<u32> {
        let mut anywhere = (0..self.sources.len()).filter_map(|at| self.at(at, path));
        let mut alone = || anywhere.next().filter(|_| anywhere.next().is_none());
        let Some(source) = source else { return alone() };
        let place = self.places.get(source).map(String::as_str);
        let places = || place.into_iter().chain([source]);
        if places().any(|place| self.below(place).next().is_some()) {
            return places()
                .find_map(|place| self.below(place).find_map(|(at, folder)| self.at(at, &(folder + path))));
        }
        // A source without a place was named by a client that added an item, whose image is not stored.
        (place.is_some() && is_only_path()).then(alone).flatten()
    }

    /// The opened sources that contain `place`, with its path in each: empty, or with a `/` at its end.
    fn below<'a>(&'a self, place: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        self.sources.iter().enumerate().filter_map(move |(at, Opened { root, address })| {
            if place == root || place == address {
                return Some((at, String::new()));
            }
            let folder = place.strip_prefix(root.as_str())?.strip_prefix('/')?;
            Some((at, format!("{folder}/")))
        })
    }

    fn at(&self, source: usize, path: &str) -> Option<u32> {
        let at = self.sorted.binary_search_by(|&image| place(&self.set, image).cmp(&(source, path))).ok()?;
        Some(self.sorted[at])
    }
}

fn place(set: &ImageSet, image: u32) -> (usize, &str) {
    (set.source(image as usize), set.path(image as usize))
}
