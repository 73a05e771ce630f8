//! The text tower of a run file and the network that it belongs to.

use gallerist_onnx::{TextModel, TextRow};

use super::schema::RunConfig;
use super::text::{TextConfig, conflict, refused};
use crate::Result;

impl RunConfig {
    /// Refuses a text tower without its files, and one that does not go with the network.
    pub(super) fn check_text(&self) -> Result<()> {
        let Some(text) = &self.text else { return Ok(()) };
        for (key, path) in [("text.file", &text.file), ("text.tokenizer", &text.tokenizer)] {
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
        if self.network.heads().len() != 1 {
            return Err(conflict(
                "[text] needs a network with one head".into(),
                "leave out [text], or take one head: network.heads",
            ));
        }
        // In every built-in network, `dimensions` above 0 is the length of a layer after the features.
        let keys = toml::Table::try_from(&self.network.architecture).expect("a network is plain data");
        if keys.get("dimensions").and_then(toml::Value::as_integer).is_some_and(|dimensions| dimensions > 0) {
            return Err(conflict(
                "[text] does not go with a trained head: a text is comparable with the features of the image tower only"
                    .into(),
                "leave out [text], or set network.dimensions = 0",
            ));
        }
        Ok(())
    }

    /// Takes length and SHA-256 of the text tower from its files, and checks that its rows fit the network's.
    pub(super) fn suit_text(&mut self) -> Result<()> {
        let Some(text) = self.text.as_ref().filter(|text| text.sha256.is_empty()) else { return Ok(()) };
        self.check_text()?;
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
