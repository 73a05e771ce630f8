//! The classes of queries and gallery, without their embeddings.

/// The classes of the rows of an evaluation, known before the images are embedded: see
/// [`Rules::classes`](super::Rules::classes).
#[derive(Clone, Copy, Debug)]
pub struct RowClasses<'a> {
    /// The class of each query.
    pub queries: &'a [u32],
    /// The class of each image of the gallery; `None` if the queries are compared with each other.
    pub gallery: Option<&'a [u32]>,
    /// The class that is no class: images with it are skipped for every query.
    pub junk: Option<u32>,
}

impl<'a> RowClasses<'a> {
    /// The classes of what is searched: the queries themselves if there is no gallery.
    pub(super) fn searched(&self) -> &'a [u32] {
        self.gallery.unwrap_or(self.queries)
    }

    /// The classes of the queries without junk, sorted.
    pub(super) fn sorted(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> =
            self.queries.iter().copied().filter(|&class| Some(class) != self.junk).collect();
        sorted.sort_unstable();
        sorted
    }
}
