//! Every pair is in force: no mining.

use serde::{Deserialize, Serialize};

use crate::Result;

/// The miner `all`; it has no parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllConfig {}

impl AllConfig {
    /// Nothing can be out of range.
    ///
    /// # Errors
    ///
    /// None.
    pub fn validate(&self) -> Result<()> {
        Ok(())
    }
}
