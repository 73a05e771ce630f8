//! Parquet and Arrow files: those of pyarrow, pandas and polars are read (`tables/make.py` made them), and theirs read ours.
#![cfg(feature = "arrow")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder, StringBuilder};
use arrow_array::types::{Float16Type, Int8Type};
use arrow_array::{
    ArrayRef, BinaryArray, Decimal128Array, Decimal256Array, DictionaryArray, Float32Array, Float64Array,
    Int8Array, ListArray, NullArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
    Time32SecondArray, TimestampSecondArray,
};
use gallerist_retrieval::columns::{Column, ColumnKind, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::eval::{FalseRate, MatchRule};
use gallerist_retrieval::file::{JoinedTable, Source, Sources, TableColumns, joined_table, unread_of};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Error, GalleryFile, Matrix};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArrayType, FloatType};
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

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
        "pyarrow-gzip.parquet",
        "pyarrow-zstd.parquet",
        "pyarrow-none.parquet",
        "pyarrow-lz4.feather",
        "pyarrow-zstd.feather",
        "pyarrow-none.feather",
        "pyarrow-stream.arrow",
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
    for name in ["x.parquet", "x.arrow", "lz4.feather", "zstd.feather", "stream.arrow"] {
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
            drop(unread_of(&path, &TableColumns::default()));
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
    assert!(error.contains("its rows claim more than 256 MiB"), "{error}");
}

/// A Parquet file with the encodings and the compression of `properties`: the texts in a column of labels and as tags.
fn parquet_of_texts(path: &Path, texts: &[Option<&str>], properties: WriterProperties) {
    let mut embeddings = FixedSizeListBuilder::new(Float32Builder::new(), 1);
    let mut tags = ListBuilder::new(StringBuilder::new());
    for text in texts {
        embeddings.values().append_value(1.0);
        embeddings.append(true);
        text.iter().for_each(|text| tags.values().append_value(text));
        tags.append(true);
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("embedding", Arc::new(embeddings.finish())),
        ("label", Arc::new(StringArray::from(texts.to_vec()))),
        ("tags", Arc::new(tags.finish())),
    ];
    write_parquet(path, &[RecordBatch::try_from_iter(columns).unwrap()], Some(properties));
}

fn write_parquet(path: &Path, batches: &[RecordBatch], properties: Option<WriterProperties>) {
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), properties).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

/// With this encoding of the texts of [`parquet_of_texts`].
fn with_encoding(properties: WriterPropertiesBuilder, encoding: Encoding) -> WriterPropertiesBuilder {
    let tags = ColumnPath::new(["tags", "list", "item"].map(String::from).to_vec());
    properties.set_column_encoding("label".into(), encoding).set_column_encoding(tags, encoding)
}

#[test]
fn texts_are_read_in_every_encoding_and_version_of_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let list: Vec<String> = (0..3000).map(|i| format!("{}{}", "ü/".repeat(i % 7), i / 4)).collect();
    let texts: Vec<Option<&str>> =
        list.iter().enumerate().map(|(i, text)| (i % 5 != 0).then_some(text.as_str())).collect();
    let wanted: Vec<&str> = texts.iter().map(|text| text.unwrap_or_default()).collect();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    let encodings = [
        None,
        Some(Encoding::PLAIN),
        Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
        Some(Encoding::DELTA_BYTE_ARRAY),
    ];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for (i, encoding) in encodings.into_iter().enumerate() {
            for codec in codecs {
                let mut properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(codec)
                    .set_write_batch_size(100)
                    .set_data_page_row_count_limit(700)
                    .set_max_row_group_row_count(Some(2000))
                    .set_dictionary_enabled(i == 0);
                if let Some(encoding) = encoding {
                    properties = with_encoding(properties, encoding);
                }
                parquet_of_texts(&path, &texts, properties.build());
                let set = EmbeddingSet::load(&path).unwrap();
                let named = format!("{version:?} {encoding:?} {codec}");
                assert_eq!(set.labels.unwrap(), wanted, "{named}");
                let tags = set.columns.get("tags").unwrap();
                let tags: Vec<String> = (0..texts.len())
                    .map(|row| tags.value(row).map_or(String::new(), |tag| tag.to_string()))
                    .collect();
                assert_eq!(tags, wanted, "{named}");
            }
        }
    }
}

#[test]
fn one_long_text_in_a_thousand_rows_is_refused_before_it_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let text = "x".repeat(1 << 19);
    let texts = vec![Some(text.as_str()); 1000];
    let zstd = || {
        let zstd = Compression::ZSTD(ZstdLevel::default());
        WriterProperties::builder().set_compression(zstd).set_statistics_enabled(EnabledStatistics::None)
    };
    let beginnings = with_encoding(zstd().set_dictionary_enabled(false), Encoding::DELTA_BYTE_ARRAY);
    for properties in [zstd(), beginnings] {
        parquet_of_texts(&path, &texts, properties.build());
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(size < 100_000, "{size}");
        let error = EmbeddingSet::load(&path).unwrap_err().to_string();
        assert!(error.contains("its rows claim more than 256 MiB"), "{error}");
        let error = unread_of(&path, &TableColumns::default()).unwrap_err().to_string();
        assert!(error.contains("its rows claim more than 256 MiB"), "{error}");
    }
}

#[test]
fn a_page_of_gzip_that_is_longer_than_its_header_says_is_refused_before_it_is_decompressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_dictionary_enabled(false)
        .build();
    parquet_of_texts(&path, &[Some("heron"); 1000], properties);
    let mut bytes = std::fs::read(&path).unwrap();
    // The first page: its type, then its size of 4,000 and some bytes as a number of two bytes.
    let [0x15, 0x00, 0x15, low, high] = bytes[4..9] else { panic!("another header: {:x?}", &bytes[4..20]) };
    assert!(low >= 0x80 && high < 0x80);
    bytes[7] = 0x80;
    std::fs::write(&path, bytes).unwrap();
    let error = EmbeddingSet::load(&path).unwrap_err().to_string();
    assert!(error.contains("a page of another length than its header says"), "{error}");
}

#[test]
fn a_text_that_is_not_utf_8_is_refused_as_a_label_and_leaves_out_another_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    // The library checks only texts with the annotation STRING.
    let message = "
        message schema {
            required group embedding (LIST) { repeated group list { required float item; } }
            required binary label (JSON);
            required binary shop (JSON);
        }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(message).unwrap());
    let write = |label: &[u8], shop: &[u8]| {
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::clone(&schema), Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&[1.0, 2.0], Some(&[1, 1]), Some(&[0, 1])).unwrap();
        column.close().unwrap();
        for text in [label, shop] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&[text.to_vec().into()], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    };
    write(b"heron", b"x");
    assert_eq!(EmbeddingSet::load(&path).unwrap().labels.unwrap(), ["heron"]);
    write(b"heron", b"\xFF\xFE");
    let unread = unread_of(&path, &TableColumns::default()).unwrap();
    assert_eq!(unread[0].problem.as_deref(), Some("row 0 has a text that is not UTF-8"));
    assert!(EmbeddingSet::load(&path).unwrap().columns.is_empty());
    write(b"\xFF\xFE", b"x");
    let error = EmbeddingSet::load(&path).unwrap_err().to_string();
    assert!(error.contains("row 0 of the column `label` has a text that is not UTF-8"), "{error}");
}

/// The table of two rows with these columns and embeddings, in both formats.
fn tables(folder: &Path, columns: Vec<(&str, ArrayRef)>) -> [PathBuf; 2] {
    let mut embeddings = ListBuilder::new(Float32Builder::new());
    embeddings.append_value([Some(1.0), Some(0.0)]);
    embeddings.append_value([Some(0.0), Some(1.0)]);
    let columns = [("embedding", Arc::new(embeddings.finish()) as ArrayRef)].into_iter().chain(columns);
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
    let paths = ["x.parquet", "x.arrow"].map(|name| folder.join(name));
    write_parquet(&paths[0], std::slice::from_ref(&batch), None);
    let file = std::fs::File::create(&paths[1]).unwrap();
    let mut arrow = arrow_ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    arrow.finish().unwrap();
    paths
}

/// A column of two lists of texts.
fn lists(rows: [&[&str]; 2]) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    rows.iter().for_each(|row| lists.append_value(row.iter().map(Some)));
    Arc::new(lists.finish())
}

#[test]
fn decimals_are_numbers_and_those_that_f64_does_not_hold_are_codes() {
    let folder = tempfile::tempdir().unwrap();
    let decimal = |values: [Option<i128>; 2], precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap())
    };
    let wide = Decimal256Array::from(vec![Some(5.into()), Some((-1250).into())]);
    let table = vec![
        ("label", decimal([Some(7), Some(9)], 5, 0)),
        ("price", decimal([Some(1250), None], 10, 2)),
        ("code", decimal([Some(1), Some(12_345_678_901_234_567_890)], 38, 0)),
        ("wide", Arc::new(wide.with_precision_and_scale(76, 3).unwrap()) as ArrayRef),
    ];
    for path in tables(folder.path(), table) {
        let set = EmbeddingSet::load(&path).unwrap();
        assert_eq!(set.labels.unwrap(), ["7", "9"]);
        let columns = vec![
            Column::numbers("price", [Some(12.5), None]).unwrap(),
            Column::parse("code", ColumnKind::Text, ["1", "12345678901234567890"].map(Some)).unwrap(),
            Column::numbers("wide", [Some(0.005), Some(-1.25)]).unwrap(),
        ];
        assert_eq!(set.columns, Columns::new(columns).unwrap(), "{}", path.display());
        assert!(unread_of(&path, &TableColumns::default()).unwrap().is_empty());
    }
}

#[test]
fn dictionaries_of_numbers_and_lists_of_one_size_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Int8Array::from(vec![Some(1), None]);
    let prices = DictionaryArray::<Int8Type>::new(keys, Arc::new(Float64Array::from(vec![1.5, 2.5])));
    let mut tags = FixedSizeListBuilder::new(StringBuilder::new(), 2);
    ["red", "blue"].iter().for_each(|tag| tags.values().append_value(tag));
    tags.append(true);
    (0..2).for_each(|_| tags.values().append_null());
    tags.append(false);
    let table = vec![("price", Arc::new(prices) as ArrayRef), ("tags", Arc::new(tags.finish()))];
    for path in tables(folder.path(), table) {
        let columns = vec![
            Column::numbers("price", [Some(2.5), None]).unwrap(),
            Column::parse("tags", ColumnKind::Tags, [Some("blue|red"), None]).unwrap(),
        ];
        assert_eq!(EmbeddingSet::load(&path).unwrap().columns, Columns::new(columns).unwrap());
    }
}

#[test]
fn floats_of_less_precision_are_the_numbers_that_their_text_names() {
    let folder = tempfile::tempdir().unwrap();
    type Half = <Float16Type as arrow_array::ArrowPrimitiveType>::Native;
    let half = [12.1, 1.0 / 3.0].map(Half::from_f64).to_vec();
    let table = vec![
        ("single", Arc::new(Float32Array::from(vec![12.1, 1e-40])) as ArrayRef),
        ("half", Arc::new(PrimitiveArray::<Float16Type>::from_iter_values(half))),
        ("label", Arc::new(Float32Array::from(vec![0.1, 7.0]))),
    ];
    for path in tables(folder.path(), table) {
        let set = EmbeddingSet::load(&path).unwrap();
        let columns = vec![
            Column::numbers("single", [Some(12.1), Some(1e-40)]).unwrap(),
            Column::numbers("half", [Some(12.1), Some(0.3333)]).unwrap(),
        ];
        assert_eq!(set.columns, Columns::new(columns).unwrap());
        assert_eq!(Condition::parse("single = 12.1").unwrap().rows(&set).unwrap(), [0]);
        assert_eq!(set.labels.unwrap(), ["0.1", "7"]);
    }
}

#[test]
fn columns_that_are_not_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let field = Arc::new(arrow_schema::Field::new("a", arrow_schema::DataType::Utf8, true));
    let numbers = [Some(vec![Some(1), Some(2)]), None];
    let table = vec![
        ("nested", Arc::new(StructArray::from(vec![(field, Arc::clone(&text))])) as ArrayRef),
        ("bytes", Arc::new(BinaryArray::from(vec![&b"a"[..], b"b"]))),
        ("label", Arc::clone(&text)),
        ("time", Arc::new(Time32SecondArray::from(vec![1, 2]))),
        ("sizes", Arc::new(ListArray::from_iter_primitive::<Int8Type, _, _>(numbers))),
        ("vec", Arc::new(ListArray::from_iter_primitive::<Float16Type, _, _>([Some(vec![]), None]))),
        ("none", Arc::new(NullArray::new(2))),
        ("camera", Arc::new(NullArray::new(2))),
        ("__index_level_0__", Arc::clone(&text)),
        ("shop", text),
    ];
    for path in tables(folder.path(), table) {
        let unread = |columns: &TableColumns| {
            unread_of(&path, columns).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let usual = unread(&TableColumns::default());
        assert_eq!(
            usual,
            [
                "`nested` (Struct)",
                "`bytes` (Binary)",
                "`time` (Time32(s))",
                "`sizes` (List of Int8)",
                "`vec` (List of Float16)"
            ]
        );
        // Other embeddings and labels than those that were asked for.
        let (embedding, label) = (Some("embedding".to_owned()), Some("shop".to_owned()));
        let named = unread(&TableColumns { embedding, label, ..TableColumns::default() });
        assert_eq!(named[2..], ["`label` (Utf8)", "`time` (Time32(s))", "`sizes` (List of Int8)"]);
        let set = EmbeddingSet::load(&path).unwrap();
        assert_eq!((set.cameras, set.columns.names().collect::<Vec<_>>()), (None, vec!["shop"]));
    }
}

#[test]
fn labels_paths_and_cameras_of_a_type_that_is_not_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"a"[..], b"b"]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    for name in ["label", "labels", "path", "paths", "camera", "cameras"] {
        for path in tables(folder.path(), vec![(name, Arc::clone(&bytes)), ("other", Arc::clone(&text))]) {
            for error in [
                EmbeddingSet::load(&path).unwrap_err(),
                unread_of(&path, &TableColumns::default()).unwrap_err(),
            ] {
                let wanted = format!("wanted text or integers, the column `{name}` is of type Binary");
                assert!(error.to_string().ends_with(&wanted), "{error}");
                let option = format!("--{}-column NAME", name.trim_end_matches('s'));
                assert!(error.hint().unwrap().contains(&option), "{:?}", error.hint());
            }
            let other = Some("other".to_owned());
            let columns =
                TableColumns { label: other.clone(), path: other.clone(), camera: other, embedding: None };
            assert!(EmbeddingSet::load_table(&path, &columns).is_ok());
        }
    }
    for path in tables(folder.path(), vec![("label", Arc::clone(&bytes)), ("labels", Arc::clone(&text))]) {
        assert_eq!(EmbeddingSet::load(&path).unwrap().labels.unwrap(), ["a", "b"]);
        assert_eq!(unread_of(&path, &TableColumns::default()).unwrap().len(), 1);
    }
}

#[test]
fn further_columns_that_are_called_as_lists_come_back_as_columns() {
    let folder = tempfile::tempdir().unwrap();
    let columns = ["labels", "paths", "cameras"].map(|name| Column::infer(name, ["a", "1", ""]).unwrap());
    let columns = Columns::new(columns.to_vec()).unwrap();
    for paths in [None, texts(["1.jpg", "2.jpg", "3.jpg"])] {
        let set = EmbeddingSet { columns: columns.clone(), paths, ..rows().into() };
        for name in ["x.parquet", "x.arrow"] {
            let path = folder.path().join(name);
            set.save(&path).unwrap();
            assert_eq!(EmbeddingSet::load(&path).unwrap(), set, "{name}");
            let columns = TableColumns { label: Some("labels".into()), ..TableColumns::default() };
            let read = EmbeddingSet::load_table(&path, &columns).unwrap();
            assert_eq!((read.labels, read.columns.len()), (texts(["a", "1", ""]), 2));
        }
    }
}

#[test]
fn a_label_with_a_bar_in_its_list_is_refused_with_its_row() {
    let folder = tempfile::tempdir().unwrap();
    for path in tables(folder.path(), vec![("label", lists([&["a|b"], &["b"]]))]) {
        let error = EmbeddingSet::load(&path).unwrap_err();
        let wanted = "row 0 of the column `label` has a text with `|` in its list, which would be two tags";
        assert!(error.to_string().ends_with(wanted), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn further_columns_with_unfit_values_are_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let days = arrow_array::Date32Array::from(vec![Some(i32::MIN), None]);
    let text = |values: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let table = vec![
        ("tags", lists([&["a"], &["b", "a|b"]])),
        ("at", Arc::new(TimestampSecondArray::from(vec![Some(0), Some(253_402_300_800)]))),
        ("price", Arc::new(Float64Array::from(vec![f64::INFINITY, 1.0]))),
        ("shop", text(["x", "y"])),
        ("day", Arc::new(days)),
        ("page", text(["x", &"y".repeat(70_000)])),
        ("label", text(["a", "b"])),
    ];
    for path in tables(folder.path(), table) {
        let set = EmbeddingSet::load(&path).unwrap();
        assert_eq!(set.columns.names().collect::<Vec<_>>(), ["shop"]);
        assert_eq!(set.labels.unwrap(), ["a", "b"]);
        let unread = unread_of(&path, &TableColumns::default()).unwrap();
        let unread: Vec<_> = unread.iter().map(ToString::to_string).collect();
        assert_eq!(
            unread,
            [
                "`tags` (List of Utf8: row 1 has a text with `|` in its list, which would be two tags)",
                "`at` (Timestamp(s): row 1 has a time outside of the years 0 to 9999)",
                "`price` (Float64: a value is inf; numbers must be finite)",
                "`day` (Date32: row 0 has a time outside of the years 0 to 9999)",
                "`page` (Utf8: a value has 70000 bytes; at most 65536 are permitted)",
            ]
        );
    }
}

/// The bytes of a stream of these batches.
fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

#[test]
fn streams_are_read_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data-00000-of-00001.arrow");
    let embeddings = ListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>([
        Some([Some(1.0), Some(0.0)]),
        Some([Some(0.0), Some(1.0)]),
    ]);
    let shops = DictionaryArray::<Int8Type>::new(
        Int8Array::from(vec![1, 0]),
        Arc::new(StringArray::from(vec!["x", "y"])),
    );
    let bytes = Arc::new(BinaryArray::from(vec![&b"a"[..], b"b"]));
    let columns: [(&str, ArrayRef); 3] =
        [("bytes", bytes), ("embedding", Arc::new(embeddings)), ("shop", Arc::new(shops))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let whole = stream(&[batch.clone(), batch]);
    std::fs::write(&path, &whole).unwrap();
    let set = EmbeddingSet::load(&path).unwrap();
    assert_eq!(set.embeddings.as_slice(), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    let shops = Column::infer("shop", ["y", "x", "y", "x"]).unwrap();
    assert_eq!(set.columns, Columns::new(vec![shops]).unwrap());
    assert_eq!(unread_of(&path, &TableColumns::default()).unwrap()[0].to_string(), "`bytes` (Binary)");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(EmbeddingSet::load(&path).is_err(), "{length} of {} bytes", whole.len());
    }
    std::fs::write(&path, [&whole[..], &whole].concat()).unwrap();
    assert!(EmbeddingSet::load(&path).is_err());
}

#[test]
fn tables_of_other_formats_and_compressions_are_called_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = EmbeddingSet::load(&path).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        error.to_string()
    };
    let read = |name: &str| std::fs::read(fixture(name)).unwrap();
    let brotli = of("x.parquet", &read("pyarrow-brotli.parquet"));
    assert!(brotli.ends_with("its columns are compressed with Brotli, which is not read"), "{brotli}");
    for name in ["x.feather", "x.parquet"] {
        assert!(
            of(name, b"FEA1, and so on").ends_with("it is a file of Feather version 1, which is not read")
        );
    }
    assert!(of("x.arrow", &read("polars.parquet")).ends_with("it is a Parquet file"));
    assert!(of("x.parquet", &read("polars.arrow")).ends_with("it is an Arrow file"));
}

#[test]
fn embeddings_of_unfit_types_are_named_with_a_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let floats = |n: usize| -> ArrayRef { Arc::new(Float32Array::from(vec![0.5; n])) };
    let quantized =
        ListArray::from_iter_primitive::<Int8Type, _, _>([Some(vec![Some(1)]), Some(vec![Some(2)])]);
    let error = |columns: Vec<(String, ArrayRef)>| {
        let path = folder.path().join("x.parquet");
        write_parquet(&path, &[RecordBatch::try_from_iter(columns).unwrap()], None);
        let error = EmbeddingSet::load(&path).unwrap_err();
        (error.to_string(), error.hint().unwrap())
    };
    let (problem, hint) = error(vec![("id".into(), floats(2)), ("code".into(), Arc::new(quantized))]);
    assert!(
        problem.ends_with("wanted lists of floats, the column `code` is of type List of Int8"),
        "{problem}"
    );
    assert!(hint.contains("scale"), "{hint}");
    let bytes = Arc::new(BinaryArray::from(vec![&b"abcd"[..], b"efgh"]));
    let (problem, hint) = error(vec![("image".into(), bytes.clone()), ("vector".into(), bytes)]);
    assert!(problem.ends_with("wanted lists of floats, the column `vector` is of type Binary"), "{problem}");
    assert!(hint.contains("frombuffer"), "{hint}");
    let (problem, hint) = error((0..64).map(|i| (format!("e{i}"), floats(2))).collect());
    assert!(problem.ends_with("found 64 columns of numbers, `e0` to `e63`"), "{problem}");
    assert!(hint.contains("to_numpy"), "{hint}");
    let (problem, hint) = error(vec![("price".into(), floats(2)), ("size".into(), floats(2))]);
    assert!(problem.ends_with("wanted a column with lists of floats, found none"), "{problem}");
    assert_eq!(hint, "the columns are `price`, `size`");
}

#[test]
fn a_table_with_more_rows_than_its_description_is_of_is_joined() {
    let folder = tempfile::tempdir().unwrap();
    let of = |set: &EmbeddingSet, times: usize| {
        let path = folder.path().join("x.arrow");
        set.save(&path).unwrap();
        let reader =
            arrow_ipc::reader::FileReader::try_new(std::fs::File::open(&path).unwrap(), None).unwrap();
        let batches: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
        let parquet = folder.path().join("x.parquet");
        let batches = vec![batches; times].concat();
        write_parquet(&parquet, &batches, None);
        std::fs::write(&path, stream(&batches)).unwrap();
        [path, parquet].map(|path| joined_table(path).unwrap())
    };
    let set = EmbeddingSet { model: Some("12ab".into()), ..rows().into() };
    assert_eq!(of(&set, 1), [None; 2]);
    assert_eq!(of(&set, 2), [Some(JoinedTable { described: 3, rows: 6 }); 2]);
    assert_eq!(of(&rows().into(), 2), [None; 2]);
    assert_eq!(joined_table(fixture("pandas.parquet")).unwrap(), None);
}

#[test]
fn embeddings_of_f64_that_f32_does_not_hold_are_refused_with_their_row() {
    let folder = tempfile::tempdir().unwrap();
    for (value, wanted) in [(1e-60, "row 1 has values up to 1e-60"), (1e60, "row 1, column 1 is 1e60")] {
        let values = [vec![Some(1.0), Some(0.0)], vec![Some(0.0), Some(value)]].map(Some);
        let array = ListArray::from_iter_primitive::<arrow_array::types::Float64Type, _, _>(values);
        for path in tables(folder.path(), vec![("wide", Arc::new(array))]) {
            let columns = TableColumns { embedding: Some("wide".into()), ..TableColumns::default() };
            let error = EmbeddingSet::load_table(&path, &columns).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
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
