//! Numbers in NumPy's format: as embeddings, as an array of f64, and as labels.

use gallerist_retrieval::file::npy;

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

pub(super) fn run(bytes: &[u8]) {
    let path = scratch::file("input.npy", bytes);
    let matrix = within(Limit::TEXT, bytes, || npy::read_matrix(&path));
    let array = within(Limit::TEXT, bytes, || npy::read_f64(&path));
    let labels = within(Limit::TEXT, bytes, || npy::read_labels(&path));
    if let Ok(labels) = labels {
        reached("labels");
        assert!(labels.iter().all(|label| label.parse::<i128>().is_ok()), "labels are integers");
    }
    let again = scratch::path("again.npy");
    if let Ok(matrix) = matrix {
        reached("matrix");
        npy::write_f32(&again, &matrix).expect("a matrix is written");
        let read = npy::read_matrix(&again).expect("a written matrix is read");
        assert_eq!((read.rows(), read.cols()), (matrix.rows(), matrix.cols()));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(read.as_slice()) == bits(matrix.as_slice()), "values change when they are written");
    }
    if let Ok(array) = array {
        reached("array");
        npy::write_f64(&again, &array.shape, &array.values).expect("an array is written");
        let read = npy::read_f64(&again).expect("a written array is read");
        assert_eq!(read.shape, array.shape);
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(&read.values) == bits(&array.values), "values change when they are written");
    }
}
