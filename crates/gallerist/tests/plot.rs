//! The figures of the real program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn gallerist(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("COLUMNS", "100")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ok(args: &[&str]) {
    let out = gallerist(args);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
    assert!(out.stdout.is_empty());
}

/// A tiny run with TensorBoard's files, in `dir/NAME`.
fn run(dir: &Path, name: &str, seed: &str) -> PathBuf {
    let run = dir.join(name);
    let mut args = vec!["train", "configs/smoke.toml", "--out", run.to_str().unwrap(), "--json"];
    let settings = [
        seed,
        "train.steps=8",
        "validation.every=4",
        "data.max_test_classes=12",
        "log.tensorboard=true",
        "evaluation.bootstrap={resamples=50}",
    ];
    settings.iter().for_each(|setting| args.extend(["--set", setting]));
    let out = gallerist(&args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    run
}

#[test]
fn help_says_what_can_be_drawn() {
    insta::assert_snapshot!("help_plot", text(&gallerist(&["plot", "--help"]).stdout));
    for kind in ["curves", "ranked", "map", "cmc", "pr", "distances", "clusters", "report"] {
        insta::assert_snapshot!(
            format!("help_plot_{kind}"),
            text(&gallerist(&["plot", kind, "--help"]).stdout)
        );
    }
}

#[test]
fn runs_are_drawn_alone_and_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (run(dir.path(), "one", "train.seed=1"), run(dir.path(), "two", "train.seed=2"));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let read = |name: &str| std::fs::read(path(name)).unwrap();

    for kind in ["curves", "cmc", "pr", "distances"] {
        ok(&["plot", kind, one, two, "--out", &path("a.svg")]);
        let svg = text(&read("a.svg"));
        assert!(svg.contains(">one") && svg.contains(">two"), "{kind} names both runs");
        assert!(svg.contains("prefers-color-scheme:dark"), "{kind} follows the reader");
        ok(&["plot", kind, one, two, "--out", &path("a.png"), "--theme", "dark"]);
        assert_eq!(read("a.png")[1..4], *b"PNG", "{kind}");
    }
    for args in [
        &["ranked", one][..],
        &["ranked", one, "--queries", "confused", "--count", "2"],
        &["map", one],
        &["map", one, "--method", "pca", "--no-thumbnails"],
        &["clusters", one, "--count", "3"],
    ] {
        ok(&[&["plot"], args, &["--out", &path("b.svg")]].concat());
        let svg = text(&read("b.svg"));
        assert_eq!(svg.contains("data:image/png"), !args.contains(&"--no-thumbnails"), "{args:?}");
        ok(&[&["plot"], args, &["--out", &path("c.svg")]].concat());
        assert_eq!(read("b.svg"), read("c.svg"), "{args:?} twice gives the same file");
    }

    // The same from the embeddings alone: labels and the place of the images are in the file.
    let file = format!("{one}/embeddings.safetensors");
    ok(&["plot", "ranked", "--embeddings", &file, "--out", &path("d.svg")]);
    ok(&["plot", "cmc", one, "--embeddings", &file, "--out", &path("d.svg")]);

    ok(&["plot", "report", one, two, "--out", &path("both.html")]);
    let page = text(&read("both.html"));
    for part in
        ["one beside two", "class=\"atlas\"", "95 % bootstrap intervals, 50 resamples", "one: Failures"]
    {
        assert!(page.contains(part), "{part}");
    }

    // What the Embedding Projector reads; reading the events back: fixtures/tensorboard.
    let board = |name: &str| read(&format!("one/tensorboard/{name}"));
    let lines = |name: &str| text(&board(name)).lines().count();
    assert_eq!(lines("metadata.tsv"), lines("tensors.tsv") + 1);
    assert!(text(&board("projector_config.pbtxt")).contains("image_path: \"sprite.png\""));
    assert_eq!(board("sprite.png")[1..4], *b"PNG");
    assert!(!board("events.out.tfevents.gallerist").is_empty());
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let rows = path("x.npy");
    let matrix = gallerist::retrieval::Matrix::new(3, 4, (0..12).map(|i| i as f32).collect()).unwrap();
    gallerist::retrieval::file::npy::write_f32(&rows, &matrix).unwrap();
    std::fs::write(path("one.txt"), "wren\nwren\nwren\n").unwrap();
    std::fs::write(path("short.txt"), "wren\n").unwrap();
    let out = path("x.svg");
    let errors: Vec<String> = [
        &["map", "--embeddings", &rows, "--out", &path("x.jpg")][..],
        &["map", "--embeddings", &rows, "--out", &out],
        &["cmc", "--embeddings", &rows, "--out", &out],
        &["distances", "--embeddings", &rows, "--labels", &path("one.txt"), "--out", &out],
        &["pr", "--embeddings", &rows, "--labels", &path("short.txt"), "--out", &out],
        &["ranked", "--embeddings", &rows, "--labels", &path("one.txt"), "--query", "heron", "--out", &out],
        &["clusters", "--embeddings", &rows, "--labels", &path("one.txt"), "--clusters", "4", "--out", &out],
        &["curves", &path("nothing"), "--out", &out],
    ]
    .into_iter()
    .map(|args| {
        let done = gallerist(&[&["plot"], args].concat());
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        text(&done.stderr)
    })
    .collect();
    assert!(!Path::new(&out).exists());
    insta::assert_snapshot!("plot_errors", errors.join("\n").replace(dir.path().to_str().unwrap(), "DIR"));
}
