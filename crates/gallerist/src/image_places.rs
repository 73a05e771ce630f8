//! Where the images of embeddings are.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::path::Path;

use gallerist_data::{ImageSet, OpenOptions};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::file::Source;
use gallerist_serve::SourceImages;
use gallerist_util::text::address;

/// The places of the images of embeddings or of an index. They are displayed as a list for messages.
#[derive(Clone, Debug)]
pub(crate) struct ImagePlaces<'a> {
    places: Vec<&'a str>,
    /// The sources of the items.
    sources: &'a [Source],
}

impl<'a> ImagePlaces<'a> {
    /// The places that the sources name, or `common`, which is the place of all images.
    pub(crate) fn new(common: Option<&'a str>, sources: &'a [Source]) -> Self {
        let mut known = HashSet::new();
        let of_sources = sources.iter().filter_map(|source| source.images.as_deref());
        let mut places: Vec<&str> = of_sources.filter(|&place| known.insert(place)).collect();
        // Earlier versions also wrote a common place for several sources: the name of the first "and 1 more".
        if let Some(common) = common
            && places.len() < 2
            && (places.is_empty() || is_there(Path::new(common)))
        {
            places = vec![common];
        }
        Self { places, sources }
    }

    /// The places that a set names.
    pub(crate) fn of_set(set: &'a EmbeddingSet) -> Self {
        Self::new(set.source.as_deref(), sources_of(set))
    }

    /// The given place in place of those that a set names.
    pub(crate) fn given(place: &'a str, set: &'a EmbeddingSet) -> Self {
        Self { places: vec![place], sources: sources_of(set) }
    }

    /// Whether there is no place.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether these are the same places, and at least one.
    pub(crate) fn is_same(&self, other: &ImagePlaces<'_>) -> bool {
        !self.is_empty() && self.sorted() == other.sorted()
    }

    fn sorted(&self) -> BTreeSet<&str> {
        self.places.iter().copied().collect()
    }

    /// The places where there is something to open.
    pub(crate) fn found(&self) -> Vec<&'a str> {
        self.places.iter().copied().filter(|place| is_there(Path::new(place))).collect()
    }

    /// The images at the places that are found; `None` if there are none.
    pub(crate) fn open(&self) -> Option<SourceImages> {
        let found = self.found();
        if found.is_empty() {
            return None;
        }
        // Two sources may have the same image.
        let options = OpenOptions { allow_repeats: true, ..OpenOptions::default() };
        let set = ImageSet::open_with(&found, &options).ok()?;
        Some(SourceImages::new(set).of_sources(self.sources))
    }
}

impl fmt::Display for ImagePlaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The most places that are named.
        const SHOWN: usize = 3;
        if self.places.is_empty() {
            return f.write_str("an unnamed place");
        }
        let names: Vec<String> = self.places.iter().take(SHOWN).map(|place| format!("`{place}`")).collect();
        let more = if self.places.len() > SHOWN { ", …" } else { "" };
        write!(f, "{}{more}", names.join(", "))
    }
}

/// Whether images may be read from a place: an address of a source is opened to know.
pub(crate) fn is_there(place: &Path) -> bool {
    place.to_str().and_then(address).is_some() || place.exists()
}

/// The sources of the rows of a set.
pub(crate) fn sources_of(set: &EmbeddingSet) -> &[Source] {
    set.sources.as_ref().map_or(&[][..], |sources| sources.list())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(place: Option<&Path>) -> Source {
        Source { name: "shop".into(), images: place.map(Source::name_of) }
    }

    #[test]
    fn several_sources_are_in_their_own_places_and_one_in_the_common_place() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().canonicalize().unwrap().join(name));
        std::fs::create_dir(&a).unwrap();
        let (of_a, of_b) = (a.to_str().unwrap(), b.to_str().unwrap());
        let places = |common, sources: &[Source]| {
            let places = ImagePlaces::new(common, sources);
            (places.places.join(" "), places.found().join(" "))
        };
        let both = [source(Some(&a)), source(Some(&b)), source(None)];
        let named = format!("{of_a} {of_b}");
        // As earlier versions wrote it.
        let joined = format!("{of_a} and 1 more");
        for common in [None, Some(of_a), Some(joined.as_str())] {
            assert_eq!(places(common, &both), (named.clone(), of_a.to_owned()));
        }
        let one = (of_a.to_owned(), of_a.to_owned());
        for common in [None, Some(of_b), Some(joined.as_str())] {
            assert_eq!(places(common, &both[..1]), one, "{common:?}");
        }
        assert_eq!(places(Some(of_a), &both[1..2]), one);
        assert_eq!(places(Some(of_a), &[]), one);
        assert_eq!(places(Some(of_b), &[]), (of_b.to_owned(), String::new()));
        assert_eq!(places(None, &both[2..]), (String::new(), String::new()));
    }

    #[test]
    fn the_order_of_the_sources_does_not_matter() {
        let [a, b] = ["/gone/a", "/gone/b"].map(|place| source(Some(Path::new(place))));
        let (first, other) = ([a.clone(), b.clone()], [b, a]);
        let is_same = |common, sources: &[Source]| {
            ImagePlaces::new(None, &first).is_same(&ImagePlaces::new(common, sources))
        };
        assert!(is_same(None, &other) && is_same(Some("/gone/a and 1 more"), &other));
        assert!(!is_same(None, &other[..1]) && !is_same(None, &[]));
        assert!(!ImagePlaces::new(None, &[]).is_same(&ImagePlaces::new(None, &[])));
        assert_eq!(ImagePlaces::new(None, &first).to_string(), "`/gone/a`, `/gone/b`");
    }
}
