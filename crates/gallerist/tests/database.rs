//! Galleries in Milvus and Qdrant as a user meets them.

mod common;

use std::path::Path;

use common::{gallerist, text};

/// stderr of a call that must fail.
fn error(dir: &Path, line: &str) -> String {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(2), "{line}: {}", text(&out.stderr));
    assert!(out.stdout.is_empty(), "data on stdout and an error: {}", text(&out.stdout));
    text(&out.stderr)
}

#[test]
fn help_of_a_push_says_what_there_is() {
    insta::assert_snapshot!("help_index_push", text(&gallerist(Path::new("."), "index push --help").stdout));
}

#[cfg(not(feature = "database"))]
#[test]
fn a_program_without_a_database_says_how_to_build_one_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let set = gallerist::retrieval::Matrix::new(1, 1, vec![1.0]).unwrap();
    gallerist::retrieval::EmbeddingSet { labels: Some(vec!["a".to_owned()]), ..set.into() }
        .save(dir.path().join("a.safetensors"))
        .unwrap();
    for line in [
        "index push a.safetensors --gallery milvus://h/c",
        "index info milvus://h/c",
        "index search milvus://h/c --queries a.safetensors",
        "index remove milvus://h/c --label a",
        "search --gallery milvus://h/c --query a.png",
        "evaluate --query a.safetensors --gallery milvus://h/c",
    ] {
        for (scheme, name, feature) in [
            ("milvus", "Milvus", "milvus"),
            ("qdrant", "Qdrant", "qdrant"),
            ("milvus+tls", "Milvus", "milvus"),
            ("qdrant+tls", "Qdrant", "qdrant"),
        ] {
            let line = line.replace("milvus", scheme);
            let message = error(dir.path(), &line);
            assert_eq!(
                message,
                format!(
                    "error: cannot open `{scheme}://h/c`: this program was built without {name}\n\n\
                     hint: build it with `cargo build --release --features {feature}`\n"
                ),
                "{line}"
            );
        }
    }
}

#[cfg(all(unix, feature = "database"))]
mod with_a_server {
    use std::net::TcpListener;

    use common::{around_centres, json};
    use gallerist::retrieval::EmbeddingSet;
    use gallerist::retrieval::columns::{Column, Columns};
    use gallerist::retrieval::eval::{FalseRate, MatchRule};
    use gallerist::retrieval::file::write_threshold;
    use gallerist::retrieval::search::Metric;
    use serde_json::Value;

    use super::*;

    /// Rows around 40 centres; row `i` has the label `class i % 40`.
    fn set(rows: usize, seed: u64, model: &str) -> EmbeddingSet {
        let centre = |class: usize, at: usize| ((class * 31 + at * 17) % 23) as f32 / 11.0 - 1.0;
        around_centres(rows, seed, model, 0.9, centre)
    }

    /// The address of a collection on a server.
    type Address<'a> = &'a dyn Fn(&str) -> String;

    /// Runs a test for each database whose feature is on and whose server is there, with the name of the database.
    fn on_each_server(test: fn(&str, Address)) {
        #[cfg(feature = "milvus")]
        if let Some(server) = gallerist_testkit::milvus::shared() {
            test("Milvus", &|collection| server.address(collection));
        }
        #[cfg(feature = "qdrant")]
        if let Some(server) = gallerist_testkit::qdrant::shared() {
            test("Qdrant", &|collection| server.address(collection));
        }
    }

    #[test]
    fn a_gallery_is_pushed_measured_searched_and_changed() {
        on_each_server(pushed_measured_searched_and_changed);
    }

    fn pushed_measured_searched_and_changed(place: &str, address: Address) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        // Without paths ids are row numbers, so that equal scores have one order in file and collection.
        EmbeddingSet { paths: None, ..set(3000, 1, "sha256:one") }.save(dir.join("a.safetensors")).unwrap();
        set(200, 2, "sha256:one").save(dir.join("b.safetensors")).unwrap();
        set(50, 3, "sha256:two").save(dir.join("other.safetensors")).unwrap();
        let gallery = address("birds");
        let push = format!("index push a.safetensors --gallery {gallery} --kind exact --json");

        let missing = error(dir, &format!("index info {gallery}"));
        assert!(missing.contains("has no collection `birds`") && missing.contains("index push"), "{missing}");

        let pushed = json(dir, &push);
        assert_eq!((&pushed["sent"], &pushed["items"]), (&3000.into(), &3000.into()));
        // Without options the collection is used as it is.
        let again = json(dir, &push.replace(" --kind exact", ""));
        assert_eq!((&again["sent"], &again["unchanged"]), (&0.into(), &3000.into()));
        let info = json(dir, &format!("index info {gallery} --json"));
        assert_eq!((&info["kind"], &info["place"]), (&"exact".into(), &place.into()));
        assert_eq!((&info["count"], &info["model"]), (&3000.into(), &"sha256:one".into()));

        // The lists of an exact collection give the metrics of the file.
        let metrics = "--metrics recall@1,recall@10,precision@5,map@r,r_precision,map,mrr,ndcg --json";
        let of_file = json(dir, &format!("evaluate --embeddings a.safetensors {metrics}"));
        let of_lists =
            json(dir, &format!("evaluate --embeddings a.safetensors --gallery {gallery} {metrics}"));
        assert_eq!(of_lists["metrics"], of_file["metrics"]);
        assert_eq!(of_lists["queries_without_match"], of_file["queries_without_match"]);
        // Lists know no cameras.
        let file = "--gallery a.safetensors --protocol none";
        let of_file = json(dir, &format!("evaluate --query b.safetensors {file} {metrics}"));
        let of_lists = json(dir, &format!("evaluate --query b.safetensors --gallery {gallery} {metrics}"));
        assert_eq!(of_lists["metrics"], of_file["metrics"]);

        // And so do searches.
        json(dir, "index build a.safetensors --kind exact --out a.index --json");
        let filter = "--queries b.safetensors -k 7 --not-label class3 --camera c1 --json";
        let embedded = json(dir, &format!("index search a.index {filter}"));
        assert_eq!(json(dir, &format!("index search {gallery} {filter}")), embedded);

        let removed = json(dir, &format!("index remove {gallery} --label class3 --json"));
        assert_eq!((&removed["removed"], &removed["items"]), (&75.into(), &2925.into()));

        let mixed = error(dir, &format!("index push other.safetensors --gallery {gallery} --kind exact"));
        assert!(mixed.contains("other.safetensors") && mixed.contains("--force"), "{mixed}");
        let mixed = error(dir, &format!("evaluate --query other.safetensors --gallery {gallery}"));
        assert!(mixed.contains("distances mean nothing"), "{mixed}");
        let absent = error(dir, &format!("evaluate --embeddings b.safetensors --gallery {gallery}"));
        assert!(absent.contains("of `b.safetensors` are not in the gallery"), "{absent}");
        let other = error(dir, &format!("index push b.safetensors --gallery {gallery} --kind hnsw"));
        assert!(other.contains("12 dimensions, cosine, exact, not 12 dimensions, cosine, HNSW"), "{other}");
        let lists = error(dir, &format!("evaluate --query b.safetensors --gallery {gallery} --cluster"));
        assert!(lists.contains("--cluster is not for an index"), "{lists}");
    }

    #[test]
    fn columns_thresholds_and_rows_of_length_0_are_those_of_an_index() {
        on_each_server(columns_thresholds_and_rows_of_length_0);
    }

    fn columns_thresholds_and_rows_of_length_0(place: &str, address: Address) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let gallery = address("columns");
        // A column of numbers in one file and of texts in the other is one of texts in both galleries.
        for (file, seed, sizes) in [("a", 1, ["1.50", "2", "-0"]), ("b", 2, ["7", "large", "1e21"])] {
            let part = set(3, seed, "sha256:one");
            let columns = Columns::new(vec![Column::infer("size", sizes).unwrap()]).unwrap();
            let paths = (0..3).map(|row| format!("{file}/{row}.png")).collect();
            let part = EmbeddingSet { paths: Some(paths), columns, sources: None, ..part };
            part.save(dir.join(format!("{file}.safetensors"))).unwrap();
        }
        let rule = MatchRule {
            metric: Metric::Cosine,
            threshold: 0.5,
            near: 0.25,
            rate: FalseRate::Comparison,
            target: 0.01,
            measured: 0.009,
            bound: 0.1,
            confidence: 0.95,
            miss_rate: None,
            gallery: None,
            model: Some("sha256:one".into()),
        };
        write_threshold(dir.join("a.safetensors"), &rule).unwrap();
        for file in ["a", "b"] {
            json(dir, &format!("index push {file}.safetensors --gallery {gallery} --json"));
        }
        json(dir, "index build a.safetensors b.safetensors --kind exact --out c.index --json");
        let search =
            |index: &str| json(dir, &format!("index search {index} --queries a.safetensors -k 6 --json"));
        let sizes = |found: &Value| {
            let mut sizes: Vec<String> = found[0]["results"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| format!("{}: {}", one["path"], one["columns"]["size"]))
                .collect();
            sizes.sort();
            sizes
        };
        let of_index = sizes(&search("c.index"));
        assert_eq!(of_index[0], "\"a/0.png\": \"1.5\"");
        assert_eq!(sizes(&search(&gallery)), of_index, "{place}");
        let info = json(dir, &format!("index info {gallery} --json"));
        assert_eq!(info["threshold"], 0.5, "{place}: {info}");

        // Milvus finds a row without a direction for no query; it is refused there.
        let mut zeros = set(3, 5, "sha256:one");
        let (rows, cols) = (zeros.embeddings.rows(), zeros.embeddings.cols());
        let mut values = zeros.embeddings.as_slice().to_vec();
        values[cols..2 * cols].fill(0.0);
        zeros.embeddings = gallerist::retrieval::Matrix::new(rows, cols, values).unwrap();
        zeros.save(dir.join("z.safetensors")).unwrap();
        let push = format!("index push z.safetensors --gallery {} --kind exact", address("zeros"));
        if place == "Milvus" {
            let message = error(dir, &push);
            assert!(message.contains("the embedding of row 1 has the length 0 in f32"), "{message}");
        } else {
            json(dir, &format!("{push} --json"));
        }
    }

    #[test]
    fn rows_without_a_model_are_searched_by_their_metric() {
        on_each_server(rows_without_a_model);
    }

    fn rows_without_a_model(place: &str, address: Address) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let gallery = address("without_a_model");
        let rows = EmbeddingSet { model: None, metric: Some(Metric::Euclidean), ..set(20, 1, "") };
        rows.save(dir.join("e.safetensors")).unwrap();
        json(dir, &format!("index push e.safetensors --gallery {gallery} --kind exact --json"));
        json(dir, "index build e.safetensors --kind exact --out e.index --json");
        let search =
            |index: &str| json(dir, &format!("index search {index} --queries e.safetensors -k 3 --json"));
        assert_eq!(search(&gallery), search("e.index"), "{place}");
    }

    #[test]
    fn images_are_searched_in_a_collection_as_in_a_file() {
        on_each_server(images_are_searched);
    }

    fn images_are_searched(_: &str, address: Address) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let small = "train configs/smoke.toml --json --set train.steps=4 --set train.checkpoint_every=4 \
                     --set validation.every=4 --set data.max_test_classes=12 --out";
        json(&root, &format!("{small} {}", run.display()));
        let file = run.join("embeddings.safetensors");
        let gallery = address("of_a_run");
        json(&root, &format!("index push {} --gallery {gallery} --kind exact --json", file.display()));

        let image = folder.path().join("query.bmp");
        std::fs::write(&image, image_of_a_wedge()).unwrap();
        let search = |gallery: &str| {
            let line = format!(
                "search --gallery {gallery} --query {} -k 5 --run {} --json",
                image.display(),
                run.display()
            );
            json(&root, &line)
        };
        let seen = |found: &Value| {
            let results = found[0]["results"].as_array().unwrap().clone();
            results
                .into_iter()
                .map(|one| (one["distance"].clone(), one["path"].clone(), one["label"].clone()))
                .collect::<Vec<_>>()
        };
        let found = seen(&search(&gallery));
        assert_eq!(found.len(), 5);
        assert_eq!(found, seen(&search(file.to_str().unwrap())));
    }

    /// A BMP of 8 x 8 pixels, white and below the diagonal black.
    fn image_of_a_wedge() -> Vec<u8> {
        let mut bmp = b"BM".to_vec();
        for field in [54 + 8 * 24, 0, 54, 40, 8, 8, 24 << 16 | 1, 0, 8 * 24, 0, 0, 0, 0u32] {
            bmp.extend(field.to_le_bytes());
        }
        bmp.extend((0..64).flat_map(|at| [if at % 8 < at / 8 { 0u8 } else { 255 }; 3]));
        bmp
    }

    #[test]
    fn a_server_that_is_not_there_is_said_plainly() {
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (feature, scheme, name) in
            [(cfg!(feature = "milvus"), "milvus", "Milvus"), (cfg!(feature = "qdrant"), "qdrant", "Qdrant")]
        {
            if !feature {
                let other = error(dir.path(), &format!("index info {scheme}://{free}/birds"));
                assert!(other.contains(&format!("this program was built without {name}")), "{other}");
                continue;
            }
            assert_eq!(
                error(dir.path(), &format!("index info {scheme}://{free}/birds")),
                format!(
                    "error: cannot reach {name} at {free}: the connection was refused\n\n\
                     hint: is the server running, and is this its port? wanted {scheme}://HOST:PORT/COLLECTION\n"
                )
            );
            assert_eq!(
                error(dir.path(), &format!("index info {scheme}://localhost")),
                format!(
                    "error: `{scheme}://localhost` is not an address of a {name} collection: it names no collection\n\n\
                     hint: write {scheme}://HOST:PORT/COLLECTION\n"
                )
            );
        }
    }
}
