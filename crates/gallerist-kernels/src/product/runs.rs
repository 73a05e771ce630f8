//! The terms of a sum as runs of equally spaced elements, and their division into chunks.

use super::sizes::{MAX_TILE_TERMS, TILE_TERMS, max_terms};
use super::unit::Precision;

/// Consecutive terms of a sum. Their left operands start `offset` elements after the row's first element and are
/// [`Product::step`](super::Product::step) elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// How far the terms of `runs`, which are `step` elements apart, are from the row's first element.
pub(super) fn offsets<'a>(runs: impl IntoIterator<Item = &'a Run>, step: usize) -> Vec<usize> {
    runs.into_iter().flat_map(|run| (0..run.len).map(move |k| run.offset + k * step)).collect()
}

/// Splits `runs` into chunks of at most 96 to 384 terms (`f32`, by the instruction set) or 512 terms (bf16). Each chunk comes
/// with the number of terms before it. Sums of `f32` continue from one chunk to the next, so that the split does not change
/// their bits; that of bf16 depends on the runs alone.
pub(crate) fn chunks(runs: &[Run], step: usize, precision: Precision) -> Vec<(usize, Vec<Run>)> {
    let total: usize = runs.iter().map(|run| run.len).sum();
    let (most, multiple) = match precision {
        Precision::F32 => (max_terms(), 1),
        Precision::Bf16(_) => (MAX_TILE_TERMS, TILE_TERMS),
    };
    let per_chunk = total.div_ceil(total.div_ceil(most).max(1)).max(1).next_multiple_of(multiple);
    let mut chunks = vec![];
    let mut chunk = vec![];
    let (mut done, mut left) = (0, per_chunk);
    for run in runs {
        let mut run = *run;
        while run.len > 0 {
            let len = run.len.min(left);
            chunk.push(Run { offset: run.offset, len });
            run = Run { offset: run.offset + len * step, len: run.len - len };
            left -= len;
            if left == 0 {
                chunks.push((done, std::mem::take(&mut chunk)));
                done += per_chunk;
                left = per_chunk;
            }
        }
    }
    if !chunk.is_empty() {
        chunks.push((done, chunk));
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::unit::Unit;

    #[test]
    fn chunks_hold_every_term_once_and_in_order() {
        let lens = [vec![1], vec![96], vec![97], vec![192, 192, 192], vec![7; 40], vec![500, 3]];
        for (lens, precision) in lens.iter().flat_map(|lens| {
            [Precision::F32, Precision::Bf16(Unit::PORTABLE)].map(|precision| (lens, precision))
        }) {
            let step = 2;
            let mut runs = vec![];
            for (index, len) in lens.iter().enumerate() {
                runs.push(Run { offset: 10_000 * index, len: *len });
            }
            let terms = |runs: &[Run]| -> Vec<usize> {
                let of_run = |run: &Run| (0..run.len).map(move |k| k * step);
                runs.iter().flat_map(|run| of_run(run).map(move |k| run.offset + k)).collect()
            };
            let wanted = terms(&runs);
            let mut found = vec![];
            for (first, chunk) in chunks(&runs, step, precision) {
                assert_eq!(first, found.len());
                let of_chunk = terms(&chunk);
                match precision {
                    Precision::F32 => assert!(of_chunk.len() <= max_terms()),
                    Precision::Bf16(_) => {
                        assert!(of_chunk.len() <= MAX_TILE_TERMS && first.is_multiple_of(TILE_TERMS));
                    }
                }
                assert!(!of_chunk.is_empty());
                found.extend(of_chunk);
            }
            assert_eq!(found, wanted);
        }
    }
}
