//! `gallerist plot` as a user meets it.

mod common;

use std::path::Path;

use common::{around_centres, gallerist, refused, text};
use gallerist::retrieval::search::Metric;
use gallerist::retrieval::{EmbeddingSet, Matrix, file::npy};
use serde_json::Value;

fn ok(dir: &Path, line: &str) {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
    assert!(out.stdout.is_empty(), "{line}");
}

/// Rows around 40 centres; row `i` has the label `class i % 40`.
fn set(seed: u64, model: &str) -> EmbeddingSet {
    around_centres(80, seed, model, 0.1, |class, at| ((class * 7 + at * 3) % 11) as f32)
}

/// A tiny run with TensorBoard's files.
fn train(dir: &Path, name: &str, seed: u64) {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/smoke.toml");
    let line = format!(
        "train {} --out {name} --json --set train.seed={seed} --set train.steps=8 --set validation.every=4 \
         --set data.max_test_classes=12 --set log.tensorboard=true --set evaluation.bootstrap={{resamples=50}}",
        config.display()
    );
    let out = gallerist(dir, &line);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn help_says_what_can_be_drawn() {
    let help = |line: &str| text(&gallerist(Path::new("."), line).stdout);
    insta::assert_snapshot!("help_plot", help("plot --help"));
    for kind in ["curves", "ranked", "map", "cmc", "pr", "distances", "open-set", "clusters", "report"] {
        insta::assert_snapshot!(format!("help_plot_{kind}"), help(&format!("plot {kind} --help")));
    }
}

#[test]
fn runs_are_drawn_alone_and_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    train(dir, "one", 1);
    train(dir, "two", 2);

    for kind in ["curves", "cmc", "pr", "distances", "open-set"] {
        ok(dir, &format!("plot {kind} one two --out a.svg"));
        let svg = text(&read("a.svg"));
        assert!(svg.contains(">one") && svg.contains(">two"), "{kind} names both runs");
        assert!(svg.contains("prefers-color-scheme:dark"), "{kind} follows the reader");
        ok(dir, &format!("plot {kind} one two --out a.png --theme dark"));
        assert_eq!(read("a.png")[1..4], *b"PNG", "{kind}");
    }
    for (line, pictures) in [
        ("ranked one", true),
        ("ranked one --queries confused --count 2", true),
        ("map one", true),
        ("map one --method pca --no-thumbnails", false),
        ("clusters one --count 3", true),
        // From the embeddings alone: labels and the place of the images are in the file.
        ("ranked --embeddings one/embeddings.safetensors --queries best", true),
        ("cmc one --embeddings two/embeddings.safetensors", false),
    ] {
        ok(dir, &format!("plot {line} --out b.svg"));
        assert_eq!(text(&read("b.svg")).contains("data:image/png"), pictures, "{line}");
        ok(dir, &format!("plot {line} --out c.svg"));
        assert_eq!(read("b.svg"), read("c.svg"), "{line} twice gives the same file");
    }

    for line in ["ranked one --count 0", "clusters one --count 0"] {
        let out = gallerist(dir, &format!("plot {line} --out none.svg"));
        assert_eq!(out.status.code(), Some(2), "{line}");
        assert!(
            text(&out.stderr).contains("1 query or more") || text(&out.stderr).contains("1 cluster or more")
        );
    }

    ok(dir, "plot report one two --out both.html");
    let page = text(&read("both.html"));
    let parts = [
        "one compared with two",
        "class=\"atlas\"",
        "95 % bootstrap intervals, 50 resamples",
        "one: Failures",
    ];
    for part in parts {
        assert!(page.contains(part), "{part}");
    }

    // What the Embedding Projector reads; reading the events back: fixtures/tensorboard.
    let board = |name: &str| read(&format!("one/tensorboard/{name}"));
    let lines = |name: &str| text(&board(name)).lines().count();
    assert_eq!(lines("metadata.tsv"), lines("tensors.tsv") + 1);
    assert!(text(&board("projector_config.pbtxt")).contains("image_path: \"sprite.png\""));
    assert_eq!(board("sprite.png")[1..4], *b"PNG");
    assert!(!board("events.out.tfevents.gallerist").is_empty());

    comparisons_say_how_runs_differ(dir);
}

/// Changes the files of the two runs, and compares them.
fn comparisons_say_how_runs_differ(dir: &Path) {
    let report = || {
        ok(dir, "plot report one two --out both.html");
        text(&std::fs::read(dir.join("both.html")).unwrap())
    };
    // Intervals of other resamples.
    let file = dir.join("two/metrics.json");
    let mut metrics: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    metrics["intervals"]["resamples"] = 60.into();
    std::fs::write(&file, metrics.to_string()).unwrap();
    let page = report();
    for (run, resamples) in [("one", 50), ("two", 60)] {
        assert!(page.contains(&format!("{run}: 95 % bootstrap intervals, {resamples} resamples")), "{run}");
    }

    // Embeddings of one class have no histogram of distances, and those of the other run have.
    let of_two = dir.join("two/embeddings.safetensors");
    let set = EmbeddingSet::load(&of_two).unwrap();
    let labels = Some(vec!["wren".to_owned(); set.embeddings.rows()]);
    EmbeddingSet { labels, ..set }.save(&of_two).unwrap();
    let page = report();
    assert!(page.contains("alt=\"Distances of pairs\""), "the figure of the other run");
    assert!(
        page.contains("two: a histogram of distances needs pairs of both kinds: there is one class only.")
    );
    assert!(!page.contains("one: a histogram"));

    // Two runs of one name.
    std::fs::create_dir(dir.join("other")).unwrap();
    std::fs::rename(dir.join("two"), dir.join("other/one")).unwrap();
    let own = dir.file_name().unwrap().to_string_lossy();
    for kind in ["curves", "cmc"] {
        ok(dir, &format!("plot {kind} one other/one --out a.svg"));
        let svg = text(&std::fs::read(dir.join("a.svg")).unwrap());
        assert!(svg.contains(">other/one"), "{kind}");
        assert!(svg.contains(&format!(">{own}/one")), "{kind}");
    }
    ok(dir, "plot report one other/one --out both.html");
    let page = text(&std::fs::read(dir.join("both.html")).unwrap());
    assert!(page.contains(&format!("{own}/one compared with other/one")));

    // A gallery of as many images as there are queries.
    let of_one = dir.join("one/embeddings.safetensors");
    for side in ["query", "gallery"] {
        std::fs::copy(&of_one, dir.join(format!("one/{side}.safetensors"))).unwrap();
    }
    std::fs::remove_file(&of_one).unwrap();
    ok(dir, "plot report one --out one.html");
    let page = text(&std::fs::read(dir.join("one.html")).unwrap());
    assert!(page.contains("test queries: ") && !page.contains("test classes: "));
    assert!(page.contains("<th scope=\"row\">gallery</th>"));
}

#[test]
fn runs_without_test_images_are_compared_by_their_times_and_have_nothing_else_to_draw() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/smoke.toml");
    for name in ["one", "two"] {
        let line = format!(
            "train {} --out {name} --set train.steps=2 --set validation.every=2 --set data.without_test=true",
            config.display()
        );
        let out = gallerist(dir, &line);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
    let error = refused(dir, "plot ranked one --out x.svg");
    assert!(error.contains("no test images") && !error.contains("--resume"), "{error}");
    ok(dir, "plot report one two --out both.html");
    let page = text(&std::fs::read(dir.join("both.html")).unwrap());
    assert!(page.contains("<dt>training time") && page.contains("<dt>training images"));
    assert!(!page.contains("<dt>test images"), "the run file names some, which are not measured");
    let about = text(&gallerist(dir, "info one").stdout);
    assert!(about.contains("omniglot_images_background") && !about.contains("images_evaluation"), "{about}");
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rows = Matrix::new(3, 4, (0..12).map(|i| i as f32).collect()).unwrap();
    npy::write_f32(dir.join("x.npy"), &rows).unwrap();
    std::fs::write(dir.join("one.txt"), "wren\nwren\nwren\n").unwrap();
    std::fs::write(dir.join("short.txt"), "wren\n").unwrap();
    let errors: Vec<String> = [
        "map --embeddings x.npy --out x.jpg",
        "map --embeddings x.npy --out x.svg",
        "cmc --embeddings x.npy --out x.svg",
        "distances --embeddings x.npy --labels one.txt --out x.svg",
        "pr --embeddings x.npy --labels short.txt --out x.svg",
        "ranked --embeddings x.npy --labels one.txt --named heron --out x.svg",
        "ranked --embeddings x.npy --labels one.txt --query heron --out x.svg",
        "cmc --query x.npy --gallery x.npy --out x.svg",
        "cmc --query x.npy --gallery x.npy --gallery x.npy --query-labels one.txt --out x.svg",
        "pr --query x.npy --gallery x.npy --query-labels one.txt --gallery-labels one.txt --protocol duke --out x.svg",
        "pr --query x.npy --gallery x.npy --query-labels one.txt --gallery-labels one.txt --protocol cub200 --out x.svg",
        "cmc --embeddings x.npy --labels one.txt --protocol inshop --out x.svg",
        "cmc one --protocol market1501 --out x.svg",
        "clusters --embeddings x.npy --labels one.txt --clusters 4 --out x.svg",
        "cmc --embeddings x.npy --labels one.txt --labels one.txt --out x.svg",
        "open-set --embeddings x.npy --labels one.txt --out x.svg",
        "map --embeddings x.npy --where label='a' --out x.svg",
        "map --embeddings x.npy --where label= --out x.svg",
        "cmc --embeddings x.npy --labels one.txt --query-where label='a' --out x.svg",
        "curves nothing --out x.svg",
    ]
    .into_iter()
    .map(|line| {
        let out = gallerist(dir, &format!("plot {line}"));
        assert_eq!(out.status.code(), Some(2), "{line}");
        format!("--- {line}\n{}", text(&out.stderr))
    })
    .collect();
    // What an evaluation refuses.
    let zeros = Matrix::new(3, 2, vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
    npy::write_f32(dir.join("zeros.npy"), &zeros).unwrap();
    let out = gallerist(dir, "plot cmc --embeddings zeros.npy --labels one.txt --out x.svg");
    assert!(text(&out.stderr).contains("row 1"), "{}", text(&out.stderr));
    // Nothing is confused.
    let clear = Matrix::new(4, 2, vec![1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.1, 1.0]).unwrap();
    npy::write_f32(dir.join("clear.npy"), &clear).unwrap();
    std::fs::write(dir.join("two.txt"), "wren\nwren\nheron\nheron\n").unwrap();
    let line = "plot ranked --embeddings clear.npy --labels two.txt --queries confused --out x.svg";
    let message = refused(dir, line);
    assert!(message.contains("nearest item is of another class, and `clear.npy` has none"), "{message}");
    assert!(!dir.join("x.svg").exists());
    insta::assert_snapshot!("plot_errors", errors.join("\n"));
}

#[test]
fn queries_and_a_gallery_of_two_networks_are_drawn_with_force_only() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    set(1, "sha256:aa").save(dir.join("queries.safetensors")).unwrap();
    set(2, "sha256:aa").save(dir.join("same.safetensors")).unwrap();
    set(2, "sha256:bb").save(dir.join("other.safetensors")).unwrap();
    let euclidean = EmbeddingSet { metric: Some(Metric::Euclidean), ..set(2, "sha256:aa") };
    euclidean.save(dir.join("euclidean.safetensors")).unwrap();
    let line = |kind: &str, gallery: &str| {
        format!("plot {kind} --query queries.safetensors --gallery {gallery}.safetensors --out x.svg")
    };
    for kind in ["cmc", "pr", "distances", "open-set", "ranked", "map --method pca"] {
        let message = refused(dir, &line(kind, "other"));
        assert!(message.contains("mean nothing to each other") && message.contains("--force"), "{message}");
        let message = refused(dir, &line(kind, "euclidean"));
        assert!(message.contains("their lengths differ"), "{message}");
        assert!(!dir.join("x.svg").exists(), "{kind}");
    }
    ok(dir, &line("cmc", "same"));
    for (gallery, warning) in [("other", "mean nothing to each other"), ("euclidean", "their lengths differ")]
    {
        let out = gallerist(dir, &format!("{} --force", line("cmc", gallery)));
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains(warning), "{}", text(&out.stderr));
    }
}

#[test]
fn cameras_that_would_not_count_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    set(1, "sha256:aa").save(dir.join("q.safetensors")).unwrap();
    let gallery = set(2, "sha256:aa");
    gallery.save(dir.join("g.safetensors")).unwrap();
    EmbeddingSet { cameras: None, ..gallery }.save(dir.join("none.safetensors")).unwrap();
    let cameras: String = (0..80).map(|row| format!("c{}\n", row % 4)).collect();
    std::fs::write(dir.join("c.txt"), cameras).unwrap();
    let line = |gallery: &str, more: &str| {
        format!("plot cmc --query q.safetensors --gallery {gallery} --query-cameras c.txt {more} --out x.svg")
    };
    for (gallery, more, wanted) in [
        ("g.safetensors", "--protocol inshop", "the protocol `inshop` knows no cameras"),
        ("g.safetensors", "--protocol none", "--protocol none ignores cameras"),
        ("none.safetensors", "", "`c.txt` has cameras, and `none.safetensors` has none"),
    ] {
        let message = refused(dir, &line(gallery, more));
        assert!(message.contains(wanted), "{message}");
    }
    ok(dir, &line("g.safetensors", ""));
}

#[test]
fn junk_is_no_class_of_a_figure_of_one_set() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let set = set(1, "sha256:aa");
    let junk = |label: &String| if label == "class0" { "-1".to_owned() } else { label.clone() };
    let labels = set.labels.as_ref().map(|labels| labels.iter().map(junk).collect());
    let people = EmbeddingSet { labels, protocol: Some("market1501".to_owned()), ..set };
    people.save(dir.join("people.safetensors")).unwrap();
    EmbeddingSet { protocol: None, ..people }.save(dir.join("other.safetensors")).unwrap();
    let line =
        |kind: &str, more: &str| format!("plot {kind} --embeddings people.safetensors {more} --out x.svg");
    for kind in ["cmc", "pr", "distances", "open-set", "ranked", "clusters"] {
        let message = refused(dir, &line(kind, ""));
        assert!(message.contains("2 rows with the label `-1` are junk, no class"), "{kind}: {message}");
        assert!(message.contains("--protocol none compares"), "{kind}: {message}");
        assert!(!dir.join("x.svg").exists(), "{kind}");
    }
    ok(dir, &line("cmc", "--protocol none"));
    // A map compares nothing.
    let map = gallerist(dir, &line("map --method pca", ""));
    assert_eq!(map.status.code(), Some(0), "{}", text(&map.stderr));
    assert!(!text(&map.stderr).contains("protocol"), "{}", text(&map.stderr));
    // Warnings: of a protocol that is not applied, and of the label of junk without a protocol.
    let part = "--where label!='-1'";
    for (line, warning) in [
        (line("cmc", part), "`people.safetensors` is one set: every row is compared with the others"),
        (format!("evaluate --embeddings people.safetensors {part}"), "`people.safetensors` is one set"),
        (
            "plot cmc --embeddings other.safetensors --out x.svg".to_owned(),
            "2 rows with the label `-1` count as one class",
        ),
    ] {
        let out = gallerist(dir, &line);
        assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(warning), "{line}: {}", text(&out.stderr));
    }
}
