//! `Random` against an independent implementation (golden/random.py).

use std::collections::HashSet;

use gallerist_data::Random;
use rand_chacha::rand_core::Rng;

#[test]
fn words_are_those_of_the_documented_derivation() {
    let golden: [(u64, &str, u64, u64, [u64; 12]); 3] = [
        (
            0,
            "",
            0,
            0,
            [
                0xd76b33a5b7814d10,
                0x5bd57060c76a2e1f,
                0xe042c3c77068c572,
                0x92f01f4232317669,
                0x2e34d64838fbe0c2,
                0x2808f2ed1f093b63,
                0xccc713e89ea19925,
                0x5387f24f3f2bb8cd,
                0xbe22155ab308cef3,
                0x1dcb4ed629479e4f,
                0xa3510d9643f25625,
                0xe322921ac8fb462c,
            ],
        ),
        (
            7,
            "augment",
            3,
            41,
            [
                0xab11783ae85fbbc,
                0x22f93dfa89f2e5e0,
                0x4bab5755b6c66a27,
                0xd89ce0a3802ce933,
                0xb3e240b9f25e6d09,
                0x59040498f834c99e,
                0xe5a765177bc390ce,
                0x1914add975d49aee,
                0x292069317d230864,
                0x20fe98b08e73cedd,
                0x47b7838ee7867524,
                0x5bc02fc1f769bfd0,
            ],
        ),
        (
            u64::MAX,
            "Größe",
            1,
            1 << 40,
            [
                0xf938a73aaf58c1fe,
                0xc67b70c5e10eda7f,
                0x37f34eb5d310b628,
                0x20790a6d926b9d10,
                0x6a92a8001c833c34,
                0x1a45a5b42806b928,
                0x65f4ca49990c0a12,
                0x41525354c779fb45,
                0x225e4acdeb032782,
                0x6a70a60eb23ab0eb,
                0x34542481dfd31465,
                0x6e49364ef133024e,
            ],
        ),
    ];
    for (seed, purpose, epoch, index, words) in golden {
        let mut random = Random::new(seed, purpose, epoch, index);
        assert_eq!(words.map(|_| random.next_u64()), words, "{purpose}");
    }
}

#[test]
fn numbers_and_permutations_are_derived_from_the_words() {
    let mut random = Random::new(7, "augment", 3, 41);
    assert_eq!([0; 3].map(|_| random.unit()), [0.04176470723043468, 0.13661563269301835, 0.2955832084906206]);
    assert_eq!(
        Random::new(1, "classes", 2, 0).permutation(16),
        [11, 1, 14, 0, 9, 3, 10, 4, 2, 12, 13, 7, 15, 6, 8, 5]
    );
}

#[test]
fn neighbours_in_any_argument_are_unrelated() {
    let mut seen = HashSet::new();
    for seed in 0..3 {
        for purpose in ["a", "b", "ab"] {
            for epoch in 0..3 {
                for index in 0..3 {
                    assert!(seen.insert(Random::new(seed, purpose, epoch, index).next_u64()));
                }
            }
        }
    }
}

#[test]
fn integers_below_three_are_equally_frequent() {
    let mut random = Random::new(1, "test", 0, 0);
    let mut counts = [0.0f64; 3];
    for _ in 0..30_000 {
        counts[random.below(3)] += 1.0;
    }
    // Chi-squared with 2 degrees of freedom: above 13.8 once in a thousand.
    let chi: f64 = counts.iter().map(|c| (c - 10_000.0).powi(2) / 10_000.0).sum();
    assert!(chi < 13.8, "{counts:?}");
    assert_eq!(random.below(1), 0);
    assert!(!random.chance(0.0) && random.chance(1.0));
}
