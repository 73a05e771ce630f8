//! One rank.

use crate::{Collective, Result};

/// A process that trains alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Single;

impl Collective for Single {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_gather(&self, own: &[u8], _lengths: &[usize]) -> Result<Vec<u8>> {
        Ok(own.to_vec())
    }

    fn all_to_all(&self, parts: &[&[u8]], _lengths: &[usize]) -> Result<Vec<u8>> {
        Ok(parts[0].to_vec())
    }

    fn all_reduce(&self, _values: &mut [f32]) -> Result<()> {
        Ok(())
    }
}
