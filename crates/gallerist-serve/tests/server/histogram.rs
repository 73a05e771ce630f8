//! The histogram of the distances of a search, and a range of distances as a filter.

use crate::common::{Fixture, Running, ids, options};
use gallerist_serve::Gallery;
use serde_json::{Value, json};

fn distances(answer: &Value) -> Vec<f64> {
    answer["results"].as_array().unwrap().iter().map(|hit| hit["distance"].as_f64().unwrap()).collect()
}

#[test]
fn the_histogram_counts_every_item_and_a_range_gives_its_results() {
    let fixture = Fixture::new();
    let compact = fixture.path("compact.safetensors");
    fixture.set.save_compact(&compact, gallerist_retrieval::Code::Bf16).unwrap();
    let galleries = [fixture.file(), fixture.index_file(), compact];
    for (kind, path) in galleries.iter().enumerate() {
        let gallery = Gallery::open(path, false).unwrap();
        let server = Running::start(fixture.contents_of(gallery), options());
        let item = server.items()[0].0.clone();
        let all = server.json(&format!("/api/v1/items/{item}/similar?k=1000&histogram=5"));
        let found = distances(&all);
        let histogram = &all["histogram"];
        let (low, high) = (histogram["low"].as_f64().unwrap(), histogram["high"].as_f64().unwrap());
        assert_eq!((low, high), (found[0], found[10]), "kind {kind}");
        assert_eq!((histogram["total"].as_u64(), histogram["complete"].as_bool()), (Some(11), Some(true)));
        let counts: Vec<u64> =
            histogram["counts"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
        let inside = |bar: usize, d: f64| {
            let at = ((d - low) / (high - low) * 5.0) as usize;
            at.min(4) == bar
        };
        let wanted: Vec<u64> =
            (0..5).map(|bar| found.iter().filter(|d| inside(bar, **d)).count() as u64).collect();
        assert_eq!(counts, wanted);
        // The three others of the class of the query.
        let right: u64 = histogram["right"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(right, 3);

        // A range, in the middle of the list.
        let (min, max) = (found[3] - 1e-6, found[6] + 1e-6);
        let part = server.json(&format!(
            "/api/v1/items/{item}/similar?k=1000&min_distance={min}&max_distance={max}&histogram=5"
        ));
        let wanted: Vec<f64> = found.iter().copied().filter(|d| (min..=max).contains(d)).collect();
        assert_eq!(distances(&part), wanted, "kind {kind}");
        assert_eq!(part["results"][0]["rank"], 1);
        assert_eq!(part["histogram"], all["histogram"], "the histogram is that of all items");
        let body = json!({"ids": [item], "k": 2, "min_distance": min});
        assert_eq!(
            distances(&server.post_json("/api/v1/search", &body).json()),
            found[found.len() - wanted_from(&found, min)..][..2]
        );
        assert_eq!(ids(&server.json(&format!("/api/v1/items/{item}/similar?min_distance=1.999"))), [""; 0]);
        // Other filters apply to both.
        let red = server.json(&format!("/api/v1/items/{item}/similar?label=red&histogram=3"));
        // An index has its items in another order: the query may be red itself.
        let own = u64::from(server.items()[0].1 == "red");
        assert_eq!(red["histogram"]["total"].as_u64(), Some(4 - own));
        assert!(server.json(&format!("/api/v1/items/{item}/similar"))["histogram"].is_null());
    }
}

/// The number of distances that are at least `min`.
fn wanted_from(found: &[f64], min: f64) -> usize {
    found.iter().filter(|d| **d >= min).count()
}

#[test]
fn a_range_that_is_none_is_refused() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let item = server.items()[0].0.clone();
    for (query, problem) in [
        ("min_distance=1&max_distance=0.5", "above max_distance"),
        ("min_distance=NaN", "finite number"),
        ("max_distance=inf", "finite number"),
        ("histogram=0", "from 1 to 200"),
        ("histogram=201", "from 1 to 200"),
    ] {
        let answer = server.get(&format!("/api/v1/items/{item}/similar?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.error().contains(problem), "{}", answer.error());
    }
}
