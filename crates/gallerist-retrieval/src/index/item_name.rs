//! How messages name an item.

/// How messages name an item: by its path and source, else by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemName {
    /// Its id.
    pub id: u64,
    /// Its path.
    pub path: Option<String>,
    /// The name of its source.
    pub source: Option<String>,
}

impl std::fmt::Display for ItemName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.path, &self.source) {
            (Some(path), Some(source)) => write!(f, "`{path}` of `{source}`"),
            (Some(path), None) => write!(f, "`{path}` of an unknown source"),
            (None, _) => write!(f, "the item {}", self.id),
        }
    }
}
