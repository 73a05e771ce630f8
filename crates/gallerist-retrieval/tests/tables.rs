//! Parquet and Arrow files: those of pyarrow, pandas and polars are read (`tables/make.py` made them), and theirs read ours.
#![cfg(feature = "arrow")]

use std::path::{Path, PathBuf};
use std::process::Command;

use gallerist_retrieval::columns::{Column, ColumnKind, Columns};
use gallerist_retrieval::eval::{FalseRate, MatchRule};
use gallerist_retrieval::file::{Source, Sources, TableColumns};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Error, GalleryFile, Matrix};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables").join(name)
}

fn rows() -> Matrix {
    Matrix::new(3, 4, (0..12).map(|i| 0.5 * i as f32 - 3.0).collect()).unwrap()
}

fn texts(list: [&str; 3]) -> Option<Vec<String>> {
    Some(list.map(String::from).to_vec())
}

fn column(name: &str, kind: ColumnKind, values: [&str; 3]) -> Column {
    Column::parse(name, kind, values.map(Some)).unwrap()
}

#[test]
fn files_of_pyarrow_are_read_in_every_compression() {
    use ColumnKind::{Date, Number, Tags, Text};
    let columns = vec![
        // 2^60 is no number: the column is text.
        column("id", Text, ["1", "2", "1152921504606846976"]),
        column("price", Number, ["12.5", "", "-3"]),
        column("count", Number, ["3", "", "5"]),
        column("zip", Text, ["00123", "4", ""]),
        column("day", Date, ["2024-02-29", "", "1969-12-31"]),
        column("at", Date, ["2024-05-01T10:30:15.25Z", "", "2024-05-01"]),
        column("tags", Tags, ["blue|red", "", ""]),
        column("sold", Text, ["true", "false", ""]),
    ];
    let wanted = EmbeddingSet {
        labels: texts(["heron", "grey|wren", "ü"]),
        paths: texts(["a/1.jpg", "a/2.jpg", "b/1.jpg"]),
        columns: Columns::new(columns).unwrap(),
        ..rows().into()
    };
    for name in [
        "pyarrow-snappy.parquet",
        "pyarrow-zstd.parquet",
        "pyarrow-none.parquet",
        "pyarrow-lz4.feather",
        "pyarrow-zstd.feather",
        "pyarrow-none.feather",
    ] {
        assert_eq!(EmbeddingSet::load(fixture(name)).unwrap(), wanted, "{name}");
        let GalleryFile::Embeddings(set) = GalleryFile::open(&fixture(name), false).unwrap() else {
            panic!("{name} is no gallery in f32");
        };
        assert_eq!(*set, wanted);
    }
    let named = TableColumns {
        embedding: Some("vec16".into()),
        label: Some("zip".into()),
        camera: Some("count".into()),
        ..TableColumns::default()
    };
    let set = EmbeddingSet::load_table(fixture("pyarrow-zstd.parquet"), &named).unwrap();
    assert_eq!((set.labels, set.cameras), (texts(["00123", "4", ""]), texts(["3", "", "5"])));
    assert_eq!(set.columns.names().next(), Some("id"));
    assert!(set.columns.get("label").is_none() && set.paths == wanted.paths);
}

#[test]
fn files_of_pandas_and_polars_are_read() {
    let pandas = EmbeddingSet::load(fixture("pandas.parquet")).unwrap();
    let columns = vec![
        column("shop", ColumnKind::Text, ["x", "", "y"]),
        column("price", ColumnKind::Number, ["1", "", "3"]),
        column("when", ColumnKind::Date, ["2024-05-01", "", "2024-05-02T10:30:00"]),
    ];
    let columns = Columns::new(columns).unwrap();
    assert_eq!(pandas, EmbeddingSet { labels: texts(["7", "7", "9"]), columns, ..rows().into() });
    for name in ["polars.parquet", "polars.arrow"] {
        let columns = Columns::new(vec![column("shop", ColumnKind::Tags, ["x", "", "y|z"])]).unwrap();
        let wanted = EmbeddingSet { cameras: texts(["1", "2", "1"]), columns, ..rows().into() };
        assert_eq!(EmbeddingSet::load(fixture(name)).unwrap(), wanted, "{name}");
    }
}

/// A set with everything that a file may have, and more rows than a batch.
fn whole() -> EmbeddingSet {
    const ROWS: usize = 5000;
    let list = |of: &dyn Fn(usize) -> String| (0..ROWS).map(of).collect::<Vec<_>>();
    let sources =
        ["train", "test"].map(|name| Source { name: name.into(), images: Some(format!("/{name}")) });
    let columns = vec![
        Column::infer("price", list(&|i| if i % 7 == 0 { String::new() } else { format!("{}.25", i) }))
            .unwrap(),
        Column::infer(
            "day",
            list(&|i| if i % 5 == 0 { String::new() } else { format!("2024-05-{:02}", 1 + i % 28) }),
        )
        .unwrap(),
        Column::infer("shop \"x\"", list(&|i| ["", "ü", "0012"][i % 3].to_owned())).unwrap(),
        Column::infer("colour", list(&|i| ["red|blue", "", "red"][i % 3].to_owned())).unwrap(),
        Column::infer("none", list(&|_| String::new())).unwrap(),
    ];
    EmbeddingSet {
        embeddings: Matrix::new(ROWS, 3, (0..3 * ROWS).map(|i| (i as f32).sin()).collect()).unwrap(),
        labels: Some(list(&|i| (i % 10).to_string())),
        paths: Some(list(&|i| format!("{i}.jpg"))),
        cameras: Some(list(&|i| format!("c{}", i % 2))),
        columns: Columns::new(columns).unwrap(),
        model: Some("12ab".repeat(16)),
        source: Some("/photos".into()),
        sources: Some(
            Sources::new(sources.to_vec(), (0..ROWS).map(|i| [Some(0), Some(1), None][i % 3])).unwrap(),
        ),
        run: Some("runs/one".into()),
        metric: Some(Metric::Euclidean),
        protocol: Some("market1501".into()),
        threshold: Some(MatchRule {
            metric: Metric::Euclidean,
            threshold: 0.3,
            near: 0.5,
            rate: FalseRate::Search,
            target: 0.01,
            measured: 0.1 / 12.0,
            bound: 0.0375,
            confidence: 0.95,
            miss_rate: None,
            gallery: Some(750),
            model: None,
        }),
    }
}

#[test]
fn a_set_comes_back_with_all_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let set = whole();
    let one = EmbeddingSet {
        sources: Some(Sources::one(Source { name: "train".into(), images: None }, 5000)),
        columns: Columns::default(),
        cameras: None,
        ..set.clone()
    };
    let bare = EmbeddingSet::from(rows());
    let none = set.select(&[]);
    for name in ["set.parquet", "set.arrow", "set.feather", "set.ipc"] {
        let path = folder.path().join(name);
        for wanted in [&set, &one, &bare] {
            wanted.save(&path).unwrap();
            assert_eq!(&EmbeddingSet::load(&path).unwrap(), wanted, "{name}");
        }
        none.save(&path).unwrap();
        let read = EmbeddingSet::load(&path).unwrap();
        assert_eq!((read.embeddings.rows(), read.embeddings.cols(), read.labels), (0, 3, Some(vec![])));
        assert!(set.save_compact(&path, gallerist_retrieval::Code::Int8).is_err());
    }
    let price = Column::infer("embedding", ["1", "2", "3"]).unwrap();
    let taken = EmbeddingSet { columns: Columns::new(vec![price]).unwrap(), ..bare };
    assert!(matches!(taken.save(folder.path().join("x.parquet")), Err(Error::Format { .. })));
}

#[test]
fn tables_without_usable_embeddings_are_refused_with_their_columns() {
    let error =
        |columns: &TableColumns| EmbeddingSet::load_table(fixture("pandas.parquet"), columns).unwrap_err();
    let named = |name: &str| TableColumns { embedding: Some(name.into()), ..TableColumns::default() };
    let missing = error(&named("vectors"));
    assert!(missing.to_string().contains("there is no column `vectors`"), "{missing}");
    assert!(missing.hint().unwrap().contains("`embedding`, `labels`, `shop`"));
    assert!(error(&named("price")).to_string().contains("wanted lists of floats"));
    let label = TableColumns { label: Some("embedding".into()), ..TableColumns::default() };
    assert!(error(&label).to_string().contains("wanted text or integers"));
    let text = EmbeddingSet::load_table("x.npy", &TableColumns::default()).unwrap_err();
    assert!(matches!(text, Error::Io { .. } | Error::Extension { .. }));
}

#[test]
fn damaged_tables_give_errors() {
    let folder = tempfile::tempdir().unwrap();
    let small = whole().select(&(0..40).collect::<Vec<_>>());
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for name in ["x.parquet", "x.arrow", "lz4.feather", "zstd.feather"] {
        let path = folder.path().join(name);
        let fixture = fixture(&format!("pyarrow-{name}"));
        let whole = match fixture.exists() {
            true => std::fs::read(fixture).unwrap(),
            false => {
                small.save(&path).unwrap();
                std::fs::read(&path).unwrap()
            }
        };
        for length in (0..whole.len()).step_by(97).chain(whole.len() - 12..whole.len()) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = EmbeddingSet::load(&path).unwrap_err();
            assert!(matches!(error, Error::Format { .. } | Error::Io { .. }), "{name} of {length}: {error}");
        }
        for _ in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random(3) {
                let at = random(bytes.len());
                bytes[at] = match random(3) {
                    0 => 0xff,
                    1 => bytes[at] ^ (1 << random(8)),
                    _ => random(256) as u8,
                };
            }
            std::fs::write(&path, &bytes).unwrap();
            // Values may differ: tables have no checksum. What matters is that the process goes on.
            drop(EmbeddingSet::load(&path));
        }
    }
}

#[test]
fn a_batch_that_claims_to_be_huge_is_refused_before_memory_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.feather");
    let mut bytes = std::fs::read(fixture("pyarrow-lz4.feather")).unwrap();
    // The magic number of an LZ4 frame comes after the claimed size.
    let frame = bytes.windows(4).position(|bytes| bytes == [0x04, 0x22, 0x4d, 0x18]).unwrap();
    bytes[frame - 8..frame].copy_from_slice(&(1i64 << 46).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let error = EmbeddingSet::load(&path).unwrap_err().to_string();
    assert!(error.contains("its rows claim more than 1024 MiB"), "{error}");
}

/// Python with pyarrow, pandas and polars, where there is one.
fn python() -> Option<String> {
    let python = std::env::var("GALLERIST_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import pyarrow, pandas, polars"]).output();
    if found.is_ok_and(|found| found.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: no Python with pyarrow, pandas and polars (GALLERIST_PYTHON)");
    None
}

#[test]
fn pyarrow_pandas_and_polars_read_what_is_written() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let set = whole();
    for name in ["x.parquet", "x.feather"] {
        set.save(folder.path().join(name)).unwrap();
    }
    let program = r#"
import math, sys
import pandas, polars, pyarrow as pa, pyarrow.feather, pyarrow.parquet
def check(rows):
    assert len(rows) == 5000
    for i in (0, 1, 2, 3, 4095, 4096, 4999):
        row = rows[i]
        assert all(abs(value - math.sin(3 * i + j)) < 1e-4 for j, value in enumerate(row["embedding"]))
        assert row["label"] == str(i % 10) and row["path"] == f"{i}.jpg" and row["camera"] == f"c{i % 2}"
        assert row["price"] == (None if i % 7 == 0 else i + 0.25), row
        assert row["day"] == (None if i % 5 == 0 else f"2024-05-{1 + i % 28:02}")
        assert row['shop "x"'] == [None, "ü", "0012"][i % 3]
        tags = row["colour"]
        assert (tags and list(tags)) == [["blue", "red"], None, ["red"]][i % 3], tags
check(pa.parquet.read_table("x.parquet").to_pylist())
check(pa.feather.read_table("x.feather").to_pylist())
check(polars.read_parquet("x.parquet").to_dicts())
check(polars.read_ipc("x.feather").to_dicts())
frame = pandas.read_parquet("x.parquet")
assert frame.shape == (5000, 10) and frame["price"].isna().sum() == 715, (frame.shape, frame["price"].isna().sum())
"#;
    let out = Command::new(python).args(["-c", program]).current_dir(folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
