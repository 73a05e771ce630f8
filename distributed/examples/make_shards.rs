//! Writes a gallery in shards and its queries: `make_shards DIR ROWS DIMENSIONS SHARDS QUERIES`.
//!
//! Rows are the centre of their class plus noise, on a grid of 1/64. A class has 5 rows on average, the sizes vary from 1
//! to 9. One row of 500 is a copy of a row of the class before it, so that some scores are equal and some rows are
//! duplicates. The queries are further rows of the first classes.

use std::path::Path;

use gallerist_retrieval::{EmbeddingSet, Matrix};

/// A generator of pseudorandom numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// About normal, with variance 1: the sum of four uniform numbers.
    fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum: f32 = (0..4).map(|part| ((bits >> (16 * part)) & 0xffff) as f32 / 65_536.0 - 0.5).sum();
        sum * 3f32.sqrt()
    }
}

fn row(class: u64, number: u64, dimensions: usize, to: &mut Vec<f32>) {
    const NOISE: f32 = 0.9;
    let is_copy = class > 0 && Random(class << 20 | number).next().is_multiple_of(500);
    let (class, number) = if is_copy { (class - 1, 0) } else { (class, number) };
    let (mut centre, mut noise) = (Random(class), Random(!(class << 20 | number)));
    to.extend((0..dimensions).map(|_| {
        let value = centre.normal() + NOISE * noise.normal();
        (value * 64.0).round() / 64.0
    }));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rows, dimensions, shards, queries] = arguments.as_slice() else {
        panic!("make_shards DIR ROWS DIMENSIONS SHARDS QUERIES");
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (rows, dimensions, shards, queries) =
        (number(rows), number(dimensions), number(shards), number(queries));
    let folder = Path::new(folder);
    for place in ["gallery", "queries"] {
        std::fs::create_dir_all(folder.join(place)).expect("a folder that can be written");
    }
    let save = |values: Vec<f32>, labels: Vec<String>, path: &str| {
        let embeddings = Matrix::new(labels.len(), dimensions, values).expect("rows of the dimensions");
        let set = EmbeddingSet { labels: Some(labels), ..embeddings.into() };
        set.save(folder.join(path)).expect("a file that can be written");
    };
    let mut classes =
        (0..).flat_map(|class: u64| (0..1 + Random(class ^ 77).next() % 9).map(move |at| (class, at)));
    for shard in 0..shards {
        let count = rows * (shard + 1) / shards - rows * shard / shards;
        let (mut values, mut labels) = (Vec::with_capacity(count * dimensions), Vec::with_capacity(count));
        for (class, at) in classes.by_ref().take(count) {
            row(class, at, dimensions, &mut values);
            labels.push(class.to_string());
        }
        save(values, labels, &format!("gallery/shard-{shard:05}-of-{shards:05}.parquet"));
    }
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for query in 0..queries as u64 {
        row(query / 2, 1 << 10 | query, dimensions, &mut values);
        labels.push((query / 2).to_string());
    }
    save(values, labels, "queries/queries.parquet");
}
