//! `gallerist convert`, and what it and its readers refuse.

use std::path::Path;
use std::process::{Command, Output};

use gallerist::retrieval::index::open_index;
use gallerist::retrieval::{Code, CompactMatrix, EmbeddingSet, Matrix};

fn gallerist(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gallerist")).args(args).output().unwrap()
}

/// What is said on stderr by a call that must fail.
fn error(args: &[&str]) -> String {
    let out = gallerist(args);
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stderr).unwrap()
}

fn written(folder: &Path, name: &str, set: &EmbeddingSet) -> String {
    let path = folder.join(name);
    set.save(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

fn set(rows: usize, cols: usize, model: &str) -> EmbeddingSet {
    let values = (0..rows * cols).map(|i| (i as f32 * 0.7).sin()).collect();
    EmbeddingSet {
        labels: Some((0..rows).map(|i| (i / 2).to_string()).collect()),
        model: Some(model.to_owned()),
        ..Matrix::new(rows, cols, values).unwrap().into()
    }
}

#[test]
fn every_precision_is_written_and_read_by_the_other_commands() {
    let folder = tempfile::tempdir().unwrap();
    let from = written(folder.path(), "x.safetensors", &set(40, 16, "a"));
    let to = folder.path().join("y.safetensors");
    let out = to.to_str().unwrap();
    for (precision, code) in [("f32", None), ("bf16", Some(Code::Bf16)), ("int8", Some(Code::Int8))] {
        let run = gallerist(&["convert", &from, "--out", out, "--precision", precision]);
        assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
        assert!(run.stdout.is_empty());
        let wanted = set(40, 16, "a");
        let embeddings = match code {
            None => wanted.embeddings.clone(),
            Some(code) => CompactMatrix::encode(&wanted.embeddings, code).unwrap().decode(),
        };
        assert_eq!(EmbeddingSet::load(&to).unwrap(), EmbeddingSet { embeddings, ..wanted });
        let evaluated = gallerist(&["evaluate", "--embeddings", out, "--json"]);
        assert_eq!(evaluated.status.code(), Some(0));
    }
}

#[test]
fn files_are_joined_unless_they_do_not_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, set: &EmbeddingSet| written(folder.path(), name, set);
    let (a, b) = (file("a.safetensors", &set(3, 4, "one")), file("b.safetensors", &set(2, 4, "two")));
    let wide = file("wide.safetensors", &set(2, 5, "one"));
    let to = folder.path().join("all.safetensors");
    let out = to.to_str().unwrap();
    let message = error(&["convert", &a, &b, "--out", out]);
    assert!(message.contains("with the network one, another with two"), "{message}");
    assert!(message.contains("--mix-models") && !to.exists(), "{message}");
    assert_eq!(gallerist(&["convert", &a, &b, "--out", out, "--mix-models"]).status.code(), Some(0));
    let all = EmbeddingSet::load(&to).unwrap();
    assert_eq!((all.embeddings.rows(), all.model), (5, None));
    assert_eq!(all.labels.unwrap(), ["0", "0", "1", "0", "0"]);
    let message = error(&["convert", &a, &wide, "--out", out]);
    assert!(message.contains("files of 4 and of 5 dimensions"), "{message}");
}

#[test]
fn no_output_replaces_an_input_or_a_file_of_another_kind() {
    let folder = tempfile::tempdir().unwrap();
    let a = written(folder.path(), "a.safetensors", &set(40, 4, "one"));
    let b = written(folder.path(), "b.safetensors", &set(2, 4, "one"));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (index, detour, page) = (path("g.index"), path("./a.safetensors"), path("found.png"));
    let before = std::fs::read(&a).unwrap();
    for line in [
        vec!["convert", &a, &b, "--out", &detour],
        vec!["index", "build", &a, "--out", &detour],
        vec!["loss", "--loss", "triplet_batch_hard", "--embeddings", &a, "--gradient", &detour],
        vec!["data", "issues", "--embeddings", &a, "--out", &page, "--table", &a],
    ] {
        let message = error(&line);
        let wanted = if line[0] == "data" { ".csv" } else { "is an input of this command" };
        assert!(message.contains(wanted), "{message}");
    }
    for line in [
        vec!["evaluate", "--embeddings", &a, "--html", &a],
        vec!["search", "--gallery", &a, "--query", &page, "--html", &page],
    ] {
        let message = error(&line);
        assert!(message.contains("its name ends neither in .html nor in .htm"), "{message}");
    }
    assert!(std::fs::read(&a).unwrap() == before);

    // Another kind of file.
    assert_eq!(gallerist(&["index", "build", &a, "--out", &index]).status.code(), Some(0));
    let renamed = path("index.safetensors");
    std::fs::rename(&index, &renamed).unwrap();
    let foreign = path("foreign.safetensors");
    std::fs::write(&foreign, [&2u64.to_le_bytes()[..], b"{}"].concat()).unwrap();
    let message = error(&["convert", &a, "--out", &foreign]);
    assert!(message.contains("exists, and is no file of embeddings"), "{message}");
    let message = error(&["convert", &a, "--out", &renamed]);
    assert!(message.contains("exists, and is an index"), "{message}");
    std::fs::write(path("labels.csv"), "a\n".repeat(40)).unwrap();
    let labels = path("labels.csv");
    let message = error(&[
        "data",
        "issues",
        "--embeddings",
        &a,
        "--labels",
        &labels,
        "--out",
        &page,
        "--table",
        &labels,
    ]);
    assert!(message.contains("is an input of this command"), "{message}");
}

#[test]
fn numbers_that_become_text_are_counted() {
    use gallerist::retrieval::columns::{Column, Columns};
    let folder = tempfile::tempdir().unwrap();
    let priced = |name: &str, paths: [&str; 2], prices: [&str; 2]| {
        let columns = Columns::new(vec![Column::infer("price", prices).unwrap()]).unwrap();
        let paths = Some(paths.map(str::to_owned).to_vec());
        written(folder.path(), name, &EmbeddingSet { columns, paths, ..set(2, 4, "one") })
    };
    let a = priced("a.safetensors", ["1", "2"], ["1.50", "2.00"]);
    let b = priced("b.safetensors", ["3", "4"], ["n/a", "3.10"]);
    let empty = priced("c.safetensors", ["5", "6"], ["", ""]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (all, index) = (path("all.safetensors"), path("g.index"));
    let said = |line: &[&str]| {
        let out = gallerist(line);
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stderr).unwrap()
    };
    let wanted =
        "the column `price` is of numbers in some files and of text in others: 2 numbers become text";
    assert!(said(&["convert", &a, &b, "--out", &all]).contains(wanted));
    assert!(said(&["index", "build", &a, &b, "--out", &index]).contains(wanted));
    assert!(!said(&["convert", &a, &empty, "--out", &all]).contains("price"));
    said(&["index", "build", &a, "--out", &index]);
    let added = said(&["index", "add", &index, &b]);
    assert!(
        added.contains("the column `price` is of kind number in the index and text in a file"),
        "{added}"
    );
    said(&["index", "build", &empty, "--out", &index]);
    assert!(!said(&["index", "add", &index, &a]).contains("price"));
}

#[test]
fn dates_that_become_text_are_counted() {
    use gallerist::retrieval::columns::{Column, Columns};
    let folder = tempfile::tempdir().unwrap();
    let added = |name: &str, paths: [&str; 2], dates: [&str; 2]| {
        let columns = Columns::new(vec![Column::infer("added", dates).unwrap()]).unwrap();
        let paths = Some(paths.map(str::to_owned).to_vec());
        written(folder.path(), name, &EmbeddingSet { columns, paths, ..set(2, 4, "one") })
    };
    let a = added("a.safetensors", ["1", "2"], ["2024-05-01", "2024-06-01"]);
    let b = added("b.safetensors", ["3", "4"], ["bald", "2024-07-01"]);
    let later = added("c.safetensors", ["5", "6"], ["", "2024-08-01"]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (all, index) = (path("all.safetensors"), path("g.index"));
    let said = |line: &[&str]| {
        let out = gallerist(line);
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stderr).unwrap()
    };
    let wanted = "the column `added` is of dates in some files and of text in others: 2 dates become text, \
                  and conditions no longer compare them by time";
    let joined = said(&["convert", &a, &b, "--out", &all]);
    assert!(joined.contains(wanted), "{joined}");
    assert!(!said(&["convert", &a, &later, "--out", &all]).contains("`added`"));
    said(&["index", "build", &a, "--out", &index]);
    assert!(!said(&["index", "add", &index, &later]).contains("`added`"));
    let wanted = "the column `added` is of kind date in the index and text in a file: dates become text, \
                  and conditions no longer compare them by time";
    let added = said(&["index", "add", &index, &b]);
    assert!(added.contains(wanted), "{added}");
}

#[test]
fn tensors_that_are_not_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.safetensors");
    let tensor = |shape: &str, from: usize| {
        format!(r#"{{"dtype":"I64","shape":{shape},"data_offsets":[{from},{}]}}"#, from + 32)
    };
    let header = format!(
        r#"{{"embeddings":{},"label":{},"Path":{},"price":{}}}"#,
        tensor("[4,2]", 0).replace("I64", "F32"),
        tensor("[4]", 32),
        tensor("[4]", 64),
        tensor("[2,2]", 96)
    );
    let values: Vec<u8> = (0..8).flat_map(|i| (i as f32 + 1.0).to_le_bytes()).collect();
    let labels: Vec<u8> = [0i64, 0, 1, 1].iter().flat_map(|label| label.to_le_bytes()).collect();
    let bytes =
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &values, &labels, &[0; 64]].concat();
    std::fs::write(&path, bytes).unwrap();
    let theirs = path.to_str().unwrap();
    let out = folder.path().join("out.safetensors");
    let index = folder.path().join("out.index");
    let figure = folder.path().join("out.svg");
    let [out, index, figure] = [&out, &index, &figure].map(|path| path.to_str().unwrap());
    let wanted = "theirs.safetensors`: 2 tensors are not read: `Path` (I64 [4]), `price` (I64 [2, 2])";
    for command in [
        &["convert", theirs, "--out", out][..],
        &["evaluate", "--embeddings", theirs, "--metrics", "recall@1"],
        &["index", "build", theirs, "--out", index],
        &["info", theirs],
        &["threshold", "--embeddings", theirs, "--far", "0.5"],
        &["plot", "pr", "--embeddings", theirs, "--out", figure],
    ] {
        let done = gallerist(command);
        let messages = String::from_utf8_lossy(&done.stderr);
        assert!(messages.contains(wanted), "{command:?}: {messages}");
        // Four rows are too few for a threshold.
        assert_eq!(done.status.success(), command[0] != "threshold", "{command:?}: {messages}");
    }
    assert!(
        !String::from_utf8_lossy(&gallerist(&["convert", out, "--out", theirs]).stderr).contains("not read")
    );
    assert_eq!(EmbeddingSet::load(out).unwrap().labels.unwrap(), ["0", "0", "1", "1"]);
}

#[cfg(feature = "arrow")]
#[test]
fn columns_of_tables_that_are_not_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../gallerist-retrieval/tests/tables/pyarrow-none.parquet");
    let out = folder.path().join("out.safetensors");
    let done = gallerist(&["convert", table.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let messages = String::from_utf8_lossy(&done.stderr);
    let wanted = "pyarrow-none.parquet`: 1 column is not read: `nested` (Struct)";
    assert!(done.status.success() && messages.contains(wanted), "{messages}");
}

#[cfg(feature = "arrow")]
#[test]
fn info_describes_tables_of_every_ending() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.parquet", "x.arrow", "x.feather", "x.ipc"] {
        let file = written(folder.path(), name, &set(3, 4, "one"));
        let run = gallerist(&["info", &file, "--json"]);
        assert_eq!(run.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&run.stderr));
        let info: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(info["kind"], "embeddings", "{name}");
    }
}

#[test]
fn files_that_are_joined_share_the_threshold_of_one_of_them_where_it_holds_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let circle = |row: usize| [(row as f32 * 2.4).cos(), (row as f32 * 2.4).sin()];
    let values = (0..400).flat_map(|row| circle(row / 2)).collect();
    let labels = Some((0..400).map(|row| (row / 2).to_string()).collect());
    let unknown = EmbeddingSet { labels, ..Matrix::new(400, 2, values).unwrap().into() };
    let known = EmbeddingSet { model: Some("sha256:12ab".into()), ..unknown.clone() };
    let out = folder.path().join("all.safetensors");
    let index = folder.path().join("all.index");
    let said = |args: &[&str]| {
        let run = gallerist(args);
        assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stderr).unwrap()
    };
    let calibrate = |file: &str, far: &str| {
        said(&["threshold", "--embeddings", file, "--far", far, "--save", file]);
    };
    let (to_file, to_index) = (out.to_str().unwrap(), index.to_str().unwrap());
    let in_file = || EmbeddingSet::load(&out).unwrap().threshold.map(|rule| rule.target);
    let in_index = || open_index(&index, false).unwrap().origin().unwrap().threshold.map(|rule| rule.target);

    // Of an unknown network: nobody knows whether the threshold is one of both.
    let a = written(folder.path(), "a.safetensors", &unknown);
    let b = written(folder.path(), "b.safetensors", &unknown);
    calibrate(&a, "0.1");
    let warned = said(&["convert", &a, &b, "--out", to_file]);
    assert!(warned.contains("no threshold of the files holds for all of them"), "{warned}");
    assert_eq!(in_file(), None);

    // Of one network, whatever their order.
    let a = written(folder.path(), "a.safetensors", &known);
    let b = written(folder.path(), "b.safetensors", &known);
    calibrate(&a, "0.1");
    for (first, second) in [(&a, &b), (&b, &a)] {
        let warned = said(&["convert", first, second, "--out", to_file]);
        assert!(!warned.contains("threshold"), "{warned}");
        assert_eq!(in_file(), Some(0.1));
        let warned = said(&["index", "build", first, second, "--ids", "rows", "--out", to_index]);
        assert!(!warned.contains("threshold"), "{warned}");
        assert_eq!(in_index(), Some(0.1));
    }

    // An index keeps its own.
    calibrate(&b, "0.2");
    let warned = said(&["index", "add", to_index, &b, "--ids", "rows"]);
    assert!(warned.contains("b.safetensors` has another threshold than the index"), "{warned}");
    assert_eq!(in_index(), Some(0.1));
    let warned = said(&["convert", &b, "--out", to_file]);
    assert!(warned.contains("had another threshold than the new one"), "{warned}");

    // Files that differ.
    let warned = said(&["convert", &a, &b, "--out", to_file]);
    assert!(warned.contains("no threshold of the files holds for all of them"), "{warned}");
    assert!(warned.contains("all.safetensors` had a threshold, and the new one has none"), "{warned}");
    assert_eq!(in_file(), None);
    let warned = said(&["index", "build", &a, &b, "--ids", "rows", "--out", to_index]);
    assert!(warned.contains("the files have different thresholds, and the index has none"), "{warned}");
    assert_eq!(in_index(), None);

    let numbers = folder.path().join("x.npy");
    let noted = said(&["convert", &a, "--out", numbers.to_str().unwrap()]);
    assert!(noted.contains("x.npy` holds numbers only: without labels, the threshold"), "{noted}");
}

#[test]
fn damaged_files_and_values_that_are_no_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = written(folder.path(), "x.safetensors", &set(3, 4, "one"));
    let out = folder.path().join("out.safetensors");
    let out = out.to_str().unwrap();
    let mut bytes = std::fs::read(&whole).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 4;
    let flipped = folder.path().join("flipped.safetensors");
    std::fs::write(&flipped, &bytes).unwrap();
    for command in [vec!["convert", "--out", out], vec!["evaluate", "--embeddings"]] {
        let message = error(&[&command[..], &[flipped.to_str().unwrap()]].concat());
        assert!(message.contains("its checksum is not the one it was written with"), "{message}");
    }
    let nan = Matrix::new(2, 2, vec![0.0, 1.0, f32::NAN, 1.0]).unwrap();
    let nan = written(folder.path(), "nan.npy", &nan.into());
    let labels = folder.path().join("labels.txt");
    std::fs::write(&labels, "a\na\n").unwrap();
    let refused = "row 1, column 0 is NaN; every value must be finite";
    assert!(error(&["convert", &nan, "--out", out]).contains(refused));
    assert!(
        error(&["evaluate", "--embeddings", &nan, "--labels", labels.to_str().unwrap()]).contains(refused)
    );
    let empty = written(folder.path(), "empty.npy", &Matrix::new(0, 2, vec![]).unwrap().into());
    std::fs::write(&labels, "").unwrap();
    let message = error(&["evaluate", "--embeddings", &empty, "--labels", labels.to_str().unwrap()]);
    assert!(message.contains("no rows"), "{message}");
    std::fs::write(&labels, "a\na\n").unwrap();
    let labels = labels.to_str().unwrap();
    for (name, rows, wanted) in [
        ("no_values.npy", Matrix::new(2, 0, vec![]).unwrap(), "dimensions must be at least 1, 0 given"),
        ("zeros.npy", Matrix::new(2, 3, vec![0.0; 6]).unwrap(), "row 0 is all zeros, as are 1 more"),
    ] {
        let file = written(folder.path(), name, &rows.into());
        let message = error(&["evaluate", "--embeddings", &file, "--labels", labels]);
        assert!(message.contains(wanted), "{message}");
    }
    let zeros = folder.path().join("zeros.npy");
    let euclidean =
        ["evaluate", "--embeddings", zeros.to_str().unwrap(), "--labels", labels, "--metric", "euclidean"];
    assert_eq!(gallerist(&euclidean).status.code(), Some(0));
    let huge = folder.path().join("huge.npy");
    gallerist::retrieval::file::npy::write_f64(&huge, &[2, 2], &[1.0, 2.0, 3.0, 1e300]).unwrap();
    for command in [vec!["convert", "--out", out], vec!["evaluate", "--labels", labels, "--embeddings"]] {
        let message = error(&[&command[..], &[huge.to_str().unwrap()]].concat());
        assert!(message.contains("row 1, column 1 is 1e300; f32 holds values up to 3.4e38"), "{message}");
        assert!(!message.contains("network"), "{message}");
    }
    let message = error(&["convert", &whole, "--out", "x.npy", "--precision", "bf16"]);
    assert!(message.contains("a .npy file holds f32 only"), "{message}");
}
