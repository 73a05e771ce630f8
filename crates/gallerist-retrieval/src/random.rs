//! Numbers drawn from a seeded generator.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The generator of stream `stream` of `seed`. Different streams are independent.
pub(crate) fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// The first `count` places of a shuffle of `0..rows`.
pub(crate) fn different(rows: usize, count: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    for at in 0..count {
        order.swap(at, at + below(rows - at, random));
    }
    order.truncate(count);
    order
}

/// A number below `bound`. The bias of the multiplication is below 2^-32 for any count of rows.
pub(crate) fn below(bound: usize, random: &mut ChaCha8Rng) -> usize {
    ((u128::from(random.next_u64()) * bound as u128) >> 64) as usize
}

/// A number from 0 to 1, 1 excluded.
pub(crate) fn unit(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
