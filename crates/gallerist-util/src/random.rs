//! Random numbers that depend on what they are for, not on when they are drawn.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Infallible, Rng, SeedableRng, TryRng};
use sha2::{Digest, Sha256};

/// Prefix of the hashed text. A change of the derivation changes it.
const DOMAIN: &[u8] = b"gallerist random 1\0";

/// A random generator that is a pure function of `(seed, purpose, epoch, index)`.
///
/// # Derivation
///
/// The key of a ChaCha8 generator (stream 0, position 0) is
///
/// ```text
/// SHA-256("gallerist random 1\0" || seed || epoch || index || purpose)
/// ```
///
/// with the three numbers as 8 bytes, little endian, and the purpose as UTF-8.
/// The methods below consume words of that stream in a fixed way of their own,
/// so that results survive an update of the `rand` crate. Golden values are
/// part of the tests.
///
/// It implements `rand_core`'s `Rng`, for use with other crates; what those
/// draw from it is as stable as they are.
///
/// # Example
///
/// ```
/// use gallerist_util::random::Random;
///
/// let mut a = Random::new(7, "augment", 3, 41);
/// let mut b = Random::new(7, "augment", 3, 41);
/// assert_eq!(a.unit(), b.unit());
/// ```
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The generator for one purpose, epoch and index.
    pub fn new(seed: u64, purpose: &str, epoch: u64, index: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(seed.to_le_bytes());
        hash.update(epoch.to_le_bytes());
        hash.update(index.to_le_bytes());
        hash.update(purpose.as_bytes());
        Random(ChaCha8Rng::from_seed(hash.finalize().into()))
    }

    /// An independent generator of the same key, for something that may or may not be drawn: number `stream` of
    /// ChaCha's streams, from its start. The generator itself is stream 0.
    ///
    /// ```
    /// use gallerist_util::random::Random;
    ///
    /// let random = Random::new(7, "augment", 3, 41);
    /// assert_eq!(random.stream(1).unit(), random.stream(1).unit());
    /// assert_ne!(random.stream(1).unit(), random.stream(2).unit());
    /// ```
    pub fn stream(&self, stream: u64) -> Random {
        let mut other = self.0.clone();
        other.set_stream(stream);
        other.set_word_pos(0);
        Random(other)
    }

    /// A number in `[0, 1)`, one of 2^53, from one 64-bit word.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number in `[low, high)`; `low` where both are equal.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with probability `p`: never for 0, always for 1.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// An integer in `0..n`, each equally likely.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "there is no integer below 0");
        let n = n as u64;
        // Lemire's multiplication: the low half tells the words to reject, so
        // that every result has exactly the same number of words.
        let threshold = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(n);
            if product as u64 >= threshold {
                return (product >> 64) as usize;
            }
        }
    }

    /// Puts the items into random order (Fisher-Yates, from the end).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// The numbers `0..n` in random order.
    pub fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut items: Vec<u32> = (0..u32::try_from(n).expect("fewer than 2^32 items")).collect();
        self.shuffle(&mut items);
        items
    }
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}
