//! `gallerist serve`: the real program, its network and its page.

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use common::served::Served;
use common::{gallerist, root, small_run, text};
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::search::Metric;
use serde_json::Value;

#[test]
fn help_and_refusals_say_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    insta::assert_snapshot!("help_serve", text(&gallerist(dir.path(), "serve --help").stdout));
    let refused = |line: &str| {
        let out = gallerist(dir.path(), line);
        assert_eq!(out.status.code(), Some(2));
        text(&out.stderr)
    };
    assert!(refused("serve --gallery none.safetensors").contains("none.safetensors"));
    assert!(refused("serve --gallery none.safetensors --writable").contains("needs a token"));
    assert!(refused("serve --gallery none.safetensors --token x").contains("--writable"));
    let queries = refused("serve --gallery none.safetensors --query-images none");
    assert!(queries.contains("no queries") && queries.contains("--queries FILE"), "{queries}");
    let images = refused("serve --gallery none.safetensors --images a=b --images c");
    assert!(images.contains("`c` does not name the source"), "{images}");
}

#[test]
fn a_token_for_changes_reads_a_server_that_nobody_changes() {
    use gallerist::retrieval::Matrix;

    let dir = tempfile::tempdir().unwrap();
    let set: EmbeddingSet = Matrix::new(3, 1, vec![1.0; 3]).unwrap().into();
    set.save(dir.path().join("g.safetensors")).unwrap();
    let serve = |file: &str, read: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
        command.args(["serve", "--gallery", file, "--port", "0"]).current_dir(dir.path());
        command.env("GALLERIST_TOKEN", "alice:changes").env_remove("GALLERIST_READ_TOKEN");
        command.envs(read.map(|token| ("GALLERIST_READ_TOKEN", token)));
        command
    };
    let server = Served::of(serve("g.safetensors", Some("bob:reads"))).unwrap();
    let status = |method: &str, path: &str, token: &str| {
        server.ask(method, path, &format!("Authorization: Bearer {token}\r\n"), b"").0
    };
    for (token, wanted) in [("changes", 200), ("reads", 200), ("guessed", 401)] {
        assert_eq!(status("GET", "/api/v1/gallery", token), wanted, "{token}");
    }
    assert_eq!(status("POST", "/api/v1/reload", "changes"), 403);
    drop(server);
    let told = |read| text(&serve("none.safetensors", read).output().unwrap().stderr);
    assert!(told(None).contains("GALLERIST_TOKEN has no effect"), "{}", told(None));
    assert!(!told(Some("bob:reads")).contains("no effect"));
}

#[cfg(unix)]
#[test]
fn a_gallery_cut_short_while_it_is_served_is_an_error_and_the_server_lives() {
    use gallerist::retrieval::{Code, Matrix};

    let dir = tempfile::tempdir().unwrap();
    let values = (0..1200 * 512u64).map(|at| ((at * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
    let set = EmbeddingSet {
        paths: Some((0..1200).map(|row| format!("{row}.png")).collect()),
        ..Matrix::new(1200, 512, values).unwrap().into()
    };
    let at = |name: &str| dir.path().join(name);
    set.save(at("f32.safetensors")).unwrap();
    set.save_compact(at("bf16.safetensors"), Code::Bf16).unwrap();
    for kind in ["exact", "hnsw"] {
        let line = format!("index build f32.safetensors --kind {kind} --out {kind}.index");
        assert_eq!(gallerist(dir.path(), &line).status.code(), Some(0));
    }
    for file in ["exact.index", "hnsw.index", "bf16.safetensors"] {
        let line = format!("serve --gallery {file} --port 0 --analysis-limit 0");
        let mut server = Served::start(dir.path(), &line);
        let id =
            server.json("/api/v1/items?offset=1100&limit=1")["items"][0]["id"].as_str().unwrap().to_owned();
        let similar = format!("/api/v1/items/{id}/similar?k=5");
        server.get(&similar);
        // Searches before, while and after the file loses its end.
        let answers = std::thread::scope(|scope| {
            let searches: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..25).map(|_| server.ask("GET", &similar, "", b"")).collect::<Vec<_>>())
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(15));
            std::fs::OpenOptions::new().write(true).open(at(file)).unwrap().set_len(5000).unwrap();
            searches.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for (status, body) in answers.into_iter().chain([server.ask("GET", &similar, "", b"")]) {
            let body = String::from_utf8(body).unwrap();
            assert!(
                status == 200 || body.contains("was changed while it was in use"),
                "{file}: {status} {body}"
            );
        }
        let (status, body) = server.ask("GET", &similar, "", b"");
        assert_eq!(status, 500, "{file}: {}", String::from_utf8_lossy(&body));
        server.json("/api/v1/gallery");
        assert!(server.child.try_wait().unwrap().is_none(), "{file}: the server lives");
        let pid = server.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{file}: it ends when told, by no signal");
    }
}

#[cfg(unix)]
#[test]
fn a_hang_up_signal_opens_a_replaced_gallery_and_keeps_the_old_one_of_a_broken_file() {
    use gallerist::retrieval::Matrix;

    let dir = tempfile::tempdir().unwrap();
    let replace = |rows: usize| {
        let values = (0..rows * 4).map(|at| (at % 7) as f32 + 1.0).collect();
        let set: EmbeddingSet = EmbeddingSet {
            paths: Some((0..rows).map(|row| format!("{row}.png")).collect()),
            ..Matrix::new(rows, 4, values).unwrap().into()
        };
        set.save(dir.path().join("new.safetensors")).unwrap();
        std::fs::rename(dir.path().join("new.safetensors"), dir.path().join("g.safetensors")).unwrap();
    };
    replace(20);
    let mut server = Served::start(dir.path(), "serve --gallery g.safetensors --port 0 --analysis-limit 0");
    let pid = server.child.id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    let count = || server.json("/api/v1/gallery")["count"].as_u64().unwrap();
    let until = |wanted: u64| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while count() != wanted && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(count(), wanted);
    };
    until(20);
    replace(30);
    signal("-HUP");
    until(30);
    std::fs::remove_file(dir.path().join("g.safetensors")).unwrap();
    signal("-HUP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    until(30);
    replace(10);
    signal("-HUP");
    until(10);
    signal("-TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_served_run_finds_what_search_finds_and_stops_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let (root, run) = (root(), small_run(dir.path(), &[]));
    let gallery = run.join("embeddings.safetensors");
    let mut server = Served::start(&root, &format!("serve --gallery {} --port 0", gallery.display()));
    let about = server.json("/api/v1/gallery");
    assert_eq!(
        (about["count"].as_u64(), &about["upload"], &about["images"]),
        (Some(400), &true.into(), &true.into())
    );
    assert!(String::from_utf8(server.get("/")).unwrap().contains("<!doctype html>"));

    // An image of the gallery, as a file and as an upload.
    let id = server.json("/api/v1/items?offset=33&limit=1")["items"][0]["id"].as_str().unwrap().to_owned();
    let image = server.get(&format!("/images/{id}"));
    let file = dir.path().join("query.png");
    std::fs::write(&file, &image).unwrap();
    let search = format!("search --gallery {} --query {} -k 5 --json", gallery.display(), file.display());
    let searched: Value = serde_json::from_slice(&gallerist(&root, &search).stdout).unwrap();
    let part = "--limit\r\nContent-Disposition: form-data; name=";
    let head = format!("{part}\"k\"\r\n\r\n5\r\n{part}\"image\"; filename=\"query.png\"\r\n\r\n");
    let form = [head.as_bytes(), &image, b"\r\n--limit--\r\n"].concat();
    let headers = "Content-Type: multipart/form-data; boundary=limit\r\n";
    let (status, found) = server.ask("POST", "/api/v1/search/upload", headers, &form);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&found));
    let found: Value = serde_json::from_slice(&found).unwrap();
    let paths = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|result| result["path"].clone()).collect()
    };
    assert_eq!(paths(&found["results"]), paths(&searched[0]["results"]));
    assert_eq!(found["results"][0]["id"], id.as_str());

    let heat = server.json(&format!("/api/v1/heatmap?query={id}&item={id}"));
    assert_eq!(heat["query"], heat["item"]);
    assert!(!heat["query"]["values"].as_array().unwrap().is_empty());

    #[cfg(unix)]
    {
        let pid = server.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn an_upload_is_compared_as_the_gallery_was_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let run = dir.path().join("run");
    let train = format!(
        "train configs/smoke.toml --out {} --set train.steps=4 --set validation.fraction=0 \
         --set data.max_test_classes=20 --set loss={{name=\"srt\"}}",
        run.display()
    );
    let out = gallerist(&root, &train);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let gallery = run.join("embeddings.safetensors");
    let index = dir.path().join("gallery.index");
    let out = gallerist(&root, &format!("index build {} --out {}", gallery.display(), index.display()));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    // The same network, and rows of length 1.
    let cosine = run.join("cosine.safetensors");
    let mut set = EmbeddingSet::load(&gallery).unwrap();
    (set.embeddings, set.metric) = (set.embeddings.l2_normalized().0, Some(Metric::Cosine));
    set.save(&cosine).unwrap();
    let images = "--images data/omniglot/omniglot_images_evaluation.zip";
    let line = format!(
        "serve --gallery c={} --gallery e={} --gallery i={} {images} --port 0",
        cosine.display(),
        gallery.display(),
        index.display()
    );
    let server = Served::start(&root, &line);
    for (name, metric) in [("c", "cosine"), ("e", "euclidean"), ("i", "euclidean")] {
        let about = server.json(&format!("/api/v1/gallery?gallery={name}"));
        assert_eq!((&about["metric"], &about["upload"]), (&metric.into(), &true.into()));
        let listed = server.json(&format!("/api/v1/items?gallery={name}&offset=33&limit=1"));
        let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
        let image = server.get(&format!("/images/{id}?gallery={name}"));
        let part = "--limit\r\nContent-Disposition: form-data; name=";
        let head = format!("{part}\"k\"\r\n\r\n5\r\n{part}\"image\"; filename=\"query.png\"\r\n\r\n");
        let form = [head.as_bytes(), &image, b"\r\n--limit--\r\n"].concat();
        let headers = "Content-Type: multipart/form-data; boundary=limit\r\n";
        let address = format!("/api/v1/search/upload?gallery={name}");
        let (status, found) = server.ask("POST", &address, headers, &form);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&found));
        let found: Value = serde_json::from_slice(&found).unwrap();
        let first = &found["results"][0];
        assert_eq!((&first["id"], first["similarity"].is_null()), (&id.as_str().into(), name != "c"));
        let distance = first["distance"].as_f64().unwrap();
        match name {
            // The distance of two rows that are divided by their length, each rounded to f32.
            "c" => assert!(distance < 1e-3, "{found}"),
            _ => assert_eq!(distance, 0.0, "the embedder gives the row of the gallery: {found}"),
        }
        // What is near follows the lengths of the rows.
        let similar = server.json(&format!("/api/v1/items/{id}/similar?gallery={name}&k=1"));
        assert_eq!(similar["results"].as_array().unwrap().len(), 1);
    }
    // A run is looked at even if another gallery has its network.
    let line = line.replace("--port 0", &format!("--port 0 --run e={}", dir.path().display()));
    let refused = gallerist(&root, &line);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("the gallery `e`"), "{}", text(&refused.stderr));
}

/// A colour bitmap of 8 x 8 pixels whose colours are the identity's.
fn bitmap(identity: u32, shade: u32) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    for word in [54 + 192u32, 0, 54, 40, 8, 8, 24 << 16 | 1, 0, 192, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend((0..192).map(|at| ((identity * 37 * (at % 3 + 1) + at * shade * 5) % 251) as u8));
    file
}

#[test]
fn images_of_sources_that_are_not_named_are_found_where_they_were_and_missing_ones_are_told() {
    use gallerist::retrieval::Matrix;
    use gallerist::retrieval::file::{Source, Sources};

    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // The images of S were moved to `photos`, those of U are gone. All have one path, so that none is found by its path.
    for (folder, identity) in [("photos", 1), ("T", 2)] {
        std::fs::create_dir(at(folder)).unwrap();
        std::fs::write(at(folder).join("1.bmp"), bitmap(identity, 1)).unwrap();
    }
    let list = [("S", "S"), ("T", "T"), ("U", "U.zip")].map(|(name, place)| {
        let images = Some(at(place).to_str().unwrap().to_owned());
        Source { name: name.to_owned(), images }
    });
    let set = EmbeddingSet {
        paths: Some(vec!["1.bmp".to_owned(); 3]),
        sources: Some(Sources::new(list.to_vec(), (0..3).map(Some)).unwrap()),
        ..Matrix::new(3, 1, vec![1.0, 2.0, 3.0]).unwrap().into()
    };
    set.save(at("g.safetensors")).unwrap();
    let served = |images: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
        command.args(["serve", "--gallery", "g.safetensors", "--port", "0"]).args(images);
        command.current_dir(dir.path()).stderr(Stdio::piped());
        let mut server = Served::of(command).unwrap();
        let items = server.json("/api/v1/items")["items"].clone();
        let image = |item: &Value| {
            let (status, body) =
                server.ask("GET", &format!("/images/{}", item["id"].as_str().unwrap()), "", b"");
            (status == 200).then_some(body)
        };
        let found: Vec<_> = items.as_array().unwrap().iter().map(image).collect();
        server.child.kill().unwrap();
        let mut told = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (found, told)
    };
    let [moved, kept] = [1, 2].map(|identity| Some(bitmap(identity, 1)));
    let (found, told) = served(&[]);
    assert_eq!(found, [None, kept.clone(), None]);
    assert!(told.contains("no image of 2 of the gallery's sources is found: `S`, `U`;"), "{told}");
    let (found, told) = served(&["--images", "S=photos"]);
    assert_eq!(found, [moved.clone(), kept, None]);
    assert!(told.contains("no image of the source `U` is found; give --images U=PATH"), "{told}");
    // What --images does not name and cannot be opened is no reason to show nothing.
    std::fs::write(at("U.zip"), "no archive").unwrap();
    let (found, told) = served(&["--images", "S=photos"]);
    assert_eq!(found, [moved, None, None]);
    assert!(told.contains("only the images that --images names are shown: "), "{told}");
}

/// Market-1501 in small: 8 identities for training, 5 for the test seen by 3 cameras, junk and distractors.
fn market(dir: &Path) {
    let image = |folder: &str, label: &str, camera: u32, number: u32, identity: u32| {
        let folder = dir.join("market").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let name = format!("{label}_c{camera}s1_{number:06}_00.bmp");
        std::fs::write(folder.join(name), bitmap(identity, camera * 10 + number)).unwrap();
    };
    for identity in (1..=5).chain(20..28) {
        let (label, test) = (format!("{identity:04}"), identity <= 5);
        for camera in 1..=3 {
            if test {
                image("query", &label, camera, 9, identity);
            }
            let folder = if test { "bounding_box_test" } else { "bounding_box_train" };
            (0..2).for_each(|number| image(folder, &label, camera, number, identity));
        }
    }
    (0..4).for_each(|number| image("bounding_box_test", "-1", 1 + number % 3, 20 + number, 1 + number % 2));
    (0..3).for_each(|number| image("bounding_box_test", "0000", 1 + number, 30 + number, 1 + number));
    let run = "[train]\nsteps = 3\n[data]\ntrain = [\"market\"]\ntest = [\"market\"]\n[validation]\nfraction = 0.0\n\
               [image]\nsize = 8\n[sampler]\nkind = \"classes_images\"\nclasses_per_batch = 3\n\
               images_per_class = 2\n[network]\nkind = \"conv_blocks\"\nchannels = [8, 8]\ndimensions = 6\n";
    std::fs::write(dir.join("market.toml"), run).unwrap();
}

#[test]
fn a_run_of_queries_and_a_gallery_is_served_with_the_figures_of_its_report() {
    let dir = tempfile::tempdir().unwrap();
    market(dir.path());
    let out = gallerist(dir.path(), "train market.toml --out run");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("run/metrics.json")).unwrap()).unwrap();

    for line in ["--gallery run", "--gallery run/gallery.safetensors --queries run/query.safetensors"] {
        let server = Served::start(dir.path(), &format!("serve {line} --port 0"));
        let about = server.json("/api/v1/gallery");
        assert_eq!((&about["queries"]["count"], &about["count"]), (&15.into(), &37.into()));
        assert_eq!(about["protocol"]["name"], "market1501");
        assert_eq!(
            [&about["upload"], &about["images"], &about["queries"]["images"]],
            [&Value::Bool(true); 3]
        );
        let failures = loop {
            let failures = server.json("/api/v1/failures?limit=500");
            if failures["state"] != "computing" {
                break failures;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        let metrics = failures["metrics"].as_array().unwrap();
        assert!(metrics.iter().any(|metric| metric["name"] == "cmc@1"), "{failures}");
        for metric in metrics {
            let wanted = report["metrics"][metric["name"].as_str().unwrap()].as_f64().unwrap();
            let found = metric["value"].as_f64().unwrap();
            assert!((found - wanted).abs() < 1e-15, "{metric}: wanted {wanted}");
        }
        assert_eq!(failures["total"], 15);
        // A query finds neither junk nor its person from its own camera, and its pictures are there.
        let query = server.json("/api/v1/items?set=query&limit=1")["items"][0].clone();
        let id = query["id"].as_str().unwrap();
        let found = server.json(&format!("/api/v1/items/{id}/similar?k=99"));
        let counts = |hit: &Value| {
            hit["label"] != "-1" && (hit["label"] != query["label"] || hit["camera"] != query["camera"])
        };
        assert_eq!(found["results"].as_array().unwrap().len(), 37 - 4 - 2);
        assert!(found["results"].as_array().unwrap().iter().all(counts));
        assert!(server.get(&format!("/images/{id}")).starts_with(b"BM"));
    }
}
