//! NumPy arrays to and from the library's types.

use std::collections::HashMap;

use gallerist::retrieval::{Matrix, MatrixView};
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::errors::{OrValueError, value_error};

/// The values in row-major order; a copy.
pub(crate) fn values<T: Element + Copy>(array: &PyReadonlyArray2<'_, T>) -> Vec<T> {
    match array.as_slice() {
        Ok(values) => values.to_vec(),
        Err(_) => array.as_array().iter().copied().collect(),
    }
}

pub(crate) fn matrix(array: &PyReadonlyArray2<'_, f32>) -> PyResult<Matrix> {
    Matrix::new(array.shape()[0], array.shape()[1], values(array)).or_value_error()
}

/// The rows of a contiguous array, without a copy.
pub(crate) fn view<'a>(array: &'a PyReadonlyArray2<'_, f32>, what: &str) -> PyResult<MatrixView<'a>> {
    let rows = array.as_slice().map_err(|_| value_error(format!("{what} must be contiguous"), None))?;
    MatrixView::new(array.shape()[0], array.shape()[1], rows).or_value_error()
}

/// The labels of samples: one each, or several.
pub(crate) enum LabelList {
    One(Vec<i64>),
    /// Those of sample `i` end at the `i`-th place of the second list.
    Several(Vec<i64>, Vec<u64>),
}

impl LabelList {
    pub(crate) fn new(
        values: PyReadonlyArray1<'_, i64>,
        ends: Option<PyReadonlyArray1<'_, u64>>,
    ) -> PyResult<Self> {
        let values = values.as_array().to_vec();
        let Some(ends) = ends else { return Ok(LabelList::One(values)) };
        let ends = ends.as_array().to_vec();
        let rising = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        if !rising || ends.last().copied().unwrap_or(0) != values.len() as u64 {
            return Err(value_error("the ends of the sets of labels do not fit the labels", None));
        }
        Ok(LabelList::Several(values, ends))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            LabelList::One(values) => values.len(),
            LabelList::Several(_, ends) => ends.len(),
        }
    }

    pub(crate) fn is_sets(&self) -> bool {
        matches!(self, LabelList::Several(..))
    }

    /// The labels of each sample.
    pub(crate) fn sets(&self) -> Vec<&[i64]> {
        match self {
            LabelList::One(values) => values.chunks(1).collect(),
            LabelList::Several(values, ends) => {
                let mut start = 0;
                let mut set = |&end: &u64| {
                    let labels = &values[start..end as usize];
                    start = end as usize;
                    labels
                };
                ends.iter().map(&mut set).collect()
            }
        }
    }
}

/// Numbers labels in the order of their first appearance.
#[derive(Default)]
pub(crate) struct Numbering(HashMap<i64, u32>);

impl Numbering {
    pub(crate) fn of(&mut self, label: i64) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(label).or_insert(next)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
