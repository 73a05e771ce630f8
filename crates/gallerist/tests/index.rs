//! `gallerist index` as a user meets it.

mod common;

use std::path::Path;

use common::{around_centres, bitmap, done, gallerist, json, program, refused, text};
use gallerist::retrieval::index::stable_id;
use gallerist::retrieval::{Code, EmbeddingSet, Matrix};
use serde_json::Value;

/// Rows around 40 centres; row `i` has the label `class i % 40`.
fn set(rows: usize, seed: u64, model: &str) -> EmbeddingSet {
    let centre = |class: usize, at: usize| ((class * 31 + (class + 3) * at * at) % 41) as f32 / 20.0 - 1.0;
    around_centres(rows, seed, model, 0.2, centre)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    set(6000, 1, "sha256:one").save(folder.path().join("a.safetensors")).unwrap();
    set(200, 2, "sha256:one").save(folder.path().join("b.safetensors")).unwrap();
    set(50, 3, "sha256:two").save(folder.path().join("other.safetensors")).unwrap();
    folder
}

#[test]
fn help_says_what_there_is() {
    insta::assert_snapshot!("help_index", text(&gallerist(Path::new("."), "index --help").stdout));
    for command in ["build", "info", "search", "bench", "add", "remove"] {
        let help = gallerist(Path::new("."), &format!("index {command} --help"));
        insta::assert_snapshot!(format!("help_index_{command}"), text(&help.stdout));
    }
}

#[test]
fn an_index_is_built_searched_changed_and_searched_again() {
    let folder = folder();
    let dir = folder.path();
    for kind in ["hnsw", "exact"] {
        let built = json(dir, &format!("index build a.safetensors --out g.index --kind {kind} --json"));
        assert_eq!((&built["items"], &built["kind"]), (&6000.into(), &kind.into()));
        assert_eq!(built, json(dir, "index info g.index --json"));

        let found = json(dir, "index search g.index --queries b.safetensors -k 5 --json");
        assert_eq!(found.as_array().unwrap().len(), 200);
        let first = &found[7]["results"][0];
        assert_eq!((&first["rank"], &first["label"]), (&1.into(), &"class7".into()));
        let id = stable_id(first["path"].as_str().unwrap());
        assert_eq!(first["id"], id.to_string());
        let mapped = json(dir, "index search g.index --queries b.safetensors -k 5 --mapped --json");
        assert_eq!(found, mapped);

        let other = json(dir, "index search g.index --queries b.safetensors -k 5 --not-label class7 --json");
        assert!(other[7]["results"].as_array().unwrap().iter().all(|one| one["label"] != "class7"));
        let camera = json(dir, "index search g.index --queries b.safetensors -k 5 --camera c1 --json");
        assert!(camera[7]["results"].as_array().unwrap().iter().all(|one| one["camera"] == "c1"));

        let added = json(dir, "index add g.index b.safetensors --json");
        assert_eq!(added["items"], 6200);
        assert_eq!(json(dir, "index add g.index b.safetensors --json")["items"], 6200, "the same again");
        let itself = json(dir, "index search g.index --queries b.safetensors -k 1 --json");
        assert_eq!(itself[7]["results"][0]["path"], "2/7.jpg");

        let removed = json(dir, "index remove g.index --path 2/7.jpg --json");
        assert_eq!(removed["items"], 6199);
        let gone = json(dir, "index search g.index --queries b.safetensors -k 1 --json");
        assert_ne!(gone[7]["results"][0]["path"], "2/7.jpg");
        let compacted = json(dir, &format!("index remove g.index --id {id} --compact --json"));
        assert_eq!(compacted["items"], 6198);
        if kind == "hnsw" {
            assert_eq!((&removed["dead"], &compacted["dead"]), (&1.into(), &0.into()));
        }
        let nothing = gallerist(dir, "index remove g.index --label unheard");
        assert_eq!(nothing.status.code(), Some(1), "nothing removed is something to look at");
    }
}

#[test]
fn an_index_that_is_cut_within_its_header_is_called_damaged_by_every_command() {
    let folder = folder();
    let dir = folder.path();
    json(dir, "index build b.safetensors --out g.index --kind exact --json");
    let whole = std::fs::read(dir.join("g.index")).unwrap();
    std::fs::write(dir.join("g.index"), &whole[..100]).unwrap();
    std::fs::write(dir.join("x.bmp"), bitmap(9)).unwrap();
    for line in [
        "info g.index",
        "index info g.index",
        "search --gallery g.index --query x.bmp",
        "evaluate --query b.safetensors --gallery g.index --metrics recall@1",
    ] {
        let message = refused(dir, line);
        assert!(
            message.contains("cannot read `g.index` as an index: it is cut short or damaged"),
            "{line}: {message}"
        );
    }
}

#[test]
fn the_lists_of_an_index_are_evaluated_like_its_file() {
    let folder = folder();
    let dir = folder.path();
    for metric in ["cosine", "euclidean", "inner-product"] {
        for kind in ["exact", "hnsw"] {
            let build =
                format!("index build a.safetensors --out g.index --kind {kind} --metric {metric} --json");
            assert_eq!(json(dir, &build)["items"], 6000);
            for queries in ["--embeddings a.safetensors", "--query b.safetensors"] {
                let measure = |gallery: &str, more: &str| {
                    let line = format!("evaluate {queries} {gallery} --metrics recall@1,map@r {more} --json");
                    json(dir, &line)
                };
                let of_index = measure("--gallery g.index", "");
                // Lists know no cameras.
                let gallery = match queries.contains("--query") {
                    true => "--gallery a.safetensors --protocol none",
                    false => "",
                };
                let of_file = measure(gallery, &format!("--metric {metric}"));
                let value = |found: &Value, name: &str| found["metrics"][name].as_f64().unwrap();
                for name in ["recall@1", "map@r"] {
                    let (index, file) = (value(&of_index, name), value(&of_file, name));
                    let room = if kind == "exact" { 0.0 } else { 0.01 };
                    assert!((index - file).abs() <= room, "{metric} {kind} {queries} {name}: {index} {file}");
                }
                assert_eq!(of_index["metric"], of_file["metric"]);
                assert!(of_index["protocol"].as_str().unwrap().contains("lists of an index"));
            }
        }
    }
    let wrong = gallerist(dir, "evaluate --query b.safetensors --gallery g.index --cluster");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("--cluster is not for an index"), "{}", text(&wrong.stderr));
    let absent = gallerist(dir, "evaluate --embeddings b.safetensors --gallery g.index");
    assert!(text(&absent.stderr).contains("200 of 200 rows of `b.safetensors` are not in the gallery"));
}

#[test]
fn an_index_is_measured_with_its_own_labels_and_rows_only() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let whole = set(200, 1, "sha256:one");
    let save = |name: &str, set: EmbeddingSet| set.save(dir.join(name)).unwrap();
    save("a.safetensors", whole.clone());
    whole.save_compact(dir.join("int8.safetensors"), Code::Int8).unwrap();
    save("plain.safetensors", EmbeddingSet { labels: None, ..whole.clone() });
    done(dir, "index build int8.safetensors --kind exact --out g.index");
    done(dir, "index build plain.safetensors --kind exact --out plain.index");
    done(dir, "evaluate --embeddings a.safetensors --gallery g.index");

    for line in ["--embeddings a.safetensors", "--query a.safetensors"] {
        let message = refused(dir, &format!("evaluate {line} --gallery plain.index"));
        assert!(message.contains("the items of `plain.index` have none"), "{message}");
    }
    // Lists are measured by whole labels: sets would never match.
    let mut labels = whole.labels.clone().unwrap();
    labels[1] = "class1|heron".to_owned();
    save("sets.safetensors", EmbeddingSet { labels: Some(labels), ..whole.clone() });
    done(dir, "index build sets.safetensors --kind exact --out sets.index");
    for (line, named) in [
        ("--query a.safetensors --gallery sets.index", "`sets.index`"),
        ("--query sets.safetensors --gallery g.index", "`sets.safetensors`"),
    ] {
        let message = refused(dir, &format!("evaluate {line}"));
        assert!(message.contains(&format!("{named} has label sets (a|b)")), "{message}");
    }
    let mut labels = whole.labels.clone().unwrap();
    labels[7] = "heron".to_owned();
    save("labels.safetensors", EmbeddingSet { labels: Some(labels.clone()), ..whole.clone() });
    std::fs::write(dir.join("labels.txt"), labels.join("\n")).unwrap();
    for line in ["--embeddings labels.safetensors", "--embeddings a.safetensors --labels labels.txt"] {
        let message = refused(dir, &format!("evaluate {line} --gallery g.index"));
        assert!(message.contains("1 label of"), "{message}");
        assert!(
            message.contains("row 7 has the label `heron`, its item has the label `class7`"),
            "{message}"
        );
    }
    let mut rows: Vec<usize> = (0..200).collect();
    rows.swap(3, 60);
    let embeddings = whole.embeddings.select(&rows);
    save("rows.safetensors", EmbeddingSet { embeddings, ..whole.clone() });
    let message = refused(dir, "evaluate --embeddings rows.safetensors --gallery g.index");
    assert!(message.contains("2 rows of `rows.safetensors` differ from the items of `g.index`"), "{message}");

    // Queries of classes that the index does not have.
    let mut labels = whole.labels.clone().unwrap();
    labels[0] = "owl".to_owned();
    save("query.safetensors", EmbeddingSet { labels: Some(labels), ..whole.clone() });
    let out = gallerist(dir, "evaluate --query query.safetensors --gallery g.index");
    let said = text(&out.stderr);
    assert!(said.contains("1 query has no relevant item in the gallery: `owl`"), "{said}");

    done(dir, "index remove g.index --label class7");
    let message = refused(dir, "evaluate --embeddings a.safetensors --gallery g.index");
    assert!(message.contains("5 of 200 rows of `a.safetensors` are not in the gallery"), "{message}");
    assert!(message.contains("leave these rows out"), "{message}");
}

#[test]
fn images_that_are_compared_with_themselves_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let whole = EmbeddingSet { cameras: None, ..set(200, 1, "sha256:one") };
    whole.save(dir.join("a.safetensors")).unwrap();
    whole.select(&(0..50).collect::<Vec<_>>()).save(dir.join("part.safetensors")).unwrap();
    let said = |line: &str| {
        let out = gallerist(dir, line);
        assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
        text(&out.stderr)
    };
    for (query, count) in [("a", "200 of 200 queries are"), ("part", "50 of 50 queries are")] {
        let said = said(&format!("evaluate --query {query}.safetensors --gallery a.safetensors"));
        assert!(said.contains(&format!("{count} images of the gallery, too, and find themselves")), "{said}");
    }
    let joined = said("convert a.safetensors part.safetensors --out twice.safetensors");
    assert!(joined.contains("50 rows of an image that an earlier row is of, too"), "{joined}");
    let alone = said("evaluate --embeddings twice.safetensors");
    assert!(alone.contains("50 rows of an image that an earlier row is of, too"), "{alone}");
    assert!(!said("evaluate --embeddings a.safetensors").contains("earlier row"));
    // In an index.
    done(dir, "index build a.safetensors --kind exact --out a.index");
    let all = said("evaluate --query a.safetensors --gallery a.index");
    assert!(all.contains("200 of 200 queries are images of the gallery, too, and find themselves"), "{all}");
    assert!(all.contains("with --embeddings FILE --gallery INDEX"), "{all}");
    assert!(!said("evaluate --embeddings a.safetensors --gallery a.index").contains("find themselves"));
    done(dir, "index build part.safetensors --kind exact --out part.index");
    let some = said("evaluate --query a.safetensors --gallery part.index");
    assert!(some.contains("50 of 200 queries are images of the gallery, too"), "{some}");
    // One file without paths.
    let labels: Vec<&str> = whole.labels.iter().flatten().map(String::as_str).collect();
    std::fs::write(dir.join("a.txt"), labels.join("\n")).unwrap();
    whole.save(dir.join("a.npy")).unwrap();
    let said = said("evaluate --query a.npy --query-labels a.txt --gallery ./a.npy --gallery-labels a.txt");
    assert!(said.contains("200 of 200 queries are"), "{said}");
}

#[test]
fn cameras_of_files_are_not_said_to_count_where_labels_are_sets() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = |name: &str, labels: fn(usize) -> String| {
        let labels = Some((0..80).map(labels).collect());
        EmbeddingSet { labels, ..set(80, 1, "sha256:one") }.save(dir.join(name)).unwrap();
    };
    save("classes.safetensors", |row| format!("class{}", row % 5));
    save("sets.safetensors", |row| format!("class{}|all", row % 5));
    for (name, counts) in [("classes", true), ("sets", false)] {
        let line = format!("evaluate --query {name}.safetensors --gallery {name}.safetensors");
        let out = gallerist(dir, &line);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert_eq!(text(&out.stderr).contains("from its own camera are skipped"), counts, "{name}");
    }
}

#[test]
fn values_of_a_filter_that_no_item_has_are_refused_and_label_sets_are_filtered_by_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mut whole = set(80, 1, "sha256:one");
    for (row, label) in whole.labels.iter_mut().flatten().enumerate() {
        *label = ["Fruit", "Fruit/Apple", "a|b", "c"][row % 4].to_owned();
    }
    whole.save(dir.join("a.safetensors")).unwrap();
    done(dir, "index build a.safetensors --kind exact --out g.index");
    let search = "index search g.index --queries a.safetensors -k 80 --json";
    for (filter, wanted) in [("Fruit", 40), ("Fruit/*", 20), ("a", 20), ("b", 20)] {
        let found = json(dir, &format!("{search} --label {filter}"));
        assert_eq!(found[0]["results"].as_array().unwrap().len(), wanted, "{filter}");
        let others = json(dir, &format!("{search} --not-label {filter}"));
        assert_eq!(others[0]["results"].as_array().unwrap().len(), 80 - wanted, "not {filter}");
    }
    for (filter, wanted) in [
        ("--camera nope", "no item is of the camera `nope`"),
        ("--not-camera nope", "no item is of the camera `nope`"),
        ("--path nope.jpg", "no item has the path `nope.jpg`"),
        ("--id 5", "no item has the id 5"),
    ] {
        let message = refused(dir, &format!("{search} {filter}"));
        assert!(message.contains(wanted), "{message}");
    }
    let removed = gallerist(dir, "index remove g.index --path nope.jpg --label a");
    assert!(text(&removed.stderr).contains("no item has the path `nope.jpg`"), "{}", text(&removed.stderr));
}

#[test]
fn the_graph_is_the_same_for_any_number_of_threads() {
    let folder = folder();
    for threads in [1, 2] {
        let line = format!("index build a.safetensors --out {threads}.index --threads {threads}");
        assert_eq!(gallerist(folder.path(), &line).status.code(), Some(0));
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("1.index") == read("2.index"));
}

#[test]
fn the_bench_says_recall_and_speed() {
    let folder = folder();
    let dir = folder.path();
    assert_eq!(gallerist(dir, "index build a.safetensors --out g.index").status.code(), Some(0));
    let rows = json(dir, "index bench g.index --queries b.safetensors --ef 20,200 --repeats 1 --json");
    let recall = |row: usize| rows[row]["recall"].as_f64().unwrap();
    assert!(recall(0) > 0.9 && recall(1) >= 0.99 && recall(2) == 1.0, "{rows}");
    assert_eq!((&rows[0]["ef"], &rows[2]["ef"]), (&20.into(), &Value::Null));
    assert!(
        text(&gallerist(dir, "index bench g.index --queries b.safetensors --repeats 1").stdout)
            .contains("recall@10")
    );
}

#[test]
fn errors_say_what_was_wanted_what_was_found_and_what_to_do() {
    let folder = folder();
    let dir = folder.path();
    assert_eq!(gallerist(dir, "index build a.safetensors --out g.index").status.code(), Some(0));
    assert_eq!(gallerist(dir, "index build a.safetensors --out e.index --kind exact").status.code(), Some(0));
    let whole = std::fs::read(dir.join("g.index")).unwrap();
    std::fs::write(dir.join("cut.index"), &whole[..whole.len() - 9]).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    std::fs::write(dir.join("flipped.index"), flipped).unwrap();
    let save = |name: &str, rows: usize, cols: usize, data: Vec<f32>| {
        EmbeddingSet::from(Matrix::new(rows, cols, data).unwrap()).save(dir.join(name)).unwrap();
    };
    save("nan.npy", 1, 12, [vec![0.0; 5], vec![f32::NAN], vec![0.0; 6]].concat());
    save("wide.npy", 1, 13, vec![1.0; 13]);
    save("none.npy", 0, 12, vec![]);
    std::fs::write(dir.join("labels.txt"), "one\ntwo\n").unwrap();

    let mut all = String::new();
    let mut case = |name: &str, line: &str| {
        let out = gallerist(dir, line);
        assert_eq!(out.status.code(), Some(2), "{name}: {}", text(&out.stderr));
        assert!(out.stdout.is_empty(), "{name}: data on stdout and an error");
        all += &format!("--- {name}\n{}\n", text(&out.stderr));
    };
    case("no index", "index info nothing.index");
    case("cut short", "index search cut.index --queries b.safetensors");
    case("a flipped bit", "index info flipped.index");
    case("embeddings instead of an index", "index info a.safetensors");
    case("a NaN", "index build nan.npy --out x.index");
    case("a NaN among the queries", "index search g.index --queries nan.npy");
    case("another dimension", "index add g.index wide.npy");
    case("queries of another dimension", "index search g.index --queries wide.npy");
    case("an empty gallery", "index build none.npy --out x.index");
    case("two models in build", "index build a.safetensors other.safetensors --out x.index");
    case("another model in add", "index add g.index other.safetensors");
    case("queries of another model", "index search g.index --queries other.safetensors");
    case("labels of other files", "index build a.safetensors --labels labels.txt --out x.index");
    case("no paths", "index build wide.npy --ids paths --out x.index");
    case("k of 0", "index search g.index --queries b.safetensors -k 0");
    case("--ef of an exact index", "index search e.index --queries b.safetensors --ef 9");
    case("m of 1", "index build a.safetensors --out x.index --m 1");
    case("remove what?", "index remove g.index");
    insta::assert_snapshot!("index_errors", all);
    assert!(!dir.join("x.index").exists(), "a build that fails leaves nothing behind");
    assert!(std::fs::read(dir.join("g.index")).unwrap() == whole, "an add that fails changes nothing");

    let mixed = gallerist(dir, "index add g.index other.safetensors --force");
    assert_eq!(mixed.status.code(), Some(0), "{}", text(&mixed.stderr));
    let forced = gallerist(dir, "index search g.index --queries other.safetensors --force -k 99999 --json");
    let lists: Value = serde_json::from_slice(&forced.stdout).unwrap();
    assert_eq!(lists[0]["results"].as_array().unwrap().len(), 6050, "k larger than the gallery");
}

#[test]
fn items_of_an_unknown_network_are_mixed_with_others_by_force_only() {
    let folder = folder();
    let dir = folder.path();
    EmbeddingSet { model: None, ..set(50, 4, "") }.save(dir.join("unknown.safetensors")).unwrap();
    done(dir, "index build b.safetensors --out g.index");
    done(dir, "index build unknown.safetensors --out u.index");
    for line in [
        "index add g.index unknown.safetensors --replace",
        "index add u.index b.safetensors --replace",
        "index build unknown.safetensors b.safetensors --replace --out x.index",
    ] {
        let message = refused(dir, line);
        assert!(message.contains("is known, that of") && message.contains("--force"), "{message}");
    }
    let mixed = gallerist(dir, "index add g.index unknown.safetensors --replace --force");
    assert_eq!(mixed.status.code(), Some(0));
    let wanted = "the items are of several networks now: the index names no network and no run";
    assert!(text(&mixed.stderr).contains(wanted), "{}", text(&mixed.stderr));
    assert_eq!(json(dir, "index info g.index --json")["model"], Value::Null);
    let built =
        gallerist(dir, "index build unknown.safetensors b.safetensors --replace --force --out f.index");
    assert!(text(&built.stderr).contains(wanted), "{}", text(&built.stderr));
    assert!(!text(&gallerist(dir, "index build b.safetensors --out f.index").stderr).contains("several"));
    let built = gallerist(dir, "index build unknown.safetensors --out e.index --metric euclidean");
    assert!(
        !text(&built.stderr).contains("declares"),
        "the file declares no metric: {}",
        text(&built.stderr)
    );
}

#[test]
fn files_with_paths_are_not_added_to_an_index_that_has_ids_of_its_own() {
    let folder = folder();
    let dir = folder.path();
    done(dir, "index build b.safetensors --ids rows --out r.index");
    let message = refused(dir, "index add r.index b.safetensors");
    assert!(message.contains("item 0 is `2/0.jpg`") && message.contains("--ids rows"), "{message}");
    assert_eq!(json(dir, "index info r.index --json")["items"], 200);
    // As asked.
    assert_eq!(json(dir, "index add r.index b.safetensors --ids rows --json")["items"], 400);
    // The number of an item that was removed is not given again.
    done(dir, "index remove r.index --id 399");
    done(dir, "index add r.index b.safetensors --ids rows");
    let message = refused(dir, "index search r.index --queries b.safetensors --id 399");
    assert!(message.contains("no item has the id 399"), "{message}");
}

#[test]
fn rows_of_an_empty_label_are_no_class() {
    let folder = folder();
    let dir = folder.path();
    let mut half = set(400, 5, "sha256:one");
    half.labels.as_mut().unwrap().iter_mut().step_by(2).for_each(String::clear);
    half.save(dir.join("half.safetensors")).unwrap();
    done(dir, "index build half.safetensors --out half.index");
    for line in [
        "evaluate --embeddings half.safetensors",
        "evaluate --query b.safetensors --gallery half.safetensors",
        "evaluate --query b.safetensors --gallery half.index",
        "threshold --embeddings half.safetensors",
        "data issues --embeddings half.safetensors --out issues",
    ] {
        let message = refused(dir, line);
        assert!(
            message.contains("200 rows of `half.") && message.contains("have an empty label"),
            "{message}"
        );
        assert!(message.contains("label is"), "{message}");
    }
    let message = refused(dir, "plot cmc --embeddings half.safetensors --out x.svg");
    assert!(message.contains("200 rows of the embeddings have an empty label"), "{message}");
    let message = refused(dir, "plot pr --query b.safetensors --gallery half.safetensors --out x.svg");
    assert!(message.contains("200 rows of the gallery have an empty label"), "{message}");
    // The same where labels are sets.
    half.labels.as_mut().unwrap()[1] = "heron|wading".to_owned();
    half.save(dir.join("sets.safetensors")).unwrap();
    let message = refused(dir, "evaluate --embeddings sets.safetensors");
    assert!(message.contains("200 rows of `sets.safetensors` have an empty label"), "{message}");
    let narrowed = ["evaluate", "--embeddings", "sets.safetensors", "--where", "label is not missing"];
    assert_eq!(program(dir, &narrowed).status.code(), Some(0));
    let narrowed = ["evaluate", "--embeddings", "half.safetensors", "--where", "label is not missing"];
    let out = program(dir, &narrowed);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}
