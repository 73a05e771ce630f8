//! A run declares how its embeddings are compared, and everything that follows compares them so.

mod common;

use std::path::Path;

use common::{gallerist, refused, text};
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::file::npy;
use gallerist::retrieval::search::Metric;
use serde_json::Value;

/// Six classes of six colour bitmaps: a colour for each class, and noise.
fn images(dir: &Path) {
    let mut state = 7u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 58) as u8
    };
    for class in 0..6u8 {
        let folder = dir.join(format!("images/class{class}"));
        std::fs::create_dir_all(&folder).unwrap();
        for image in 0..6 {
            let mut file = b"BM".to_vec();
            for word in [54 + 192u32, 0, 54, 40, 8, 8, 24 << 16 | 1, 0, 192, 0, 0, 0, 0] {
                file.extend(word.to_le_bytes());
            }
            for _ in 0..64 {
                file.extend([class * 30 + noise(), 180 - class * 25 + noise(), class % 2 * 90 + noise()]);
            }
            std::fs::write(folder.join(format!("{image}.bmp")), file).unwrap();
        }
    }
}

fn ok(dir: &Path, line: &str) -> (Value, String) {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
    (serde_json::from_slice(&out.stdout).unwrap_or(Value::Null), text(&out.stderr))
}

/// A tiny run in `dir/run` with this loss and these further settings; what it prints.
fn run(dir: &Path, loss: &str, settings: &str) -> Value {
    images(dir);
    let file = format!(
        "[train]\nsteps = 8\n[data]\ntrain = [\"images\"]\ntest = [\"images\"]\n[validation]\nfraction = 0.34\nevery = 4\n\
         [image]\nsize = 8\nchannels = 3\n[sampler]\nkind = \"classes_images\"\nclasses_per_batch = 3\n\
         images_per_class = 3\n[network]\nkind = \"conv_blocks\"\nchannels = [8, 8]\ndimensions = 5\n\
         [loss]\nname = \"{loss}\"\n[optimizer]\nlearning_rate = 0.01\n"
    );
    std::fs::write(dir.join("run.toml"), file).unwrap();
    ok(dir, &format!("train run.toml --out run --json {settings}")).0
}

fn lengths(set: &EmbeddingSet) -> Vec<f32> {
    let length = |row: usize| set.embeddings.row(row).iter().map(|v| v * v).sum::<f32>().sqrt();
    (0..set.embeddings.rows()).map(length).collect()
}

const MEASURED: [&str; 4] = ["recall@1", "precision@1", "map@r", "r_precision"];

fn measured(of: &Value) -> Vec<f64> {
    let value = |name: &&str| of["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {of}"));
    MEASURED.iter().map(value).collect()
}

#[test]
fn rows_trained_as_they_are_are_written_and_compared_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let trained = run(dir, "srt", "");
    let of_run = &trained["metrics"];
    assert_eq!(of_run["metric"], "euclidean");
    assert!(
        of_run["protocol"].as_str().unwrap().ends_with("rows compared by Euclidean distance"),
        "{of_run}"
    );

    let set = EmbeddingSet::load(dir.join("run/embeddings.safetensors")).unwrap();
    assert_eq!(set.metric, Some(Metric::Euclidean));
    assert!(lengths(&set).iter().any(|length| (length - 1.0).abs() > 1e-3), "{:?}", lengths(&set));

    // The same figures, to the last digit, from the run and from its file.
    let again = ok(dir, "evaluate --run run --json").0;
    let of_file = ok(dir, "evaluate --embeddings run/embeddings.safetensors --json").0;
    assert_eq!(measured(&again), measured(of_run));
    assert_eq!(measured(&of_file), measured(of_run));
    let (other, said) = ok(dir, "evaluate --embeddings run/embeddings.safetensors --metric cosine --json");
    assert_eq!(other["metric"], "cosine");
    assert!(said.contains("compared by cosine; their file declares Euclidean distance"), "{said}");
    // A file without a metric declares none.
    npy::write_f32(dir.join("rows.npy"), &set.embeddings).unwrap();
    std::fs::write(dir.join("labels.txt"), set.labels.as_ref().unwrap().join("\n")).unwrap();
    let line = "evaluate --embeddings rows.npy --labels labels.txt --metric euclidean --json";
    let (plain, said) = ok(dir, line);
    assert_eq!(measured(&plain), measured(of_run));
    assert!(!said.contains("declares"), "{said}");

    // The files and indices made of it, and an image of the gallery looked for in them.
    ok(dir, "convert run/embeddings.safetensors --out int8.safetensors --precision int8");
    assert_eq!(EmbeddingSet::load(dir.join("int8.safetensors")).unwrap().metric, Some(Metric::Euclidean));
    for kind in ["exact", "hnsw"] {
        let line = format!("index build run/embeddings.safetensors --out {kind}.index --kind {kind} --json");
        assert_eq!(ok(dir, &line).0["metric"], "euclidean");
    }
    for (gallery, far) in [
        ("run/embeddings.safetensors", 0.0),
        ("exact.index", 0.0),
        ("hnsw.index", 0.0),
        ("int8.safetensors", 0.1),
    ] {
        let line = format!("search --gallery {gallery} --query images/class3/2.bmp -k 3 --json");
        let found = ok(dir, &line).0;
        let first = &found[0]["results"][0];
        assert!(first["distance"].as_f64().unwrap() <= far, "{gallery}: {found}");
        assert_eq!(first["path"], "class3/2.bmp", "{gallery}: {found}");
    }

    // Drawn as compared.
    let embeddings = "--embeddings run/embeddings.safetensors";
    ok(dir, &format!("plot distances {embeddings} --out distances.svg"));
    let drawn = std::fs::read_to_string(dir.join("distances.svg")).unwrap();
    assert!(drawn.contains("Euclidean distances of the embeddings"), "{drawn}");
    ok(dir, &format!("plot cmc {embeddings} --out cmc.svg"));
    let report = std::fs::read_to_string(dir.join("run/report.html")).unwrap();
    assert!(report.contains("rows compared by Euclidean distance") && !report.contains("of the normalised"));

    // For other programs.
    let bytes = |line: &str| {
        ok(dir, line);
        std::fs::read(dir.join("w.onnx")).unwrap()
    };
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let plain = bytes("weights export --run run --out w.onnx");
    assert!(has(&plain, "euclidean") && !has(&plain, "LpNormalization"));
    let scaled = bytes("weights export --run run --out w.onnx --normalize yes");
    assert!(has(&scaled, "cosine") && has(&scaled, "LpNormalization"));
}

#[test]
fn rows_of_length_1_and_rows_as_they_are_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    run(dir, "triplet_batch_hard", "");
    let embed = |out: &str, option: &str| {
        let line = format!("embed --run run --images images --out {out} {option} --json");
        (ok(dir, &line).0["metric"].clone(), EmbeddingSet::load(dir.join(out)).unwrap())
    };
    let (metric, plain) = embed("plain.safetensors", "");
    assert_eq!(metric, "euclidean");
    let (metric, scaled) = embed("scaled.safetensors", "--normalize yes");
    assert_eq!((metric, scaled.metric), ("cosine".into(), Some(Metric::Cosine)));
    assert!(lengths(&scaled).iter().all(|length| (length - 1.0).abs() < 1e-5));
    assert_eq!(embed("raw.safetensors", "--raw").1.embeddings, plain.embeddings);
    let said = text(&gallerist(dir, "embed --run run --images images --out plain.npy").stderr);
    assert!(said.contains("--metric euclidean"), "{said}");

    assert!(
        refused(dir, "convert plain.safetensors scaled.safetensors --out both.safetensors")
            .contains("--normalize")
    );
    ok(dir, "convert plain.safetensors scaled.safetensors --out both.safetensors --mix-models");
    assert_eq!(EmbeddingSet::load(dir.join("both.safetensors")).unwrap().metric, None);
    ok(dir, "index build plain.safetensors --out plain.index");
    assert!(refused(dir, "index add plain.index scaled.safetensors").contains("--force"));
    assert!(refused(dir, "index search plain.index --queries scaled.safetensors").contains("--force"));
    let both = "evaluate --query scaled.safetensors --gallery plain.safetensors";
    assert!(refused(dir, both).contains("their lengths differ"));
    ok(dir, &format!("{both} --metric cosine"));

    // A query is made as the gallery's rows were, also where that is not how the run makes them.
    ok(dir, "index build scaled.safetensors --out scaled.index");
    for gallery in ["scaled.safetensors", "scaled.index"] {
        let line = format!("search --gallery {gallery} --query images/class1/4.bmp -k 1 --json");
        let found = ok(dir, &line).0;
        assert_eq!(found[0]["results"][0]["path"], "class1/4.bmp");
        assert!(found[0]["results"][0]["distance"].as_f64().unwrap() < 1e-6, "{found}");
    }
    // Files of earlier versions name no metric, and have rows of length 1.
    EmbeddingSet { metric: None, ..scaled }.save(dir.join("old.safetensors")).unwrap();
    let found = ok(dir, "search --gallery old.safetensors --query images/class1/4.bmp -k 1 --json").0;
    assert!(found[0]["results"][0]["distance"].as_f64().unwrap() < 1e-6, "{found}");
    assert_eq!(ok(dir, "evaluate --embeddings old.safetensors --json").0["metric"], "cosine");
}

#[test]
fn rows_that_are_not_scaled_are_searched_and_mixed_by_their_length() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    run(dir, "rll", "");
    ok(dir, "embed --run run --images images --out unit.safetensors");
    let raw = ok(dir, "embed --run run --images images --normalize no --out raw.safetensors --json").0;
    assert_eq!(raw["metric"], "cosine");
    assert!(raw["model"].as_str().unwrap().ends_with("#unscaled"), "{raw}");
    let set = EmbeddingSet::load(dir.join("raw.safetensors")).unwrap();
    assert!(lengths(&set).iter().any(|length| (length - 1.0).abs() > 1e-2), "{:?}", lengths(&set));

    // A query is embedded as the rows were.
    ok(dir, "index build raw.safetensors --metric euclidean --kind exact --out raw.index");
    for gallery in ["raw.index", "raw.safetensors"] {
        let found = ok(dir, &format!("search --gallery {gallery} --query images/class3/2.bmp -k 1 --json")).0;
        let first = &found[0]["results"][0];
        assert_eq!(first["path"], "class3/2.bmp", "{gallery}: {found}");
        assert!(first["distance"].as_f64().unwrap() < 1e-4, "{gallery}: {found}");
    }

    // Rows of both lengths are only compared by the cosine.
    let lengths = "scaled to length 1";
    assert!(refused(dir, "convert raw.safetensors unit.safetensors --out x.safetensors").contains(lengths));
    assert!(refused(dir, "index add raw.index unit.safetensors").contains(lengths));
    assert!(refused(dir, "index search raw.index --queries unit.safetensors").contains(lengths));
    let both = "evaluate --query unit.safetensors --gallery raw.safetensors";
    for metric in ["euclidean", "inner-product"] {
        let message = refused(dir, &format!("{both} --metric {metric}"));
        assert!(
            message.contains("`unit.safetensors` are scaled to length 1, those of `raw.safetensors` are not"),
            "{message}"
        );
    }
    let by_cosine = ok(dir, &format!("{both} --json")).0;
    assert_eq!(
        measured(&by_cosine),
        measured(&ok(dir, "evaluate --query unit.safetensors --gallery unit.safetensors --json").0)
    );
    ok(dir, "index build raw.safetensors --kind exact --out cosine.index");
    ok(dir, "index add cosine.index unit.safetensors --replace");
    ok(dir, "index search cosine.index --queries unit.safetensors");

    // Files of before have no mark: their rows have length 1 where they are to be compared by the cosine.
    let old = EmbeddingSet::load(dir.join("unit.safetensors")).unwrap();
    assert!(!old.model.unwrap().contains('#'));
}

#[test]
fn an_index_is_marked_by_the_threshold_of_its_own_metric() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    run(dir, "rll", "");
    ok(dir, "embed --run run --images images --out unit.safetensors");
    let threshold = "threshold --embeddings unit.safetensors --far 0.2";
    ok(dir, "index build unit.safetensors --metric euclidean --kind exact --out g.index");
    let search = "search --gallery g.index --query images/class3/2.bmp -k 2";

    let message = refused(dir, &format!("{threshold} --save g.index"));
    assert!(message.contains("its rows are compared by Euclidean distance"), "{message}");
    assert!(message.contains("calibrate with --metric euclidean"), "{message}");
    ok(dir, &format!("{threshold} --metric euclidean --save g.index"));
    let (found, said) = ok(dir, &format!("{search} --json"));
    assert_eq!(found[0]["results"][0]["match"], "match", "{found}");
    assert!(!said.contains("not marked"), "{said}");
    let facts = ok(dir, "info g.index --json").0["facts"].clone();
    assert_eq!(facts["metric_of_the_threshold"], "euclidean", "{facts}");

    // A threshold that the rows of the index are not compared by.
    ok(dir, &format!("{threshold} --save unit.safetensors"));
    let said = ok(dir, "index build unit.safetensors --metric euclidean --kind exact --out g.index").1;
    let wanted = "results are not marked: the threshold of the gallery is one of cosine";
    assert!(said.contains(wanted), "{said}");
    let (found, said) = ok(dir, &format!("{search} --json"));
    assert!(found[0]["results"][0].get("match").is_none() && said.contains(wanted), "{said}{found}");
}

#[test]
fn the_metric_follows_the_loss_unless_the_run_file_names_one() {
    let dir = tempfile::tempdir().unwrap();
    let metric = |loss: &str, settings: &str| {
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        let trained = run(dir.path(), loss, settings);
        let set = EmbeddingSet::load(dir.path().join("run/embeddings.safetensors")).unwrap();
        assert_eq!(trained["metrics"]["metric"], set.metric.unwrap().name());
        let unit = lengths(&set).iter().all(|length| (length - 1.0).abs() < 1e-5);
        assert_eq!(unit, set.metric == Some(Metric::Cosine), "{loss} {settings}");
        set.metric.unwrap()
    };
    assert_eq!(metric("rll", ""), Metric::Cosine);
    assert_eq!(metric("nra", ""), Metric::Cosine);
    assert_eq!(metric("rll", "--set train.normalize=false"), Metric::Euclidean);
    assert_eq!(metric("srt", "--set evaluation.metric=cosine"), Metric::Cosine);
    let out = dir.path().join("refused");
    std::fs::create_dir(&out).unwrap();
    images(&out);
    std::fs::write(out.join("run.toml"), "[evaluation]\nmetric = \"inner_product\"").unwrap();
    assert!(refused(&out, "config --check run.toml").contains("`cosine` or `euclidean`"));
}
