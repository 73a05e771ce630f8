//! Whether the parts of a configuration can be made again from the run file that a run keeps.

use super::schema::RunConfig;
use crate::{Error, Result};

impl RunConfig {
    /// Refuses parts of a program that are given as values and are not registered. Training itself needs no names, but
    /// [`Model::open`](crate::model::Model::open), reports and [`Trainer::resume`](crate::Trainer::resume) make the parts
    /// from the run file in the directory.
    ///
    /// # Errors
    ///
    /// [`Conflict`](gallerist_tensor::Error::Conflict) with the key whose value cannot be read, or whose name is that of
    /// another part; its hint says how parts are registered.
    pub fn check_registered(&self) -> Result<()> {
        let problem = match Self::parse(&self.to_toml(), "", &[]) {
            Ok(read) => match self.parts_unlike(&read) {
                None => return Ok(()),
                Some(section) => format!("[{section}]: its name and parameters there give another part"),
            },
            Err(Error::Config { reason, .. }) => reason,
            Err(error) => error.to_string(),
        };
        Err(gallerist_tensor::Error::Conflict {
            message: format!(
                "parts of the run cannot be made from the run file in its directory\n  {problem}"
            ),
            hint: "register the program's own parts before the run, with names of their own, such as \
                   `gallerist::Registry::default().loss::<MyLossConfig>().install()?`"
                .into(),
        }
        .into())
    }

    /// The first section whose part is another one in `read`.
    fn parts_unlike(&self, read: &RunConfig) -> Option<&'static str> {
        let sections = [
            ("network", self.network.architecture == read.network.architecture),
            ("loss", self.loss == read.loss),
            ("sampler", self.sampler == read.sampler),
            ("image", self.image == read.image),
            ("augment", self.augment == read.augment),
        ];
        sections.into_iter().find(|(_, alike)| !alike).map(|(section, _)| section)
    }
}
