//! `[text]`.

use std::path::PathBuf;

use gallerist_onnx::{Engine, TextModel};
use serde::{Deserialize, Serialize};

use crate::Result;

/// `[text]`: the text tower of a model of images and texts whose image tower is the network.
///
/// `length` and `sha256` describe the files; reading a run file takes them from there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextConfig {
    /// The text tower, an ONNX file.
    pub file: PathBuf,
    /// The `tokenizer.json` of the model.
    pub tokenizer: PathBuf,
    /// The output of the tower that is taken; absent: `text_embeds`, else `pooler_output`, else the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What computes the tower.
    #[serde(skip_serializing_if = "Engine::is_default")]
    pub engine: Engine,
    /// The number of tokens of a text; 0: not yet read from the files.
    pub length: usize,
    /// SHA-256 of the files; other ones are refused. Empty: not yet read from the files.
    pub sha256: String,
}

impl TextConfig {
    /// The tower.
    ///
    /// # Errors
    ///
    /// When the engine is not available, when a file cannot be used, and when the files are others than those that the run file names.
    pub fn open(&self) -> Result<TextModel> {
        let length = (self.length > 0).then_some(self.length);
        let output = self.output.as_deref();
        let tower = TextModel::open(&self.file, &self.tokenizer, output, length, self.engine);
        let tower = tower.map_err(refused)?;
        if !self.sha256.is_empty() && self.sha256 != tower.sha256() {
            return Err(conflict(
                format!(
                    "`{}` or `{}` is another file than before\n  SHA-256 {}, wanted {}",
                    self.file.display(),
                    self.tokenizer.display(),
                    tower.sha256(),
                    self.sha256
                ),
                "give the files of the model that embedded the gallery (text.file, text.tokenizer)",
            ));
        }
        Ok(tower)
    }
}

pub(super) fn conflict(message: String, hint: &str) -> crate::Error {
    gallerist_tensor::Error::Conflict { message, hint: hint.into() }.into()
}

pub(super) fn refused(error: gallerist_onnx::Error) -> crate::Error {
    let hint =
        error.hint().unwrap_or_else(|| "`gallerist model inspect FILE` shows what a model contains".into());
    gallerist_tensor::Error::Conflict { message: error.to_string(), hint }.into()
}
