//! Embeddings, indices, arrays, labels and conditions.

use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::eval::{FalseRate, MatchRule};
use gallerist_retrieval::file::{Source, npy, write_threshold};
use gallerist_retrieval::index::{IndexSettings, Items, create_index, index_kinds};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Code, EmbeddingSet, Matrix};

use crate::Seeds;

fn matrix(rows: usize, cols: usize) -> Matrix {
    let values = (0..rows * cols).map(|i| ((i * 37 % 19) as f32 - 9.0) / 7.0).collect();
    Matrix::new(rows, cols, values).expect("a matrix")
}

/// A set with everything that a file can hold.
fn full(rows: usize) -> EmbeddingSet {
    let texts = |prefix: &str| Some((0..rows).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>());
    let column = |name: &str, values: [&str; 3]| {
        let values: Vec<&str> = (0..rows).map(|i| values[i % 3]).collect();
        Column::infer(name, values).expect("a column")
    };
    let columns = vec![
        column("price", ["1.5", "", "-3"]),
        column("day", ["2024-05-01", "1999-12-31", ""]),
        column("tags", ["a|b", "", "c"]),
        column("shop", ["x", "y", "x"]),
    ];
    let mut set = EmbeddingSet {
        labels: texts("l"),
        paths: texts("p/"),
        cameras: texts("c"),
        columns: Columns::new(columns).expect("columns"),
        model: Some("ab".repeat(32)),
        source: Some("photos".to_owned()),
        run: Some("run".to_owned()),
        metric: Some(Metric::Cosine),
        protocol: Some("cub200".to_owned()),
        ..matrix(rows, 4).into()
    };
    set.sources = Some(gallerist_retrieval::file::Sources::one(
        Source { name: "photos".to_owned(), images: Some("images".into()) },
        rows,
    ));
    set
}

pub(crate) fn write(seeds: &Seeds) {
    let path = |target: &str, name: &str| {
        seeds.add(target, name, &[]);
        seeds.0.join(target).join(name)
    };
    // NumPy.
    npy::write_f32(path("npy", "f4.npy"), &matrix(3, 4)).expect("written");
    npy::write_f32(path("npy", "empty.npy"), &matrix(0, 4)).expect("written");
    npy::write_f64(path("npy", "f8.npy"), &[2, 3, 2], &[0.5; 12]).expect("written");
    npy::write_i64(path("npy", "i8.npy"), &[5], &[1, -2, 3, 4, 5]).expect("written");
    let kinds = ["<f2", ">f4", ">f8", "|u1", "|i1", "<i2", ">i4", "<u4", "<u8", "|b1", "<U3", "|S4", "|O"];
    for (version, kind) in (0..).zip(kinds) {
        let order = if version % 2 == 0 { "True" } else { "False" };
        let header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': (2, 2), }}\n");
        let mut bytes = b"\x93NUMPY".to_vec();
        match version % 3 {
            0 => bytes.extend([&[1, 0][..], &(header.len() as u16).to_le_bytes()].concat()),
            major => bytes.extend([&[major + 1, 0][..], &(header.len() as u32).to_le_bytes()].concat()),
        }
        bytes.extend(header.as_bytes());
        let size = kind[2..].parse::<usize>().unwrap_or(8);
        bytes.extend(vec![0x3C; 4 * size]);
        seeds.add("npy", &kind.replace(['<', '>', '|'], "x"), &bytes);
    }
    seeds.add("labels", "labels", "heron\n wren \r\ngrey ü\n7".as_bytes());
    // Embeddings.
    full(5).save(path("embeddings", "full.safetensors")).expect("written");
    let with_threshold = path("embeddings", "threshold.safetensors");
    full(3).save(&with_threshold).expect("written");
    let rule = MatchRule {
        metric: Metric::Cosine,
        threshold: 0.75,
        near: 0.5,
        rate: FalseRate::Comparison,
        target: 0.001,
        measured: 0.0005,
        bound: 0.002,
        confidence: 0.95,
        miss_rate: Some(0.1),
        gallery: None,
        model: Some("ab".repeat(32)),
    };
    assert!(write_threshold(&with_threshold, &rule).expect("written"));
    EmbeddingSet::from(matrix(2, 3)).save(path("embeddings", "bare.safetensors")).expect("written");
    full(3).save_compact(path("embeddings", "bf16.safetensors"), Code::Bf16).expect("written");
    full(3).save_compact(path("embeddings", "int8.safetensors"), Code::Int8).expect("written");
    for name in ["f32", "bf16", "int8"] {
        seeds.fixture("embeddings", &format!("crates/gallerist-retrieval/tests/v1/{name}.safetensors"));
    }
    let header = br#"{"embeddings":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]},"labels":{"dtype":"I16","shape":[2],"data_offsets":[16,20]}}"#;
    let foreign = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 20]].concat();
    seeds.add("embeddings", "foreign.safetensors", &foreign);
    // A regression: rows without values, of which a file may have any number.
    let header = br#"{"__metadata__":{"format":"gallerist-embeddings","format_version":"2","sources":"[{\"name\":\"a\"}]","sha256":"0000000000000000000000000000000000000000000000000000000000000000"},"embeddings":{"dtype":"F32","shape":[268435456,0],"data_offsets":[0,0]}}"#;
    let countless = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    seeds.add("embeddings", "bomb-rows", &countless);
    // Indices.
    for kind in index_kinds() {
        for (name, set) in [("full", full(12)), ("bare", matrix(3, 2).into())] {
            let dimensions = set.embeddings.cols();
            let mut index =
                create_index(kind, dimensions, Metric::Cosine, &IndexSettings::default()).expect("an index");
            index.upsert(&Items::from_set(set).expect("items")).expect("added");
            let ids = index.ids(&Default::default()).expect("a local index");
            index.remove(&ids[1..2]).expect("removed");
            index.save(&path("index", &format!("{}-{name}.index", kind.name))).expect("written");
        }
        seeds.fixture("index", &format!("crates/gallerist-retrieval/tests/v1/{}.index", kind.name));
    }
    // Conditions.
    for (i, text) in [
        "price < 20 and shop = \"x\"",
        "not (price >= -1.5e3) or `tags` has \"b\"",
        "day in (2024-05-01, 1999-12-31)",
        "label under 'animals' and camera != \"1\"",
        "path is not missing and shop not in (\"x\", 'y\\'z')",
        "shop is missing or tags not has 'a' or label not under \"a\"",
    ]
    .iter()
    .enumerate()
    {
        seeds.add("condition", &i.to_string(), text.as_bytes());
    }
}
