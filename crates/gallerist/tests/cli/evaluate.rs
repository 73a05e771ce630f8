//! `gallerist evaluate`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{bitmap, text};
use crate::program::{error, gallerist};

/// Embeddings of `rows` images of 7 classes as .npy, their labels and cameras as text.
fn evaluation_files(dir: &Path, name: &str, rows: usize) -> [String; 3] {
    use gallerist::retrieval::{Matrix, file::npy};
    let path = |what: &str| dir.join(format!("{name}{what}")).to_str().unwrap().to_string();
    let value = |i: usize| ((i * 7919 + rows) % 101) as f32 / 101.0 + 2.0 * f32::from(i % 4 == i / 4 % 7 % 4);
    let matrix = Matrix::new(rows, 4, (0..rows * 4).map(value).collect()).unwrap();
    npy::write_f32(path(".npy"), &matrix).unwrap();
    let write = |what: &str, of: &dyn Fn(usize) -> String| {
        std::fs::write(path(what), (0..rows).map(|row| of(row) + "\n").collect::<String>()).unwrap();
    };
    write(".labels", &|row| if row == 3 { "-1".into() } else { format!("person{}", row % 7) });
    write(".cameras", &|row| format!("c{}", row / 7 % 3));
    [path(".npy"), path(".labels"), path(".cameras")]
}

#[test]
fn an_evaluation_prints_all_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let [x, labels, cameras] = evaluation_files(dir.path(), "all", 90);
    let one = ["evaluate", "--embeddings", &x, "--labels", &labels];
    let further = [
        "--metrics",
        "recall@1,map,ndcg@5",
        "--rerank",
        "k_reciprocal",
        "--k1",
        "6",
        "--k2",
        "3",
        "--query-expansion",
        "3",
        "--cluster",
        "--verification",
        "--far",
        "0.1,0.01",
        "--few-shot",
        "3x2",
        "--episode-queries",
        "4",
        "--episodes",
        "20",
        "--bootstrap",
        "50",
        "--bootstrap-over",
        "classes",
        "--seed",
        "7",
    ];
    let shown = gallerist(&[&one[..], &further].concat());
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    insta::assert_snapshot!("evaluation", text(&shown.stdout));
    let json = |args: &[&str]| -> Value {
        let out = gallerist(&[args, &["--json"]].concat());
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)))
    };
    let all = json(&[&one[..], &further].concat());
    for key in ["metrics", "intervals", "reranked", "expanded", "clustering", "verification", "few_shot"] {
        assert!(all[key].is_object(), "{key}");
    }
    assert_eq!(all["verification"]["tar_at_far"].as_array().unwrap().len(), 2);
    assert_eq!(all["reranked"]["intervals"]["over"], "classes");
    // The same seed gives the same bits for any number of threads.
    let alone = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args([&one[..], &further, &["--json"]].concat())
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&alone.stdout).unwrap(), all);

    let [q, query_labels, query_cameras] = evaluation_files(dir.path(), "query", 21);
    let split = [
        "evaluate",
        "--query",
        &q,
        "--query-labels",
        &query_labels,
        "--gallery",
        &x,
        "--gallery-labels",
        &labels,
    ];
    let seen = ["--query-cameras", &query_cameras, "--gallery-cameras", &cameras];
    let market = json(&[&split[..], &seen, &["--protocol", "market1501", "--multi-query", "max"]].concat());
    assert_eq!(market["protocol"], "market1501: queries against the other cameras' images");
    // One gallery image is junk.
    assert_eq!((&market["queries"], &market["gallery"]), (&Value::from(21), &Value::from(89)));
    assert!(market["metrics"]["map_trapezoid"].as_f64().unwrap() > 0.0);
    assert!(market["multi_query"]["queries"].as_u64().unwrap() <= 21);
    assert!(market["notes"][0].as_str().unwrap().contains("not those of the benchmark"));
    assert_eq!(json(&split)["protocol"], "queries against a gallery");
    assert_eq!(json(&[&split[..], &seen].concat())["protocol"], "queries against the other cameras' images");
    let euclidean = json(&[&one[..], &["--metric", "euclidean", "--recall-at", "3"]].concat());
    assert_eq!(euclidean["metrics"].as_object().unwrap().len(), 4);
    let sets = dir.path().join("sets");
    std::fs::write(&sets, (0..90).map(|row| format!("l{}|m{}\n", row % 7, row % 5)).collect::<String>())
        .unwrap();
    let sets = ["evaluate", "--embeddings", &x, "--labels", sets.to_str().unwrap()];
    assert!(json(&[&sets[..], &["--metrics", "ndcg_exp"]].concat())["metrics"]["ndcg_exp"].is_number());

    // Bad input.
    let two = |model: &str, name: &str| {
        use gallerist::retrieval::{EmbeddingSet, Matrix};
        let path = dir.path().join(name).to_str().unwrap().to_string();
        let mut set = EmbeddingSet::from(Matrix::new(2, 4, vec![0.5; 8]).unwrap());
        set.labels = Some(vec!["a".into(), "a".into()]);
        set.model = Some(model.into());
        set.save(&path).unwrap();
        path
    };
    let (first, second) = (two("sha256:aa", "first.safetensors"), two("sha256:bb", "second.safetensors"));
    let nan = dir.path().join("nan.npy").to_str().unwrap().to_string();
    gallerist::retrieval::file::npy::write_f64(&nan, &[90, 1], &[f64::NAN; 90]).unwrap();
    let mixed = ["evaluate", "--query", &first, "--gallery", &second];
    let mut errors = String::new();
    for args in [
        &[&one[..], &["--metrics", "recal@1"]].concat()[..],
        &[&one[..], &["--protocol", "market"]].concat(),
        &[&one[..], &["--protocol", "inshop"]].concat(),
        &[&split[..], &["--protocol", "cub200"]].concat(),
        &[&split[..], &["--protocol", "duke"]].concat(),
        &[&split[..], &["--cluster"]].concat(),
        &[&sets[..], &["--verification"]].concat(),
        &[&one[..], &["--few-shot", "50x1"]].concat(),
        &[&one[..], &["--rerank", "k_reciprocal", "--lambda", "2"]].concat(),
        &[&one[..], &["--across-cameras"]].concat(),
        &["evaluate", "--embeddings", &x, "--labels", &query_labels],
        &["evaluate", "--embeddings", &x],
        &["evaluate", "--embeddings", &nan, "--labels", &labels],
        &mixed,
    ] {
        let args: Vec<&str> = args.to_vec();
        errors += &format!("--- {}\n{}\n", args[1..].join(" "), error(&args));
    }
    insta::assert_snapshot!("evaluation_errors", errors.replace(dir.path().to_str().unwrap(), "DIR"));
    let forced = gallerist(&[&mixed[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0));
    assert!(text(&forced.stderr).contains("their distances mean nothing"));
}

#[test]
fn a_manifest_with_several_labels_an_image_is_trained_on_and_evaluated() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let mut manifest = "path,label\n".to_string();
    for i in 0..16u8 {
        std::fs::write(path(&format!("{i}.bmp")), bitmap(15 * i)).unwrap();
        // Every colour is that of two images, every shape that of four.
        manifest += &format!("{i}.bmp,colour{}|shape{}\n", i / 2, i / 4);
    }
    std::fs::write(path("list.csv"), manifest).unwrap();
    let run = path("run");
    let settings = [
        format!("data.train=[{:?}]", path("list.csv")),
        format!("data.test=[{:?}]", path("list.csv")),
        "train.steps=2".into(),
        "validation.fraction=0.25".into(),
        "validation.every=1".into(),
        "image.size=8".into(),
        "image.channels=1".into(),
        "sampler.classes_per_batch=6".into(),
        "sampler.images_per_class=2".into(),
        "network.channels=[4]".into(),
        "loss.name=contrastive".into(),
    ];
    std::fs::write(path("run.toml"), "").unwrap();
    let mut args = vec!["train".to_string(), path("run.toml"), "--out".into(), run.clone()];
    args.extend(settings.into_iter().flat_map(|setting| ["--set".into(), setting]));
    let out = gallerist(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let metrics: Value =
        serde_json::from_slice(&std::fs::read(format!("{run}/metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["queries_without_match"], 0, "a shape is shared: {metrics}");
    let log = std::fs::read_to_string(format!("{run}/log.jsonl")).unwrap();
    let step: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    // A class is a colour with its shape; its two images and those of the other colour are positives: 3 each,
    // all of them pulled.
    assert_eq!(step["mined_positives"], 3.0, "{step}");
}

#[test]
fn cameras_of_one_side_and_options_of_a_network_without_one_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [query, labels, cameras] = evaluation_files(dir.path(), "query", 20);
    let [gallery, gallery_labels, gallery_cameras] = evaluation_files(dir.path(), "gallery", 30);
    let pair = ["evaluate", "--query", &query, "--gallery", &gallery, "--query-labels", &labels];
    let pair = [&pair[..], &["--gallery-labels", &gallery_labels]].concat();
    for side in [["--query-cameras", &cameras], ["--gallery-cameras", &gallery_cameras]] {
        let message = error(&[&pair[..], &side].concat());
        assert!(message.contains("give --query-cameras and --gallery-cameras, or neither"), "{message}");
    }
    // Cameras by which nothing would be skipped.
    let cameras = ["--query-cameras", &cameras, "--gallery-cameras", &gallery_cameras];
    let both = [&pair[..], &cameras].concat();
    let message = error(&[&both[..], &["--protocol", "inshop"]].concat());
    assert!(message.contains("query.cameras` would not count: the protocol `inshop` knows no"), "{message}");
    let message = error(&[&both[..], &["--protocol", "none"]].concat());
    assert!(message.contains("--protocol none ignores cameras"), "{message}");
    let pooled = gallerist(&[&both[..], &["--protocol", "none", "--multi-query", "max"]].concat());
    assert_eq!(pooled.status.code(), Some(0), "{}", text(&pooled.stderr));
    let set_labels = |rows: usize, name: &str| {
        let path = dir.path().join(name).to_str().unwrap().to_string();
        std::fs::write(&path, (0..rows).map(|row| format!("a{}|b\n", row % 3)).collect::<String>()).unwrap();
        path
    };
    let (query_sets, gallery_sets) = (set_labels(20, "query.sets"), set_labels(30, "gallery.sets"));
    let sets = ["evaluate", "--query", &query, "--gallery", &gallery, "--query-labels", &query_sets];
    let sets = [&sets[..], &["--gallery-labels", &gallery_sets]].concat();
    let message = error(&[&sets[..], &cameras].concat());
    assert!(message.contains("cameras need one class per row"), "{message}");
    let one = ["evaluate", "--embeddings", &query, "--labels", &labels];
    let message = error(&[&one[..], &["--cameras", cameras[1], "--protocol", "cub200"]].concat());
    assert!(message.contains("the protocol `cub200` knows no cameras"), "{message}");
    let message = error(&[&one[..], &["--cameras", cameras[1], "--protocol", "none"]].concat());
    assert!(message.contains("--protocol none ignores cameras"), "{message}");
    for option in
        [&["--strict"][..], &["--products", "int8"], &["--device", "cpu"], &["--checkpoint", "last"]]
    {
        let message = error(&[&one[..], option].concat());
        assert!(message.contains("cannot be used with"), "{option:?}: {message}");
    }
}
