//! Which items a search may return.

use crate::condition::Condition;

/// A list that a value must be in, or must not be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Among<T> {
    /// One of these. An item without a value is none of them.
    In(Vec<T>),
    /// None of these. An item without a value passes.
    NotIn(Vec<T>),
}

impl<T> Among<T> {
    /// The values, whichever way they are meant.
    pub fn values(&self) -> &[T] {
        match self {
            Self::In(values) | Self::NotIn(values) => values,
        }
    }

    /// True when an item must have one of the values, false when it must have none of them.
    pub fn wanted(&self) -> bool {
        matches!(self, Self::In(_))
    }
}

/// Which items a search may return: those that pass every condition that is set.
///
/// ```
/// # use gallerist_retrieval::index::ItemFilter;
/// let others = ItemFilter::default().label_in(["heron", "wren"]).camera_not_in(["c3"]);
/// assert!(!others.is_empty());
///
/// use gallerist_retrieval::condition::Condition;
/// let cheap = others.meets(Condition::parse("price < 20")?);
/// assert!(cheap.condition.is_some());
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemFilter {
    /// By class.
    pub label: Option<Among<String>>,
    /// By camera.
    pub camera: Option<Among<String>>,
    /// By image.
    pub path: Option<Among<String>>,
    /// By id.
    pub id: Option<Among<u64>>,
    /// By columns.
    pub condition: Option<Condition>,
}

fn strings<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Vec<String> {
    values.into_iter().map(Into::into).collect()
}

impl ItemFilter {
    /// True when every item passes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Only items of these classes.
    #[must_use]
    pub fn label_in<S: Into<String>>(mut self, labels: impl IntoIterator<Item = S>) -> Self {
        self.label = Some(Among::In(strings(labels)));
        self
    }

    /// No items of these classes.
    #[must_use]
    pub fn label_not_in<S: Into<String>>(mut self, labels: impl IntoIterator<Item = S>) -> Self {
        self.label = Some(Among::NotIn(strings(labels)));
        self
    }

    /// Only items of these cameras.
    #[must_use]
    pub fn camera_in<S: Into<String>>(mut self, cameras: impl IntoIterator<Item = S>) -> Self {
        self.camera = Some(Among::In(strings(cameras)));
        self
    }

    /// No items of these cameras.
    #[must_use]
    pub fn camera_not_in<S: Into<String>>(mut self, cameras: impl IntoIterator<Item = S>) -> Self {
        self.camera = Some(Among::NotIn(strings(cameras)));
        self
    }

    /// Only items with these paths.
    #[must_use]
    pub fn path_in<S: Into<String>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.path = Some(Among::In(strings(paths)));
        self
    }

    /// No items with these paths.
    #[must_use]
    pub fn path_not_in<S: Into<String>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.path = Some(Among::NotIn(strings(paths)));
        self
    }

    /// Only items with these ids.
    #[must_use]
    pub fn id_in(mut self, ids: impl IntoIterator<Item = u64>) -> Self {
        self.id = Some(Among::In(ids.into_iter().collect()));
        self
    }

    /// Only items that meet this condition on their columns, labels, cameras and paths.
    #[must_use]
    pub fn meets(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// No items with these ids.
    #[must_use]
    pub fn id_not_in(mut self, ids: impl IntoIterator<Item = u64>) -> Self {
        self.id = Some(Among::NotIn(ids.into_iter().collect()));
        self
    }
}
