//! The mean embedding of every class.

/// The mean embedding of every class, as the network embeds it now.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassMeans {
    dimensions: usize,
    values: Vec<f32>,
}

impl ClassMeans {
    /// `values` holds one row of `dimensions` numbers per class, in the order of the class numbers.
    ///
    /// # Panics
    ///
    /// If `values` does not hold whole rows.
    pub fn new(dimensions: usize, values: Vec<f32>) -> Self {
        assert!(
            dimensions > 0 && values.len().is_multiple_of(dimensions),
            "{} values, {dimensions} a row",
            values.len()
        );
        ClassMeans { dimensions, values }
    }

    /// Length of a row.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// All rows, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The mean of a class.
    pub(super) fn row(&self, class: u32) -> &[f32] {
        &self.values[class as usize * self.dimensions..][..self.dimensions]
    }
}
