//! Further columns of rows, and conditions on them.

use gallerist::retrieval::columns::{Column, ColumnKind, Columns, Value};
use gallerist::retrieval::{EmbeddingSet, Matrix};
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::{OrValueError, detached};

/// The name of a column and its values: numbers (NaN where one is missing), or texts with whether tags are meant.
pub(crate) type Given<'py> = Vec<(String, GivenValues<'py>)>;

#[derive(FromPyObject)]
pub(crate) enum GivenValues<'py> {
    Numbers(PyReadonlyArray1<'py, f64>),
    Texts((bool, Vec<Option<String>>)),
}

/// The columns. Texts that look like numbers stay texts: Python has numbers of its own.
pub(crate) fn columns(given: Option<Given<'_>>) -> PyResult<Columns> {
    let column = |(name, values): (String, GivenValues<'_>)| match values {
        GivenValues::Numbers(numbers) => {
            let numbers = numbers.as_array();
            Column::numbers(name, numbers.iter().map(|&number| (!number.is_nan()).then_some(number)))
        }
        GivenValues::Texts((true, texts)) => Column::parse(name, ColumnKind::Tags, texts),
        GivenValues::Texts((false, texts)) => {
            let inferred = Column::infer(&name, texts.iter().map(|text| text.as_deref().unwrap_or("")))?;
            match inferred.kind() {
                ColumnKind::Date | ColumnKind::Text => Ok(inferred),
                ColumnKind::Number | ColumnKind::Tags => Column::parse(name, ColumnKind::Text, texts),
            }
        }
    };
    let list = given.unwrap_or_default().into_iter().map(|of| column(of).or_value_error());
    Columns::new(list.collect::<PyResult<_>>()?).or_value_error()
}

/// Arrays of numbers (f64, NaN where a value is missing), and lists of texts, dates and lists of tags (None where missing).
pub(crate) fn to_dict<'py>(py: Python<'py>, columns: &Columns) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for column in columns.iter() {
        let values = (0..column.len()).map(|row| column.value(row));
        if column.kind() == ColumnKind::Number {
            let number = |value| if let Some(Value::Number(number)) = value { number } else { f64::NAN };
            dict.set_item(column.name(), values.map(number).collect::<Vec<f64>>().into_pyarray(py))?;
            continue;
        }
        let list = PyList::empty(py);
        for value in values {
            match value {
                Some(value @ Value::Tags(_)) => list.append(value.tags().collect::<Vec<_>>())?,
                Some(value) => list.append(value.to_string())?,
                None => list.append(py.None())?,
            }
        }
        dict.set_item(column.name(), list)?;
    }
    Ok(dict)
}

/// Whether each of `count` rows meets a condition.
#[pyfunction]
#[pyo3(name = "where_rows", signature = (condition, count, labels, paths, cameras, given))]
pub(crate) fn where_rows<'py>(
    py: Python<'py>,
    condition: &str,
    count: usize,
    labels: Option<Vec<String>>,
    paths: Option<Vec<String>>,
    cameras: Option<Vec<String>>,
    given: Option<Given<'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let empty = Matrix::new(count, 0, Vec::new()).or_value_error()?;
    let rows = EmbeddingSet { labels, cameras, paths, columns: columns(given)?, ..empty.into() };
    let condition = gallerist::parse_condition(condition).or_value_error()?;
    let mask = detached(py, || condition.mask(&rows).or_value_error())?;
    Ok(mask.into_pyarray(py).into_any())
}
