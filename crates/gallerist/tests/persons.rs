//! Reports and figures of queries and a gallery, as a user meets them: junk is in no list, distractors are wrong,
//! and the numbers are those of `evaluate`.

mod common;

use std::path::Path;

use common::{gallerist, text};
use gallerist::report::Picture;
use gallerist::retrieval::file::npy;
use gallerist::retrieval::{EmbeddingSet, Matrix};

/// Twelve persons with images from three cameras, junk and distractors; on disk, with a picture each.
struct Persons {
    query: EmbeddingSet,
    gallery: EmbeddingSet,
}

const JUNK: &str = "-1";
const DISTRACTOR: &str = "0000";

fn noise(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 40) as f32 / (1u64 << 24) as f32) - 0.5
}

fn persons(dir: &Path) -> Persons {
    const COLS: usize = 6;
    let mut state = 7;
    let centres: Vec<Vec<f32>> = (0..14).map(|_| (0..COLS).map(|_| noise(&mut state)).collect()).collect();
    let mut side = |name: &str, rows: &[(usize, String, usize)]| {
        let folder = dir.join("images").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (mut values, mut labels, mut cameras, mut paths) = (vec![], vec![], vec![], vec![]);
        for (row, (centre, label, camera)) in rows.iter().enumerate() {
            values.extend(centres[*centre].iter().map(|value| value + 0.5 * noise(&mut state)));
            labels.push(label.clone());
            cameras.push(format!("c{camera}"));
            let path = format!("{label}_c{camera}_{row}.png");
            let shade = [(centre * 18) as u8, (camera * 90) as u8, 128];
            let picture = Picture::from_pixels(4, 8, 3, &shade.repeat(32)).unwrap();
            std::fs::write(folder.join(&path), picture.bytes()).unwrap();
            paths.push(path);
        }
        let set = EmbeddingSet {
            labels: Some(labels),
            cameras: Some(cameras),
            paths: Some(paths),
            source: Some(folder.display().to_string()),
            protocol: Some("market1501".into()),
            ..Matrix::new(rows.len(), COLS, values).unwrap().into()
        };
        set.save(dir.join(format!("{name}.safetensors"))).unwrap();
        set
    };
    let person = |id: usize| format!("{:04}", id + 1);
    let queries: Vec<_> = (0..12).map(|id| (id, person(id), id % 3)).collect();
    let mut items: Vec<_> =
        (0..12).flat_map(|id| (0..3).map(move |camera| (id, person(id), camera))).collect();
    // Junk shows the persons, too: ranked by its embedding it would be near.
    items.extend((0..12).map(|id| (id, JUNK.to_owned(), (id + 1) % 3)));
    items.extend((0..8).map(|id| (id, DISTRACTOR.to_owned(), id % 3)));
    Persons { query: side("query", &queries), gallery: side("gallery", &items) }
}

fn run(dir: &Path, line: &str) -> String {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
    text(&out.stdout)
}

fn json(dir: &Path, line: &str) -> serde_json::Value {
    serde_json::from_str(&run(dir, line)).unwrap()
}

fn percent(metrics: &serde_json::Value, name: &str) -> String {
    format!("{:.2}", 100.0 * metrics["metrics"][name].as_f64().unwrap())
}

/// How often each verdict is given of a label in the lists of a page.
fn verdicts(page: &str, label: &str) -> (usize, usize) {
    let count = |verdict: &str| page.matches(&format!(", {verdict}, {label}\"")).count();
    (count("right"), count("wrong"))
}

#[test]
fn a_page_of_persons_has_the_metrics_of_evaluate_and_lists_without_junk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let Persons { query, gallery } = persons(dir);
    let line = "evaluate --query query.safetensors --gallery gallery.safetensors --json";
    let metrics = json(dir, line);
    assert_eq!(json(dir, &format!("{line} --html page.html")), metrics, "--html changes no number");
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();

    for name in ["map_trapezoid", "map", "cmc@1", "cmc@5", "cmc@10"] {
        assert!(page.contains(&format!("<td>{}", percent(&metrics, name))), "{name}");
    }
    assert_ne!(percent(&metrics, "cmc@1"), "100.00", "the set is not trivial");
    assert!(page.contains(
        "12 queries against a gallery of 44 images (market1501: queries against the other cameras"
    ));
    assert!(page.contains("junk left out"));

    assert_eq!(verdicts(&page, JUNK), (0, 0), "junk is in no list");
    let (right, wrong) = verdicts(&page, DISTRACTOR);
    assert!(right == 0 && wrong > 0, "distractors are wrong: {right} {wrong}");
    // Two images of each person are from other cameras than the query: no list has three right ones.
    for label in query.labels.unwrap() {
        let list = page.split("<article").find(|list| list.contains(&format!("query, {label}\""))).unwrap();
        assert!(list.matches(", right, ").count() <= 2, "{label}");
    }
    assert!(page.contains("data:image/png"), "pictures were found");

    // The same lists by no rules: junk is a class, and the query's camera counts.
    run(dir, &format!("{line} --protocol none --html plain.html"));
    let plain = std::fs::read_to_string(dir.join("plain.html")).unwrap();
    assert!(verdicts(&plain, JUNK).1 > 0);
    assert_eq!(gallery.embeddings.rows(), 56);
}

#[test]
fn average_precision_in_the_lists_is_that_of_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    persons(dir);
    let line = "evaluate --query query.safetensors --gallery gallery.safetensors --json --html page.html";
    let metrics = json(dir, line);
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
    // All 12 queries are drawn (report.queries is 16): their mean is the metric, to the digits shown.
    let drawn = page.split("Queries drawn at random").nth(1).unwrap().split("Failures").next().unwrap();
    let values: Vec<f64> = (drawn.split("average precision <b>").skip(1))
        .map(|rest| rest.split(" %").next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(values.len(), 12);
    let mean = values.iter().sum::<f64>() / 12.0;
    let wanted = 100.0 * metrics["metrics"]["map_trapezoid"].as_f64().unwrap();
    assert!((mean - wanted).abs() < 0.005, "{mean} and {wanted}");
}

#[test]
fn embeddings_of_any_origin_have_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let Persons { query, gallery } = persons(dir);
    for (name, set) in [("q", query), ("g", gallery)] {
        npy::write_f32(dir.join(format!("{name}.npy")), &set.embeddings).unwrap();
        std::fs::write(dir.join(format!("{name}.txt")), set.labels.unwrap().join("\n")).unwrap();
        std::fs::write(dir.join(format!("{name}-cameras.txt")), set.cameras.unwrap().join("\n")).unwrap();
    }
    let files = "--query q.npy --gallery g.npy --query-labels q.txt --gallery-labels g.txt";
    let cameras = "--query-cameras q-cameras.txt --gallery-cameras g-cameras.txt --protocol market1501";
    let page = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let metrics = json(dir, &format!("evaluate {files} {cameras} --json --html npy.html"));
    let npy = page("npy.html");
    assert!(npy.contains(&format!("<td>{}", percent(&metrics, "map_trapezoid"))));
    assert!(npy.contains("cannot be found") && npy.contains("row 3<"), "rows stand for pictures");
    let from_files = json(dir, "evaluate --query query.safetensors --gallery gallery.safetensors --json");
    assert_eq!(metrics["metrics"], from_files["metrics"]);

    // One set, without a protocol.
    let metrics = json(dir, "evaluate --embeddings g.npy --labels g.txt --json --html one.html");
    let one = page("one.html");
    assert!(one.contains(&format!("<td>{}", percent(&metrics, "map@r"))));
    assert!(
        one.contains(
            "Every one of 56 images is a query against the others, compared by the cosine similarity"
        )
    );

    // An index answers with lists, which are no page.
    run(dir, "index build gallery.safetensors --out g.index");
    let out = gallerist(dir, "evaluate --query query.safetensors --gallery g.index --html no.html");
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("--html is not for an index"), "{}", text(&out.stderr));
}

#[test]
fn figures_of_queries_and_a_gallery_follow_the_protocol_of_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    persons(dir);
    let files = "--query query.safetensors --gallery gallery.safetensors";
    let svg = |line: &str| {
        run(dir, &format!("plot {line} {files} --out a.svg"));
        std::fs::read_to_string(dir.join("a.svg")).unwrap()
    };
    let metrics = json(dir, &format!("evaluate {files} --json"));
    let cmc = svg("cmc");
    assert!(
        cmc.contains(&format!("{} % at rank 1", percent(&metrics, "cmc@1"))),
        "CMC@1 is that of evaluate"
    );
    assert!(cmc.contains("market1501"));
    let plain = json(dir, &format!("evaluate {files} --protocol none --metrics cmc@1 --json"));
    assert!(svg("cmc --protocol none").contains(&format!("{} % at rank 1", percent(&plain, "cmc@1"))));
    assert_ne!(percent(&plain, "cmc@1"), percent(&metrics, "cmc@1"));

    let ranked = svg("ranked --queries worst --count 12 -k 44");
    assert!(ranked.contains(">0000<"), "distractors are named as wrong");
    assert!(!ranked.contains(">-1<"), "junk is in no list");
    assert!(svg("ranked --count 12 -k 44 --protocol none").contains(">-1<"));
    assert!(svg("ranked --named 0003").contains("Named queries"));
    assert!(svg("ranked --queries confused --count 3").contains(" taken for "));
    for (line, wanted) in [
        ("pr", "market1501"),
        ("distances", "between queries and gallery by market1501"),
        ("map --no-thumbnails", "12 queries and 44 gallery images"),
        ("clusters --count 2", "36 images of the gallery"),
    ] {
        let drawn = svg(line);
        let plain = drawn
            .replace("</text>", " ")
            .split('<')
            .map(|part| part.split('>').nth(1).unwrap_or(""))
            .collect::<String>();
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(wanted), "{line}: {plain}");
    }
    // Two pairs in one figure.
    run(dir, &format!("plot cmc {files} {files} --out two.svg"));
}
