//! Draws of images from a class, without repetition over the epochs.

use gallerist_util::random::Random;

/// The `number`-th draw of `count` images from a class.
///
/// With enough images a draw never repeats one, and draws 0, 1, 2, … together
/// walk through one permutation of the class after the other. Where a draw
/// spans two permutations, the images it has from the first are moved out
/// of its part of the second. `count / gcd` permutations are `size / gcd` whole
/// draws (gcd of size and count), after which the cycle starts again, so that any draw is
/// computed without the ones before it.
///
/// With too few images, a permutation of the class is repeated.
pub(super) fn draw(members: &[u32], class: u32, count: usize, seed: u64, number: u64) -> Vec<u32> {
    let size = members.len();
    let shuffled = |round: u64| {
        let mut order = members.to_vec();
        Random::new(seed, "class images", round, class.into()).shuffle(&mut order);
        order
    };
    if size <= count {
        return shuffled(number).into_iter().cycle().take(count).collect();
    }
    let gcd = gcd(size, count);
    let (draws, rounds) = ((size / gcd) as u64, (count / gcd) as u64);
    let (cycle, start) = (number / draws, (number % draws) as usize * count);
    let mut order = Vec::new();
    let mut picked = Vec::with_capacity(count);
    for round in 0..rounds {
        // Images that the draw begun in the last round already has.
        let begun = (round as usize * size) % count;
        let tail = order.split_off(order.len().saturating_sub(begun));
        order = shuffled(cycle * rounds + round);
        if begun > 0 {
            // The first images not in the tail come first; the rest keeps its order.
            let mut wanted = count - begun;
            let (mut first, mut rest) = (Vec::with_capacity(size), Vec::new());
            for image in order {
                if wanted > 0 && !tail.contains(&image) {
                    wanted -= 1;
                    first.push(image);
                } else {
                    rest.push(image);
                }
            }
            first.append(&mut rest);
            order = first;
        }
        let offset = round as usize * size;
        let from = start.max(offset);
        let to = (start + count).min(offset + size);
        if from < to {
            picked.extend_from_slice(&order[from - offset..to - offset]);
        }
        if picked.len() == count {
            break;
        }
    }
    picked
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn draws_repeat_nothing_and_show_every_image_equally_often(
            size in 1usize..40, count in 1usize..40, seed in any::<u64>(), cycle in 0u64..3,
        ) {
            prop_assume!(count <= size);
            let members: Vec<u32> = (100..100 + size as u32).collect();
            let draws = (size / gcd(size, count)) as u64;
            let mut times = vec![0; size];
            for number in cycle * draws..(cycle + 1) * draws {
                let mut images = draw(&members, 3, count, seed, number);
                prop_assert_eq!(images.len(), count);
                for &image in &images {
                    times[image as usize - 100] += 1;
                }
                images.sort_unstable();
                images.dedup();
                prop_assert_eq!(images.len(), count);
            }
            prop_assert!(times.iter().all(|&t| t == count / gcd(size, count)));
        }

        #[test]
        fn consecutive_draws_walk_through_permutations(
            size in 2usize..20, count in 1usize..20, seed in any::<u64>(),
        ) {
            prop_assume!(count < size);
            let members: Vec<u32> = (0..size as u32).collect();
            let stream: Vec<u32> =
                (0..size as u64).flat_map(|n| draw(&members, 0, count, seed, n)).collect();
            for permutation in stream.chunks_exact(size) {
                let mut sorted = permutation.to_vec();
                sorted.sort_unstable();
                prop_assert_eq!(&sorted, &members);
            }
        }

        #[test]
        fn a_small_class_is_repeated_evenly(size in 1usize..9, count in 1usize..40, seed in any::<u64>()) {
            prop_assume!(size < count);
            let members: Vec<u32> = (0..size as u32).collect();
            let images = draw(&members, 0, count, seed, 5);
            prop_assert_eq!(images.len(), count);
            for m in members {
                let times = images.iter().filter(|&&i| i == m).count();
                prop_assert!(times == count / size || times == count.div_ceil(size));
            }
        }
    }
}
