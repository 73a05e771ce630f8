//! The types of a build without the engine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inspection::Inspection;
use crate::rows::Rows;
use crate::text_row::TextRow;

/// The error of every model.
fn absent(path: &Path) -> Error {
    Error {
        path: Some(path.into()),
        reason: "this program was built without the engine for ONNX models".into(),
        hint: Some("build it with `--features onnx`".into()),
    }
}

/// An ONNX model; a build without the engine has none.
#[derive(Debug)]
pub enum Model {}

impl Model {
    /// Refuses every file.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(path: &Path, _output: Option<&str>, _rows: Rows, _engine: Engine) -> Result<Self> {
        Err(absent(path))
    }

    /// See the documentation of a build with the engine.
    pub fn sha256(&self) -> &str {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn rows(&self) -> Rows {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn output(&self) -> &str {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn engine(&self) -> Engine {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn image_shape(&self) -> [Option<usize>; 3] {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn features(&self, _shape: [usize; 3]) -> Result<usize> {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn checked_features(&self, _shape: [usize; 3]) -> Result<usize> {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn extract(&self, _images: &[f32], _shape: [usize; 4]) -> Result<Vec<f32>> {
        match *self {}
    }
}

/// The text tower of a model; a build without the engine has none.
#[derive(Debug)]
pub enum TextModel {}

impl TextModel {
    /// Refuses every file.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(
        path: &Path,
        _tokenizer: &Path,
        _output: Option<&str>,
        _length: Option<usize>,
        _engine: Engine,
    ) -> Result<Self> {
        Err(absent(path))
    }

    /// See the documentation of a build with the engine.
    pub fn sha256(&self) -> &str {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn output(&self) -> &str {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    pub fn length(&self) -> usize {
        match *self {}
    }

    /// See the documentation of a build with the engine.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn embed(&self, _text: &str) -> Result<TextRow> {
        match *self {}
    }
}

impl Inspection {
    /// Refuses every file.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn check(path: &Path, _engine: Engine) -> Result<()> {
        Err(absent(path))
    }

    /// Refuses every file.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn of_file(path: &Path, _engine: Engine) -> Result<Self> {
        Err(absent(path))
    }
}
