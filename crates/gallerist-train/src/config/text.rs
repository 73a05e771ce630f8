//! `[text]`.

use std::path::PathBuf;

use gallerist_onnx::{TextModel, TextRow};
use serde::{Deserialize, Serialize};

use super::schema::RunConfig;
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
    /// When a file cannot be used, and when the files are others than those that the run file names.
    pub fn open(&self) -> Result<TextModel> {
        let length = (self.length > 0).then_some(self.length);
        let tower =
            TextModel::open(&self.file, &self.tokenizer, self.output.as_deref(), length).map_err(refused)?;
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

    pub(super) fn validate(&self, config: &RunConfig) -> Result<()> {
        for (key, path) in [("text.file", &self.file), ("text.tokenizer", &self.tokenizer)] {
            if path.as_os_str().is_empty() {
                let wanted = "a file: [text] has a text tower and its tokenizer".into();
                return Err(gallerist_tensor::Error::Value {
                    key: key.into(),
                    wanted,
                    found: "absent".into(),
                }
                .into());
            }
        }
        if config.network.heads().len() != 1 {
            return Err(conflict(
                "[text] needs a network with one head".into(),
                "leave out [text], or take one head: network.heads",
            ));
        }
        let network = config.network.architecture.downcast_ref::<gallerist_nn::OnnxConfig>();
        if network.is_some_and(|network| network.dimensions > 0) {
            return Err(conflict(
                "[text] does not go with a trained head: a text is comparable with the features of the image tower only"
                    .into(),
                "leave out [text] or network.dimensions",
            ));
        }
        Ok(())
    }
}

impl RunConfig {
    /// Takes length and SHA-256 of the text tower from its files, and checks that its rows fit the network's.
    pub(super) fn suit_text(&mut self) -> Result<()> {
        let Some(text) = self.text.as_ref().filter(|text| text.sha256.is_empty()) else { return Ok(()) };
        text.validate(self)?;
        let tower = text.open()?;
        self.text_row(&tower, "a")?;
        let (length, sha256) = (tower.length(), tower.sha256().to_owned());
        self.text = Some(TextConfig { length, sha256, ..text.clone() });
        Ok(())
    }

    /// The row of a text, which is as long as the network's.
    pub(crate) fn text_row(&self, tower: &TextModel, text: &str) -> Result<TextRow> {
        let found = tower.embed(text).map_err(refused)?;
        let wanted = self.network.dimensions();
        if found.row.len() == wanted {
            return Ok(found);
        }
        Err(conflict(
            format!(
                "the output `{}` of the text tower has rows of {} numbers, the network's have {wanted}",
                tower.output(),
                found.row.len()
            ),
            "give the projected outputs of both towers: text.output and network.output, `text_embeds` and `image_embeds` of CLIP",
        ))
    }
}

fn conflict(message: String, hint: &str) -> crate::Error {
    gallerist_tensor::Error::Conflict { message, hint: hint.into() }.into()
}

fn refused(error: gallerist_onnx::Error) -> crate::Error {
    let hint =
        error.hint().unwrap_or_else(|| "`gallerist model inspect FILE` shows what a model contains".into());
    gallerist_tensor::Error::Conflict { message: error.to_string(), hint }.into()
}
