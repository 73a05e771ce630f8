//! Embedding texts with the text tower of a model.

use burn::tensor::{Device, Tensor, TensorData};

use super::trained::Model;
use crate::{Error, Result};

/// The embedding of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedText {
    /// The embedding, comparable with those of images.
    pub embedding: Vec<f32>,
    /// The number of tokens that the text was cut to; `None` for a text that fits.
    pub cut_to: Option<usize>,
}

impl Model {
    /// Whether the run file has a text tower (`[text]`).
    pub fn has_text(&self) -> bool {
        self.config.text.is_some()
    }

    /// The embedding of a text, comparable with the embeddings of images of this model: the text tower of the run file's
    /// `[text]` computes it. It has length 1 where those of images have.
    ///
    /// The tower is opened by the first call.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use gallerist_train::model::Model;
    ///
    /// let model = Model::load(Path::new("runs/clip/checkpoints/best.safetensors"))?;
    /// let shoe = model.embed_text("a red shoe")?;
    /// assert!(shoe.cut_to.is_none());
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the run file has no text tower, the tower's files are gone or have changed, or the text is empty.
    pub fn embed_text(&self, text: &str) -> Result<EmbeddedText> {
        let Some(config) = &self.config.text else {
            return Err(Error::from(gallerist_tensor::Error::Conflict {
                message: "the model has no text tower".into(),
                hint: "if it is of a pair such as CLIP, add a section [text] with `file` and `tokenizer` to the config.toml of the \
                       run (docs/guides/own-model.md)"
                    .into(),
            }));
        };
        let tower = match self.text.get() {
            Some(tower) => tower,
            // Two threads may open it at once; one of them wins.
            None => {
                let opened = config.open()?;
                self.text.get_or_init(|| opened)
            }
        };
        let found = self.config.text_row(tower, text)?;
        let shape = [1, found.row.len()];
        let row = Tensor::<2>::from_data(TensorData::new(found.row, shape), &Device::flex());
        let row = self.heads.embed(vec![row], &self.places, self.normalizes());
        let embedding = row.into_data().try_into_vec::<f32>().expect("a row is f32");
        Ok(EmbeddedText { embedding, cut_to: found.cut_to })
    }
}
