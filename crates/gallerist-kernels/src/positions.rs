//! Lists of positions.

use gallerist_util::vectorized;

/// The greatest position, if there is one. The bounds of every kernel are checked by it.
pub(crate) fn greatest(positions: &[usize]) -> Option<usize> {
    (!positions.is_empty()).then(|| maximum(positions))
}

vectorized! {
    fn maximum<'a>(positions: &'a [usize]) -> usize {
        positions.iter().fold(0, |greatest, &position| greatest.max(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_any_number_of_positions_is_found() {
        for count in 0..70 {
            let mut positions: Vec<usize> = (0..count).map(|i| i * 7919 % 101).collect();
            assert_eq!(greatest(&positions), positions.iter().copied().max());
            for i in 0..count {
                let before = std::mem::replace(&mut positions[i], usize::MAX - i);
                assert_eq!(greatest(&positions), Some(usize::MAX - i));
                positions[i] = before;
            }
        }
    }
}
