//! What an ONNX file contains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its numbers: `FLOAT`, `INT64`, …
    pub dtype: String,
    /// Its sides: a number, the name of a side of any length, or `?`.
    pub shape: Vec<String>,
}

/// An operator that the engine does not have, or does not compute as ONNX defines it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MissingOperator {
    /// Its name, with its domain where that is not ONNX's own, and the setting that the engine does not have.
    pub name: String,
    /// How often the model uses it.
    pub uses: usize,
}

impl fmt::Display for MissingOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} x)", self.name, self.uses)
    }
}

/// What an ONNX file contains, without computing it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The program that wrote it.
    pub producer: Option<String>,
    /// Operator sets by domain; ONNX's own is `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    /// Inputs that the user gives.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Numbers in its weights.
    pub parameters: u64,
    /// Bytes of the file and of the files of weights that it names.
    pub bytes: u64,
    /// Files of weights that it names; they are in the same folder.
    pub external_files: BTreeSet<String>,
    /// Operators by name, with the number of their uses.
    pub operators: BTreeMap<String, usize>,
    /// Operators that the engine does not have, or does not compute as ONNX defines them.
    pub missing: Vec<MissingOperator>,
    /// Entries of its metadata.
    pub metadata: BTreeMap<String, String>,
}
