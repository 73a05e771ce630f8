//! Sizes of register blocks, panels and tiles.

use gallerist_util::simd::run;
use pulp::{Simd, WithSimd};

/// Rows of the register block of an `f32` product.
pub(crate) const BLOCK_ROWS: usize = 6;

/// Most columns of a panel with any instruction set: 4 vectors of 16 lanes.
pub(crate) const MAX_PANEL: usize = 64;

/// Most elements of a panel that are multiplied before the sums return to memory: 24 KB stay in the first-level cache meanwhile.
const MAX_PANEL_PART: usize = 96 * MAX_PANEL;

/// Most terms of an `f32` product that are computed for all columns before the next: those of some hundred rows stay in the
/// second-level cache.
const MAX_TERMS_TOGETHER: usize = 384;

/// Most terms of an `f32` product that are accumulated before the sums return to memory: 96, more where panels are narrower.
pub(super) fn max_terms() -> usize {
    (MAX_PANEL_PART / panel_width()).min(MAX_TERMS_TOGETHER)
}

/// Chunks of so many terms that are computed for all columns before the next.
pub(super) fn chunks_together() -> usize {
    MAX_TERMS_TOGETHER / max_terms()
}

/// Fewest panels of an `f32` product for which a left operand whose terms are not neighbours is copied.
pub(crate) const FEWEST_COPIED_PANELS: usize = 3;

/// Most terms of which both operands are copied at a time then: 128, more where panels are narrower.
pub(super) fn max_copied_terms() -> usize {
    (128 * MAX_PANEL / panel_width()).min(MAX_TERMS_TOGETHER)
}

/// Rows of a bf16 tile.
pub(super) const TILE_ROWS: usize = 16;

/// Columns of a bf16 tile of the right operand.
pub(super) const TILE_COLUMNS: usize = 16;

/// Terms of a bf16 tile.
pub(super) const TILE_TERMS: usize = 32;

/// Size of a tile, in elements of 4 bytes.
pub(super) const TILE: usize = 256;

/// Most terms of a bf16 product that are accumulated before the sums return to memory. The tiles of two columns of
/// tiles, 32 KB, stay in the first-level cache meanwhile.
pub(super) const MAX_TILE_TERMS: usize = 512;

/// Number of columns that one pass of an `f32` product computes: the width of a packed panel.
pub(crate) fn panel_width() -> usize {
    run(PanelWidth)
}

pub(super) struct PanelWidth;

impl WithSimd for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        vectors_per_panel::<S>() * S::F32_LANES
    }
}

/// 6 x 4 accumulators need 29 registers, 6 x 2 need 15.
#[inline(always)]
pub(super) const fn vectors_per_panel<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 4 } else { 2 }
}
