//! Sets of queries and a gallery, from training to the figures: published layouts, own images, files.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{gallerist, refused, text};
use gallerist::measured::Measured;
use gallerist::retrieval::EmbeddingSet;
use gallerist::train::log::{self, Record};
use gallerist::train::{RunConfig, RunDirectory, open_test};
use serde_json::Value;

/// A colour bitmap of 8 x 8 pixels: stripes whose colours are the identity's, shaded by `shade`.
fn bitmap(identity: u32, shade: u32) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    for word in [54 + 192u32, 0, 54, 40, 8, 8, 24 << 16 | 1, 0, 192, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for y in 0..8u32 {
        for x in 0..8 {
            for channel in 1..4 {
                file.push(
                    ((identity * 37 * channel + y * identity * 11 + x * shade * 7 + shade * 23) % 251) as u8,
                );
            }
        }
    }
    file
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Market-1501 in small: 8 identities for training, 5 for the test, seen by 3 cameras; 4 pieces of junk
/// and 3 distractors in the gallery.
fn market(dir: &Path) {
    let image = |folder: &str, label: &str, camera: u32, number: u32, identity: u32| {
        let path = dir.join(format!("market/{folder}/{label}_c{camera}s1_{number:06}_00.bmp"));
        write(&path, &bitmap(identity, camera * 10 + number));
    };
    for identity in 20..28 {
        for camera in 1..=3 {
            (0..2).for_each(|n| image("bounding_box_train", &format!("{identity:04}"), camera, n, identity));
        }
    }
    for identity in 1..=5 {
        for camera in 1..=3 {
            let label = format!("{identity:04}");
            image("query", &label, camera, 9, identity);
            (0..2).for_each(|n| image("bounding_box_test", &label, camera, n, identity));
        }
    }
    // A distractor and a piece of junk look like the first identity: rules decide what they are.
    (0..4).for_each(|n| image("bounding_box_test", "-1", 1 + n % 3, 20 + n, 1 + n % 2));
    (0..3).for_each(|n| image("bounding_box_test", "0000", 1 + n, 30 + n, 1 + n));
}

/// A run file for tiny pictures; `data` is the content of `[data]`.
fn run_file(dir: &Path, name: &str, data: &str, further: &str) {
    let text = format!(
        "[train]\nsteps = 4\ncheckpoint_every = 2\n[data]\n{data}\n[validation]\nfraction = 0.4\nevery = 2\n\
         {further}\n[image]\nsize = 8\n[sampler]\nkind = \"classes_images\"\nclasses_per_batch = 3\n\
         images_per_class = 2\n[network]\nkind = \"conv_blocks\"\nchannels = [8, 8]\ndimensions = 6\n"
    );
    write(&dir.join(name), text.as_bytes());
}

#[track_caller]
fn done(dir: &Path, line: &str) -> Output {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(0), "{line}\n{}", text(&out.stderr));
    out
}

#[track_caller]
fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)))
}

fn metrics_of(run: PathBuf) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("metrics.json")).unwrap()).unwrap()
}

/// Mean average precision and CMC@1 by the Market-1501 rules, from the distances, as their definitions say.
fn by_the_definitions(queries: &EmbeddingSet, gallery: &EmbeddingSet) -> (f64, f64) {
    let of = |set: &EmbeddingSet, row: usize| {
        (set.labels.as_ref().unwrap()[row].clone(), set.cameras.as_ref().unwrap()[row].clone())
    };
    let (mut map, mut first, mut count) = (0.0, 0.0, 0.0);
    for query in 0..queries.embeddings.rows() {
        let (label, camera) = of(queries, query);
        let dot = |row: usize| -> f32 {
            let (a, b) = (queries.embeddings.row(query), gallery.embeddings.row(row));
            a.iter().zip(b).map(|(a, b)| a * b).sum()
        };
        let mut ranked: Vec<(f32, bool)> = (0..gallery.embeddings.rows())
            .filter(|&row| {
                let (other, seen_by) = of(gallery, row);
                other != "-1" && !(other == label && seen_by == camera)
            })
            .map(|row| (dot(row), of(gallery, row).0 == label))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut hits, mut sum) = (0.0, 0.0);
        for (rank, (_, right)) in ranked.iter().enumerate() {
            if *right {
                hits += 1.0;
                sum += hits / (rank as f64 + 1.0);
            }
        }
        map += sum / hits;
        first += f64::from(u8::from(ranked[0].1));
        count += 1.0;
    }
    (map / count, first / count)
}

#[test]
fn market1501_is_trained_and_measured_by_its_protocol_and_every_way_gives_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    market(dir);
    run_file(
        dir,
        "market.toml",
        "train = [\"market\"]\ntest = [\"market\"]",
        "metric = \"cmc@1\"\n[evaluation]\nprotocol = \"market1501\"\nrerank = { k1 = 4, k2 = 2 }\n\
         bootstrap = { resamples = 20, over = \"classes\" }\n[log]\ntensorboard = true",
    );
    let trained = done(dir, "train market.toml --out run");
    let shown = text(&trained.stdout);
    assert!(
        shown.contains(
            "market1501: queries against the other cameras' images: 15 queries against 33 images, 4 junk left out"
        ),
        "{shown}"
    );
    let metrics = metrics_of(dir.join("run"));
    assert_eq!(metrics["protocol"], "market1501: queries against the other cameras' images");
    let counts = ["queries", "gallery", "junk", "queries_without_match"].map(|key| metrics[key].as_u64());
    assert_eq!(counts, [15, 33, 4, 0].map(Some));

    assert_eq!((&metrics["reranked"]["junk"], &metrics["reranked"]["gallery"]), (&4.into(), &33.into()));
    assert!(metrics["reranked"]["intervals"].is_object());
    assert!(dir.join("run/tensorboard/tensors.tsv").exists());
    // The report has the same figures, and its lists are as the protocol sees them.
    let page = fs::read_to_string(dir.join("run/report.html")).unwrap();
    for name in ["map_trapezoid", "map", "cmc@1"] {
        let shown = format!("<td>{:.2}", 100.0 * metrics["metrics"][name].as_f64().unwrap());
        assert!(page.contains(&shown), "{name} {shown}");
    }
    let listed = |verdict: &str, label: &str| page.matches(&format!(", {verdict}, {label}\"")).count();
    assert_eq!((listed("right", "-1"), listed("wrong", "-1")), (0, 0), "junk is in no list");
    assert!(listed("right", "0000") == 0 && listed("wrong", "0000") > 0, "distractors are wrong");
    assert!(page.contains("Validation") && page.contains(">map<"), "the validation's own metrics are drawn");
    done(dir, "evaluate --run run --html again.html");
    let again = fs::read_to_string(dir.join("again.html")).unwrap();
    assert!(again.contains("15 queries against a gallery of 33 images (market1501"), "{again}");
    assert!(again.contains("data:image/"), "the run's images are found");

    // Two files, each with what is known of its rows.
    assert!(!dir.join("run/embeddings.safetensors").exists());
    let run = RunDirectory::open(&dir.join("run")).unwrap();
    let measured = Measured::of_run(&run).unwrap().unwrap();
    let gallery = measured.gallery.clone().unwrap();
    for (set, rows) in [(&measured.queries, 15), (&gallery, 37)] {
        assert_eq!(set.embeddings.rows(), rows);
        assert_eq!(set.protocol.as_deref(), Some("market1501"));
        assert!(set.labels.is_some() && set.cameras.is_some() && set.paths.is_some());
    }
    let (map, first) = by_the_definitions(&measured.queries, &gallery);
    let close = |name: &str, wanted: f64| {
        let found = metrics["metrics"][name].as_f64().unwrap();
        assert!((found - wanted).abs() < 1e-9, "{name}: {found}, by its definition {wanted}");
    };
    close("map", map);
    close("cmc@1", first);
    assert_eq!(
        measured.report().unwrap().evaluation.metrics["map"],
        metrics["metrics"]["map"].as_f64().unwrap()
    );

    // The same to the last digit: from the run, from its files, and from files embedded apart.
    let figures = |line: &str| json(&done(dir, &format!("{line} --json")))["metrics"].clone();
    assert_eq!(figures("evaluate --run run"), metrics["metrics"]);
    assert_eq!(
        figures("evaluate --query run/query.safetensors --gallery run/gallery.safetensors"),
        metrics["metrics"]
    );
    for split in ["query", "gallery", "test"] {
        done(dir, &format!("embed --run run --images market --split {split} --out {split}.safetensors"));
    }
    let apart = "evaluate --query query.safetensors --gallery gallery.safetensors";
    assert_eq!(figures(&format!("{apart} --protocol market1501")), metrics["metrics"]);
    let named = done(dir, &format!("{apart} --json"));
    assert_eq!(json(&named)["metrics"], metrics["metrics"]);
    let said = text(&named.stderr);
    assert!(said.contains("protocol: market1501, which both files name (--protocol none"), "{said}");
    assert_eq!(figures("evaluate --run run --query market --gallery market"), metrics["metrics"]);

    // `none` leaves junk and cameras as they are.
    let none = json(&done(dir, &format!("{apart} --protocol none --json")));
    assert_eq!(none["protocol"], "queries against a gallery");
    assert_eq!((&none["gallery"], &none["junk"]), (&Value::from(37), &Value::Null));

    // Junk is no class of one set.
    let whole = refused(dir, "evaluate --embeddings test.safetensors");
    assert!(whole.contains("4 rows with the label `-1` are junk, no class"), "{whole}");
    assert!(whole.contains("--query and --gallery"), "{whole}");
    done(dir, "evaluate --embeddings test.safetensors --protocol none");
}

#[test]
fn a_set_with_both_splits_is_measured_as_such_without_being_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    market(dir);
    let figures = |name: &str, data: &str| {
        run_file(dir, &format!("{name}.toml"), data, "");
        done(dir, &format!("train {name}.toml --out {name}"));
        metrics_of(dir.join(name))
    };
    let of_test = figures("test", "train = [\"market\"]\ntest = [\"market\"]");
    assert_eq!(of_test["protocol"], "market1501: queries against the other cameras' images");
    let of_sides = figures("sides", "train = [\"market\"]\nquery = [\"market\"]\ngallery = [\"market\"]");
    let same = ["metrics", "protocol", "queries", "gallery", "junk", "notes"];
    same.iter().for_each(|key| assert_eq!(of_sides[key], of_test[key], "{key}"));
    // Asked for by name, a split is one set.
    let one = figures("one", "train = [\"market\"]\ntest = [\"market\"]\ntest_split = \"query\"");
    assert_eq!(one["protocol"], "every image against the rest");
    assert!(dir.join("one/embeddings.safetensors").exists());
    // The first two identities of the queries; junk and distractors stay.
    let few = figures("few", "train = [\"market\"]\ntest = [\"market\"]\nmax_test_classes = 2");
    let counts = ["queries", "gallery", "junk"].map(|key| few[key].as_u64());
    assert_eq!(counts, [6, 15, 4].map(Some));
}

#[test]
fn in_shop_is_measured_by_its_protocol_without_cameras() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mut rows = Vec::new();
    for item in 0..8u32 {
        for n in 0..4 {
            let status = if item < 5 { "train" } else { ["query", "gallery"][n as usize % 2] };
            let path = format!("img/item{item}_{n}.bmp");
            write(&dir.join("shop").join(&path), &bitmap(item + 1, n));
            rows.push(format!("{path} id_{item:08} {status}"));
        }
    }
    let list = format!("{}\nimage_name item_id evaluation_status\n{}\n", rows.len(), rows.join("\n"));
    write(&dir.join("shop/list_eval_partition.txt"), list.as_bytes());
    run_file(dir, "shop.toml", "train = [\"shop\"]\ntest = [\"shop\"]", "");
    done(dir, "train shop.toml --out run");
    let metrics = metrics_of(dir.join("run"));
    assert_eq!(metrics["protocol"], "inshop: queries against a gallery");
    assert_eq!((&metrics["queries"], &metrics["gallery"]), (&Value::from(6), &Value::from(6)));
    assert!(metrics["metrics"]["recall@50"].is_number());
    for split in ["query", "gallery"] {
        done(dir, &format!("embed --run run --images shop --split {split} --out {split}.safetensors"));
    }
    let apart = "evaluate --query query.safetensors --gallery gallery.safetensors --protocol inshop --json";
    assert_eq!(json(&done(dir, apart))["metrics"], metrics["metrics"]);
    assert_eq!(json(&done(dir, "evaluate --run run --json"))["metrics"], metrics["metrics"]);
    // Without junk one set is measured, with a warning.
    done(dir, "embed --run run --images shop --split test --out test.safetensors");
    let whole = done(dir, "evaluate --embeddings test.safetensors");
    assert!(
        text(&whole.stderr).contains("`inshop` compares queries with a gallery"),
        "{}",
        text(&whole.stderr)
    );
    // Validation of images without cameras compares every image with the others.
    let records = log::read(&dir.join("run/log.jsonl")).unwrap();
    let protocols: Vec<_> = records.iter().filter_map(validation).map(|(protocol, _)| protocol).collect();
    assert_eq!(protocols, ["every image against the rest"; 2]);

    // A run of images that are cut to their boxes cuts other images, too, if they have boxes.
    let all = (0..8u32).flat_map(|item| (0..4).map(move |n| (item, n)));
    let mut boxes: Vec<String> =
        all.map(|(item, n)| format!("img/item{item}_{n}.bmp 1 1 {} {n} 6 7\n", item % 3)).collect();
    let write_boxes = |boxes: &[String]| {
        let header = "image_name clothes_type pose_type x_1 y_1 x_2 y_2";
        let list = format!("{}\n{header}\n{}", boxes.len(), boxes.concat());
        write(&dir.join("shop/list_bbox_inshop.txt"), list.as_bytes());
    };
    write_boxes(&boxes);
    let data = "train = [\"shop\"]\ntest = [\"shop\"]\ncrop_boxes = true";
    run_file(dir, "boxes.toml", data, "");
    done(dir, "train boxes.toml --out boxes-run");
    let own = json(&done(dir, "evaluate --run boxes-run --json"))["metrics"].clone();
    let given = done(dir, "evaluate --run boxes-run --query shop --gallery shop --json");
    assert_eq!(json(&given)["metrics"], own);
    *boxes.last_mut().unwrap() = "img/item7_3.bmp 1 1 50 50 60 60\n".into();
    write_boxes(&boxes);
    let given = gallerist(dir, "evaluate --run boxes-run --query shop --gallery shop");
    assert!(text(&given.stderr).contains("holds nothing of its"), "{}", text(&given.stderr));
    for n in 0..20u32 {
        let (side, item) = (["query", "gallery"][n as usize % 2], n % 4 / 2);
        write(&dir.join(format!("plain/{side}/item{item}/{n}.bmp")), &bitmap(item + 1, n));
    }
    let plain = done(dir, "evaluate --run boxes-run --query plain --gallery plain");
    assert!(text(&plain.stderr).contains("have none: they are used whole"), "{}", text(&plain.stderr));
}

fn validation(record: &Record) -> Option<(&str, Vec<&str>)> {
    match record {
        Record::Validation { protocol, metrics, .. } => {
            Some((protocol, metrics.keys().map(String::as_str).collect()))
        }
        _ => None,
    }
}

#[test]
fn validation_looks_across_cameras_and_its_metric_chooses_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    market(dir);
    run_file(dir, "market.toml", "train = [\"market\"]", "metric = \"map_trapezoid\"");
    let out = done(dir, "train market.toml --out run");
    assert!(text(&out.stderr).contains("no test images"), "{}", text(&out.stderr));
    let records = log::read(&dir.join("run/log.jsonl")).unwrap();
    let found: Vec<_> = records.iter().filter_map(validation).collect();
    let names = vec!["cmc@1", "cmc@10", "cmc@5", "map", "map_trapezoid"];
    assert_eq!(found, [("queries against the other cameras' images", names.clone()), (found[1].0, names)]);
    let value = |record: &Record| match record {
        Record::Validation { step, metrics, .. } => Some((*step, metrics["map_trapezoid"])),
        _ => None,
    };
    let values: Vec<_> = records.iter().filter_map(value).collect();
    let best = if values[1].1 > values[0].1 { values[1] } else { values[0] };
    let model =
        gallerist::model::Model::open(&dir.join("run"), gallerist::train::CheckpointKind::Best).unwrap();
    assert_eq!(model.step(), best.0);
}

#[test]
fn own_images_are_queries_and_gallery_by_folders_manifests_and_run_files() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    // Photographs of products: training and test of the same classes, nested as deep as the classes are.
    for class in 0..6u32 {
        for n in 0..4u32 {
            let split = if n < 3 { "train" } else { "test" };
            write(&dir.join(format!("shelf/{split}/Fruit/Class{class}/{n}.bmp")), &bitmap(class + 1, n));
            let side = if n < 2 { "gallery" } else { "query" };
            write(&dir.join(format!("sides/{side}/Class{class}/{n}.bmp")), &bitmap(class + 1, n));
        }
    }
    run_file(
        dir,
        "shelf.toml",
        "train = [\"shelf\"]\ntrain_split = \"train\"\nquery = [\"shelf\"]\nquery_split = \"test\"\n\
         gallery = [\"shelf\"]\ngallery_split = \"train\"",
        "",
    );
    done(dir, "train shelf.toml --out shelf-run");
    let metrics = metrics_of(dir.join("shelf-run"));
    assert_eq!(metrics["protocol"], "queries against a gallery");
    assert_eq!((&metrics["queries"], &metrics["gallery"]), (&Value::from(6), &Value::from(18)));
    assert!(metrics["metrics"]["recall@8"].is_number());
    let again =
        "evaluate --run shelf-run --query shelf --query-split test --gallery shelf --gallery-split train";
    assert_eq!(json(&done(dir, &format!("{again} --json")))["metrics"], metrics["metrics"]);
    // What a run measures of its own test images, and cannot of queries and a gallery, is left out.
    run_file(
        dir,
        "clusters.toml",
        "train = [\"shelf\"]\ntest = [\"shelf\"]",
        "[evaluation]\ncluster = \"faiss20\"",
    );
    done(dir, "train clusters.toml --out clusters-run");
    let other = done(dir, "evaluate --run clusters-run --query sides --gallery sides");
    assert!(
        text(&other.stderr).contains("evaluation.cluster of the run is left out"),
        "{}",
        text(&other.stderr)
    );
    // Images on both sides find themselves, which is said.
    let both = done(dir, "evaluate --run shelf-run --query shelf --query-split test --gallery shelf");
    assert!(
        text(&both.stderr).contains("6 of 6 queries are images of the gallery, too"),
        "{}",
        text(&both.stderr)
    );

    // The run's own way to read labels holds for these images, too: `Class0` is `Fruit/Class0`.
    done(dir, "train shelf.toml --set data.label=leaf --out leaf-run");
    let sides = "--query sides --query-split query --gallery shelf --gallery-split train --json";
    let without_match = |run: &str| {
        json(&done(dir, &format!("evaluate --run {run} {sides}")))["queries_without_match"].clone()
    };
    assert_eq!((without_match("leaf-run"), without_match("shelf-run")), (0.into(), 12.into()));

    // A folder whose splits are called query and gallery.
    run_file(dir, "sides.toml", "train = [\"shelf\"]\ntrain_split = \"train\"\ntest = [\"sides\"]", "");
    done(dir, "train sides.toml --out sides-run");
    let metrics = metrics_of(dir.join("sides-run"));
    assert_eq!(metrics["protocol"], "queries against a gallery");
    assert_eq!((&metrics["queries"], &metrics["gallery"]), (&Value::from(12), &Value::from(12)));

    // A manifest with cameras: an image of the query's class and camera is skipped.
    let mut list = String::from("path,label,camera,split\n");
    for class in 0..6 {
        for n in 0..4 {
            let side = ["gallery", "gallery", "query", "gallery"][n];
            let split = if n < 3 { "train" } else { "test" };
            list += &format!("shelf/{split}/Fruit/Class{class}/{n}.bmp,Class{class},{},{side}\n", n % 2);
        }
    }
    write(&dir.join("list.csv"), list.as_bytes());
    let data = "train = [\"shelf\"]\ntrain_split = \"train\"\ntest = [\"list.csv\"]";
    run_file(dir, "list.toml", data, "");
    done(dir, "train list.toml --out list-run");
    let metrics = metrics_of(dir.join("list-run"));
    assert_eq!(metrics["protocol"], "queries against the other cameras' images");
    assert_eq!((&metrics["queries"], &metrics["gallery"]), (&Value::from(6), &Value::from(18)));
    let files = "evaluate --query list-run/query.safetensors --gallery list-run/gallery.safetensors";
    let compared = done(dir, &format!("{files} --json"));
    assert_eq!(json(&compared)["metrics"], metrics["metrics"]);
    assert!(text(&compared.stderr).contains("both files have cameras"), "{}", text(&compared.stderr));
    run_file(dir, "plain.toml", data, "[evaluation]\nprotocol = \"none\"");
    done(dir, "train plain.toml --out plain-run");
    assert_eq!(metrics_of(dir.join("plain-run"))["protocol"], "queries against a gallery");
}

#[test]
fn every_published_set_of_queries_and_a_gallery_is_opened_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let persons = |root: &str, rest: &str| {
        for (folder, identity) in [("bounding_box_train", 7), ("query", 3), ("bounding_box_test", 3)] {
            (1..=2).for_each(|camera| {
                write(
                    &dir.join(format!("{root}/{folder}/000{identity}_c{camera}{rest}.bmp")),
                    &bitmap(identity, camera),
                );
            });
        }
    };
    persons("market", "s1_000151_01");
    persons("duke", "_f0046302");
    persons("cuhk03/detected", "_1");
    persons("cuhk03/labeled", "_1");
    let rows = ["train", "val", "test"].map(|status| {
        write(&dir.join(format!("consumer/img/{status}_user.bmp")), &bitmap(1, 1));
        write(&dir.join(format!("consumer/img/{status}_shop.bmp")), &bitmap(1, 2));
        format!("img/{status}_user.bmp img/{status}_shop.bmp id_{status} {status}\n")
    });
    let list = format!("3\nimage_pair_name_1 image_pair_name_2 item_id evaluation_status\n{}", rows.concat());
    write(&dir.join("consumer/list_eval_partition.txt"), list.as_bytes());
    for (root, protocol, queries, gallery) in [
        ("market", "market1501", 2, 2),
        ("duke", "duke", 2, 2),
        ("cuhk03/detected", "cuhk03", 2, 2),
        ("cuhk03/labeled", "cuhk03", 2, 2),
        // The shop's pictures of the validation items are in the gallery, too.
        ("consumer", "consumer_to_shop", 1, 2),
    ] {
        let text = format!("[data]\ntest = [{:?}]", dir.join(root));
        let config = RunConfig::parse(&text, "a test", &[]).unwrap();
        let test = open_test(&config).unwrap().unwrap();
        assert_eq!((test.queries.len(), test.gallery.as_ref().unwrap().len()), (queries, gallery), "{root}");
        let plan = test.plan(&config.evaluation).unwrap();
        assert_eq!(plan.protocol.unwrap().name, protocol);
        assert_eq!(test.notes(&config.evaluation), [""; 0]);
    }
    // Sets of which every image is compared with the others stay as they are.
    let text = "[data]\ntest = [\"../../data/omniglot/omniglot_images_evaluation.zip\"]";
    let config = RunConfig::parse(text, "a test", &[]).unwrap();
    let test = open_test(&config).unwrap().unwrap();
    assert!(test.gallery.is_none());
    let measures = test.plan(&config.evaluation).unwrap().options.measures;
    assert_eq!(measures, gallerist::retrieval::eval::EvalOptions::default().measures);
    // Sides of different sets have no protocol in common.
    let text = format!("[data]\nquery = [{:?}]\ngallery = [{:?}]", dir.join("market"), dir.join("duke"));
    let config = RunConfig::parse(&text, "a test", &[]).unwrap();
    let notes = open_test(&config).unwrap().unwrap().notes(&config.evaluation);
    assert!(notes[0].contains("the protocol `market1501`, the gallery's `duke`"), "{notes:?}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    market(dir);
    write(&dir.join("flat/1.bmp"), &bitmap(1, 1));
    for class in 0..3u32 {
        for side in ["query", "gallery"] {
            write(&dir.join(format!("sides/{side}/Class{class}/{class}.bmp")), &bitmap(class + 1, 1));
        }
    }
    let mut all = String::new();
    for (name, data, further) in [
        ("both", "test = [\"market\"]\nquery = [\"market\"]\ngallery = [\"market\"]", ""),
        ("query-alone", "query = [\"market\"]", ""),
        ("gallery-alone", "gallery = [\"market\"]", ""),
        ("split-alone", "test = [\"market\"]\nquery_split = \"query\"", ""),
        ("no-cameras", "test = [\"sides\"]", "[evaluation]\nprotocol = \"market1501\""),
        ("one-set", "test = [\"market\"]\ntest_split = \"query\"", "[evaluation]\nprotocol = \"market1501\""),
        ("every-image", "test = [\"market\"]", "[evaluation]\nprotocol = \"cub200\""),
        ("clusters", "test = [\"market\"]", "[evaluation]\ncluster = \"faiss20\""),
        ("no-labels", "query = [\"flat\"]\ngallery = [\"market\"]", ""),
        ("unknown", "test = [\"market\"]", "[evaluation]\nprotocol = \"market\""),
        ("metric", "test = [\"market\"]", "metric = \"mapp\""),
    ] {
        run_file(dir, &format!("{name}.toml"), &format!("train = [\"market\"]\n{data}"), further);
        let message = refused(dir, &format!("train {name}.toml --out {name}"));
        all += &format!("--- {name}\n{message}\n");
        assert!(!dir.join(name).exists(), "{name} leaves no run directory behind");
    }
    run_file(dir, "good.toml", "train = [\"market\"]", "");
    done(dir, "train good.toml --out run");
    for line in [
        "evaluate --run run",
        "evaluate --run run --gallery market",
        "evaluate --run run --query market --gallery gallery.safetensors",
        "evaluate --run run --query market --gallery market --cluster",
        "evaluate --query market --gallery market",
        "evaluate --run run --query market --query-split query --gallery market --gallery-split x",
    ] {
        all += &format!("--- {line}\n{}\n", refused(dir, line));
    }
    insta::assert_snapshot!("query_gallery_errors", all.replace(dir.to_str().unwrap(), "DIR"));
}
