//! One of the equal parts of a long list, such as `7/1000`.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The largest number of shards.
pub const MAX_SHARDS: u32 = 1_000_000;

/// Shard `index` of `count`, counted from 0.
///
/// ```
/// use gallerist_util::shard::Shard;
/// let shard: Shard = "7/1000".parse()?;
/// assert_eq!(shard.name(), "shard-00007-of-01000");
/// assert_eq!(shard.part_of(2500), 17..20);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// Shard `index` of `count`; `None` unless `index < count <= MAX_SHARDS`.
    pub fn new(index: u32, count: u32) -> Option<Self> {
        (index < count && count <= MAX_SHARDS).then_some(Shard { index, count })
    }

    /// Its number, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The number of shards.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The name of its files, without an extension: `shard-00007-of-01000`.
    pub fn name(self) -> String {
        format!("shard-{:05}-of-{:05}", self.index, self.count)
    }

    /// The shard that a file is of, by its [`name`](Self::name) up to the first `.`.
    ///
    /// ```
    /// use gallerist_util::shard::Shard;
    /// assert_eq!(Shard::of_name("shard-00007-of-01000.json"), Shard::new(7, 1000));
    /// assert_eq!(Shard::of_name("shard-7-of-1000.json"), None);
    /// ```
    pub fn of_name(file: &str) -> Option<Self> {
        let stem = file.split('.').next()?;
        let (index, count) = stem.strip_prefix("shard-")?.split_once("-of-")?;
        let shard = Shard::new(index.parse().ok()?, count.parse().ok()?)?;
        (shard.name() == stem).then_some(shard)
    }

    /// Its part of `0..length`. The parts of all shards follow each other, without gaps, and differ by at most 1 in length.
    pub fn part_of(self, length: u64) -> Range<u64> {
        let bound = |index: u32| {
            let bound = u128::from(length) * u128::from(index) / u128::from(self.count);
            u64::try_from(bound).expect("no more than the length")
        };
        bound(self.index)..bound(self.index + 1)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| {
            Some((index.trim().parse::<u32>().ok()?, count.trim().parse::<u32>().ok()?))
        });
        let (index, count) =
            numbers.ok_or_else(|| "a shard is INDEX/COUNT, such as 7/1000; the first is 0".to_owned())?;
        Shard::new(index, count).ok_or_else(|| match count {
            0 => "there is no shard of 0".to_owned(),
            _ if count > MAX_SHARDS => format!("there may be {MAX_SHARDS} shards, not {count}"),
            _ => format!("the shards are numbered from 0 to {}; there is no {index}", count - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_shards_are_the_whole_and_differ_by_one_at_most() {
        for length in [0, 1, 2, 7, 999, 1000, 1001, u64::MAX] {
            for count in [1, 2, 3, 7, 1000] {
                let mut end = 0;
                for index in 0..count {
                    let part = Shard::new(index, count).unwrap().part_of(length);
                    assert_eq!(part.start, end);
                    let even = length / u64::from(count);
                    assert!(part.end - part.start - even <= 1, "{index}/{count}");
                    end = part.end;
                }
                assert_eq!(end, length);
            }
        }
    }

    #[test]
    fn what_is_no_shard_is_refused_with_the_reason() {
        let message = |text: &str| text.parse::<Shard>().unwrap_err();
        assert!(message("7").contains("7/1000") && message("a/b").contains("7/1000"));
        assert_eq!(message("4/4"), "the shards are numbered from 0 to 3; there is no 4");
        assert_eq!(message("0/0"), "there is no shard of 0");
        assert!(message("0/2000000").contains("1000000"));
        let shard: Shard = "3/4".parse().unwrap();
        assert_eq!((shard.to_string().as_str(), Shard::of_name(&shard.name())), ("3/4", Some(shard)));
        assert_eq!(Shard::of_name("shard-00004-of-00004.json"), None);
        assert_eq!(Shard::of_name("photos.json"), None);
    }
}
