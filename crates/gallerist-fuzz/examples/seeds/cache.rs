//! Files of the cache of features: three places of 28 bytes.

use crate::Seeds;

pub(crate) fn write(seeds: &Seeds) {
    let file: Vec<u8> = (0..84).collect();
    seeds.add("cache", "valid", &[&[0b11_1111][..], &file].concat());
    seeds.add("cache", "digests", &[&[0b00_0111][..], &file].concat());
    seeds.add("cache", "some", &[&[0b10_1101][..], &file].concat());
    seeds.add("cache", "cut", &[&[0b11_1111][..], &file[..50]].concat());
}
