//! Files of every release are read: `fixtures/compat/VERSION` for each of them.
//!
//! `fixtures/compat/README.md` says how the files of a release are written.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::served::Served;
use common::{done, root, text};
use gallerist::data::ImageSet;
use gallerist::retrieval::columns::{Column, ColumnKind, Columns};
use gallerist::retrieval::eval::{FalseRate, MatchRule};
use gallerist::retrieval::file::{Source, Sources};
use gallerist::retrieval::index::{IndexSettings, ItemFilter, Items, create_index, index_kinds, open_index};
use gallerist::retrieval::search::Metric;
use gallerist::retrieval::{Code, EmbeddingSet, GalleryFile, Matrix};
use gallerist::train::{CheckpointKind, RunConfig, RunEnd, Trainer};
use serde_json::{Value, json};

/// Where the repository was when the run was written: no folder of anybody's machine.
const PLACE: &str = "/gallerist";

/// The steps after which the run was stopped, of [`STEPS`].
const STOPPED: usize = 5;
const STEPS: usize = 8;

/// Images whose embeddings are compared.
const IMAGES: usize = 6;

fn releases() -> Vec<PathBuf> {
    let folders = fs::read_dir(root().join("fixtures/compat")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut releases: Vec<PathBuf> = folders.collect();
    releases.sort();
    assert!(!releases.is_empty());
    releases
}

/// Embeddings with everything that may belong to them.
fn set() -> EmbeddingSet {
    let rows = 40;
    let column = |name: &str, kind, value: &dyn Fn(usize) -> Option<String>| {
        Column::parse(name, kind, (0..rows).map(value)).unwrap()
    };
    let columns = vec![
        column("price", ColumnKind::Number, &|row| (row % 7 != 0).then(|| (row as f64 / 4.0).to_string())),
        column("day", ColumnKind::Date, &|row| Some(format!("2026-11-{:02}", 1 + row % 28))),
        column("shop", ColumnKind::Text, &|row| (row % 5 != 0).then(|| format!("Geschäft {}", row % 3))),
        column("tags", ColumnKind::Tags, &|row| Some(format!("new|size {}", row % 4))),
    ];
    let source = |name: &str| Source { name: name.into(), images: Some(format!("{PLACE}/{name}")) };
    let list = vec![source("studio"), source("street")];
    let sources = Sources::new(list, (0..rows).map(|row| Some(row * 2 / rows)));
    EmbeddingSet {
        labels: Some((0..rows).map(|row| format!("class {}", row % 8)).collect()),
        paths: Some((0..rows).map(|row| format!("{}/{row}.jpg", row % 8)).collect()),
        cameras: Some((0..rows).map(|row| format!("c{}", row % 2)).collect()),
        columns: Columns::new(columns).unwrap(),
        model: Some("a1".repeat(32)),
        source: None,
        sources: Some(sources.unwrap()),
        run: Some(format!("{PLACE}/runs/photos")),
        metric: Some(Metric::Cosine),
        protocol: Some("market1501".into()),
        threshold: Some(MatchRule {
            metric: Metric::Cosine,
            threshold: 0.5,
            near: 0.25,
            rate: FalseRate::Comparison,
            target: 0.001,
            measured: 0.0005,
            bound: 0.01,
            confidence: 0.95,
            miss_rate: Some(0.25),
            gallery: None,
            model: None,
        }),
        // Sixteenths: exact in every precision that has them, and sums of their products are exact, too.
        ..Matrix::new(rows, 8, (0..rows * 8).map(|at| (at * at % 31) as f32 / 16.0 - 1.0).collect())
            .unwrap()
            .into()
    }
}

/// The ids that an index finds for the first rows of [`set`], with a condition.
fn searched(path: &Path) -> Value {
    let index = open_index(path, true).unwrap();
    let set = set();
    let queries = set.embeddings.select(&[0, 9, 18]);
    let condition =
        gallerist::retrieval::condition::Condition::parse("price < 6 and tags has \"new\"").unwrap();
    let filter = ItemFilter { condition: Some(condition), ..ItemFilter::default() };
    let found = index.search(queries.view(), 4, &filter).unwrap();
    json!((0..3).map(|query| found.ids(query).to_vec()).collect::<Vec<Vec<u64>>>())
}

/// The first test images of the run, embedded by its last checkpoint.
fn embedded(run: &Path) -> Matrix {
    let model = gallerist::model::Model::open(run, CheckpointKind::Last).unwrap();
    let archive = root().join("data/omniglot/omniglot_images_evaluation.zip");
    let images = ImageSet::open(archive).unwrap();
    let rows = (0..IMAGES).flat_map(|i| model.embed_image(images.decode(i).unwrap()).unwrap());
    let rows: Vec<f32> = rows.collect();
    let values: Vec<Vec<f32>> =
        (0..IMAGES).map(|i| model.preprocess(images.decode(i).unwrap()).unwrap()).collect();
    let values: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
    assert_eq!(model.embed_preprocessed(&values).unwrap().concat(), rows, "images embedded together");
    Matrix::new(IMAGES, rows.len() / IMAGES, rows).unwrap()
}

fn near(found: &Matrix, wanted: &Matrix, bound: f32) {
    let pairs = found.view().as_slice().iter().zip(wanted.view().as_slice());
    let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < bound, "{largest}");
}

#[test]
fn embeddings_of_every_release_are_read() {
    let wanted = set();
    for release in releases() {
        assert_eq!(EmbeddingSet::load(release.join("f32.safetensors")).unwrap(), wanted);
        assert_eq!(EmbeddingSet::load(release.join("f32.npy")).unwrap().embeddings, wanted.embeddings);
        for (name, bound) in [("bf16", 1e-6), ("int8", 0.005)] {
            let file = release.join(format!("{name}.safetensors"));
            assert!(matches!(GalleryFile::open(&file, false).unwrap(), GalleryFile::Compact(_)));
            let found = EmbeddingSet::load(file).unwrap();
            near(&found.embeddings, &wanted.embeddings, bound);
            assert_eq!(EmbeddingSet { embeddings: wanted.embeddings.clone(), ..found }, wanted);
        }
    }
}

#[test]
fn indices_of_every_release_are_searched_and_changed() {
    for release in releases() {
        let known: Value =
            serde_json::from_str(&fs::read_to_string(release.join("searched.json")).unwrap()).unwrap();
        for (name, found) in known.as_object().unwrap() {
            let file = release.join(format!("{name}.index"));
            assert_eq!(&searched(&file), found, "{}", file.display());
            let mut index = open_index(&file, false).unwrap();
            let more = EmbeddingSet { paths: Some(vec!["new.jpg".into()]), ..set().select(&[3]) };
            index.upsert(&Items::from_set(more).unwrap()).unwrap();
            assert_eq!(index.info().unwrap().count, 41);
        }
    }
}

/// What [`write_saved`] has saved: names, and the places of their items in the list of all.
const SAVED: [(&str, &str, &[usize]); 3] =
    [("tags", "blurred", &[0, 2]), ("tags", "Geschäft 1", &[1]), ("selections", "poster", &[0, 1, 2, 3])];

/// The ids of the items that a request lists.
fn ids(server: &Served, filter: &str) -> Vec<Value> {
    let list = server.json(&format!("/api/v1/items?limit=100{filter}"));
    list["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect()
}

fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Adds items to a tag or a selection.
fn save(server: &Served, kind: &str, name: &str, ids: &[Value]) {
    let headers = "Authorization: Bearer secret\r\nContent-Type: application/json\r\n";
    let body = json!({ "add": ids }).to_string();
    let path = format!("/api/v1/saved/{kind}/{}", encoded(name));
    let (status, answer) = server.ask("POST", &path, headers, body.as_bytes());
    assert_eq!(status, 200, "{}", text(&answer));
}

const SERVE: &str = "serve --writable --token secret --port 0";

/// Writes the tags and selections of `exact.index`, as the server does.
fn write_saved(release: &Path) {
    let server = Served::start(release, &format!("{SERVE} --gallery exact.index"));
    let all = ids(&server, "");
    for (kind, name, places) in SAVED {
        save(&server, kind, name, &places.iter().map(|&place| all[place].clone()).collect::<Vec<_>>());
    }
}

#[test]
fn tags_and_selections_of_every_release_are_shown_and_changed() {
    for release in releases() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["exact.index", "exact.index.tags.json"] {
            fs::copy(release.join(file), folder.path().join(file)).unwrap();
        }
        let server = Served::start(folder.path(), &format!("{SERVE} --gallery exact.index"));
        let all = ids(&server, "");
        let check = |of: &[(&str, &str, &[usize])]| {
            for (kind, name, places) in of {
                let filter = format!("&{}={}", kind.trim_end_matches('s'), encoded(name));
                let wanted: Vec<Value> = places.iter().map(|&place| all[place].clone()).collect();
                assert_eq!(ids(&server, &filter), wanted, "{kind} {name}");
            }
        };
        check(&SAVED);
        save(&server, "tags", "blurred", &all[5..6]);
        check(&[("tags", "blurred", &[0, 2, 5]), SAVED[1], SAVED[2]]);
    }
}

#[test]
fn thresholds_of_every_release_decide_which_results_match() {
    for release in releases() {
        let folder = tempfile::tempdir().unwrap();
        for gallery in ["f32.safetensors", "threshold.index"] {
            fs::copy(release.join(gallery), folder.path().join(gallery)).unwrap();
            let server = Served::start(folder.path(), &format!("{SERVE} --gallery {gallery}"));
            let threshold = &server.json("/api/v1/gallery")["threshold"];
            // A cosine of 0.5 and of 0.25 as distances of unit vectors: the roots of 1 and 1.5.
            let is = |key: &str, wanted: f64| (threshold[key].as_f64().unwrap() - wanted).abs() < 1e-6;
            assert!(is("distance", 1.0) && is("near", 1.5f64.sqrt()) && is("target", 0.001), "{threshold}");
            let id = ids(&server, "")[0].as_str().unwrap().to_owned();
            let found = server.json(&format!("/api/v1/items/{id}/similar?k=39"));
            for result in found["results"].as_array().unwrap() {
                let distance = result["distance"].as_f64().unwrap();
                let wanted = match distance {
                    ..=1.0 => "match",
                    ..=1.224744 => "near",
                    _ => "no_match",
                };
                assert_eq!(result["match"], wanted, "{gallery}: {distance}");
            }
        }
    }
}

#[test]
fn runs_of_every_release_embed_and_are_resumed() {
    for release in releases() {
        let written = release.join("run");
        let wanted = EmbeddingSet::load(release.join("run.npy")).unwrap().embeddings;
        near(&embedded(&written), &wanted, 1e-4);

        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir_all(run.join("checkpoints")).unwrap();
        for file in ["log.jsonl", "checkpoints/last.safetensors", "checkpoints/best.safetensors"] {
            fs::copy(written.join(file), run.join(file)).unwrap();
        }
        let config = fs::read_to_string(written.join("config.toml")).unwrap();
        fs::write(run.join("config.toml"), config.replace(PLACE, root().to_str().unwrap())).unwrap();
        let summary = done(folder.path(), "train --resume run --json");
        assert!(summary.contains("recall@1"), "{summary}");
        let found: Value = serde_json::from_str(&done(folder.path(), "info run --json")).unwrap();
        assert_eq!(found["facts"]["state"], format!("trained, {STEPS} steps"));
    }
}

#[test]
fn every_file_is_described() {
    for release in releases() {
        let files = fs::read_to_string(release.join("contents.json")).unwrap();
        let known: Value = serde_json::from_str(&files).unwrap();
        for (name, wanted) in known.as_object().unwrap() {
            let found: Value = serde_json::from_str(&done(&release, &format!("info {name} --json"))).unwrap();
            assert_eq!(found["kind"], wanted["kind"], "{name}");
            // Later versions may say more, not less. Of a run, 0.1.0 named the network of the last checkpoint; it embeds with the best.
            let best = "run/checkpoints/best.safetensors";
            for (key, value) in wanted["facts"].as_object().unwrap() {
                let wanted = match (name.as_str(), key.as_str()) {
                    ("run", "model") => {
                        common::json(&release, &format!("info {best} --json"))["facts"][key].clone()
                    }
                    _ => value.clone(),
                };
                assert_eq!(found["facts"][key], wanted, "{name}: {key}");
            }
        }
    }
}

/// Writes `fixtures/compat/VERSION`: see `fixtures/compat/README.md`.
#[test]
#[ignore = "writes the files of a release"]
fn write_the_files_of_this_release() {
    struct Stop<'a>(&'a AtomicBool);
    impl gallerist::train::Observer for Stop<'_> {
        fn step(&mut self, record: &gallerist::train::log::Step) {
            self.0.store(record.step == STOPPED, Ordering::Relaxed);
        }
    }
    let place = Path::new(PLACE);
    assert!(place.join("configs/smoke.toml").exists(), "the repository has to be at {PLACE}");
    let release = place.join("fixtures/compat").join(env!("CARGO_PKG_VERSION"));
    fs::create_dir(&release).unwrap();

    let set = set();
    set.save(release.join("f32.safetensors")).unwrap();
    set.save(release.join("f32.npy")).unwrap();
    set.save_compact(release.join("bf16.safetensors"), Code::Bf16).unwrap();
    set.save_compact(release.join("int8.safetensors"), Code::Int8).unwrap();

    let mut found = serde_json::Map::new();
    for kind in index_kinds() {
        let file = release.join(format!("{}.index", kind.name));
        let mut index = create_index(kind, 8, Metric::Euclidean, &IndexSettings::default()).unwrap();
        index.upsert(&Items::from_set(set.clone()).unwrap()).unwrap();
        index.save(&file).unwrap();
        found.insert(kind.name.into(), searched(&file));
    }
    fs::write(release.join("searched.json"), serde_json::to_vec_pretty(&found).unwrap()).unwrap();
    done(&release, "index build f32.safetensors --out threshold.index --kind exact");
    write_saved(&release);
    let _ = fs::remove_file(release.join("exact.index.map.safetensors"));

    let settings = [
        &format!("train.steps={STEPS}"),
        "validation.every=4",
        "data.max_train_classes=30",
        "data.max_test_classes=4",
        "network.channels=[8, 8, 8, 8]",
        "network.dimensions=8",
        "sampler.classes_per_batch=8",
        "optimizer.kind=\"adamw\"",
        "optimizer.learning_rate=0.01",
        "xbm.size=40",
    ];
    let config = RunConfig::load(&place.join("configs/smoke.toml"), &settings.map(str::to_owned)).unwrap();
    let (run, stop) = (release.join("run"), AtomicBool::new(false));
    let mut trainer = Trainer::start(&config, &run).unwrap();
    assert_eq!(trainer.run(&mut Stop(&stop), &stop).unwrap(), RunEnd::Interrupted);
    EmbeddingSet::from(embedded(&run)).save(release.join("run.npy")).unwrap();

    let mut known = serde_json::Map::new();
    let checkpoint = "run/checkpoints/last.safetensors";
    let files =
        ["f32.safetensors", "f32.npy", "bf16.safetensors", "int8.safetensors", "exact.index", "hnsw.index"];
    for name in files.iter().chain(&["run", checkpoint, "run/log.jsonl"]) {
        let mut contents: Value =
            serde_json::from_str(&done(&release, &format!("info {name} --json"))).unwrap();
        let facts = contents["facts"].as_object_mut().unwrap();
        // Paths are where the repository is now.
        facts.retain(|key, _| !["trained_on", "test", "training_time"].contains(&key.as_str()));
        known.insert((*name).into(), json!({ "kind": contents["kind"], "facts": contents["facts"] }));
    }
    fs::write(release.join("contents.json"), serde_json::to_vec_pretty(&known).unwrap()).unwrap();
}

#[test]
fn a_map_and_an_audit_log_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let map = EmbeddingSet {
        model: Some("a1".repeat(32)),
        source: Some("t-SNE, perplexity 9".into()),
        ..Matrix::new(3, 2, vec![0.5; 6]).unwrap().into()
    };
    map.save(dir.join("a.index.map.safetensors")).unwrap();
    let found = common::json(dir, "info a.index.map.safetensors --json");
    assert_eq!(found["kind"], "map");
    assert_eq!(
        (&found["facts"]["points"], &found["facts"]["method"]),
        (&3.into(), &"t-SNE, perplexity 9".into())
    );
    assert!(found["facts"]["images_from"].is_null(), "{found}");

    let entry = r#"{"entry":1,"time":"2026-11-29T10:00:00Z","client":null,"token":"a","gallery":"x","change":"reload","all":true}"#;
    let failed = r#"{"failed":1,"time":"2026-11-29T10:00:01Z","problem":"it is damaged"}"#;
    fs::write(dir.join("audit.jsonl"), format!("{entry}\n{failed}\n")).unwrap();
    let found = common::json(dir, "info audit.jsonl --json");
    assert_eq!(found["kind"], "audit");
    assert_eq!((&found["facts"]["changes"], &found["facts"]["failed"]), (&1.into(), &1.into()));
}

#[test]
fn a_damaged_file_and_what_is_no_file_of_ours_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    set().save(dir.join("a.safetensors")).unwrap();
    let mut bytes = fs::read(dir.join("a.safetensors")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(dir.join("flipped.safetensors"), &bytes).unwrap();
    fs::write(dir.join("cut.safetensors"), &bytes[..200]).unwrap();
    fs::write(dir.join("notes.txt"), "milk").unwrap();
    fs::create_dir(dir.join("photos")).unwrap();
    for name in ["flipped.safetensors", "cut.safetensors", "notes.txt", "photos", "none", "milvus://db:1/x"] {
        let out = common::gallerist(dir, &format!("info {name}"));
        assert_eq!(out.status.code(), Some(2), "{name}");
        insta::assert_snapshot!(format!("info_{}", name.replace([':', '/', '.'], "_")), text(&out.stderr));
    }
    insta::assert_snapshot!("info_embeddings", done(dir, "info a.safetensors"));
}
