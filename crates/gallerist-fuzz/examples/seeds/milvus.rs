//! Conversations with a Milvus server, as far as the server speaks.

use gallerist_util::protobuf::Message;

use crate::Seeds;

fn pair(key: &str, value: &str) -> Message {
    Message::default().text(1, key).text(2, value)
}

fn longs(name: &str, values: &[i64]) -> Message {
    let list = Message::default().all(values, |list, &value| list.int(1, value));
    Message::default().int(1, 5).text(2, name).message(3, Message::default().message(3, list))
}

fn texts(name: &str, values: &[&str]) -> Message {
    let list = Message::default().all(values, |list, value| list.text(1, value));
    Message::default().int(1, 21).text(2, name).message(3, Message::default().message(6, list))
}

fn vectors(dimensions: i64, values: &[f32]) -> Message {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let floats = Message::default().bytes(1, &bytes);
    let field = Message::default().int(1, dimensions).message(2, floats);
    Message::default().int(1, 101).text(2, "embedding").message(4, field)
}

/// The answers to opening a collection.
fn opening(index: &str, dimensions: &str) -> Vec<Message> {
    let embedding = Message::default().text(2, "embedding").int(5, 101).message(6, pair("dim", dimensions));
    let schema = Message::default()
        .text(1, "gallery")
        .message(4, embedding)
        .all(&["source", "columns"], |schema, name| schema.message(4, Message::default().text(2, name)));
    let columns = r#"[{"name":"price","kind":"number","uniform":true}]"#;
    let description = Message::default()
        .message(2, schema)
        .message(13, pair("gallerist.version", "3"))
        .message(13, pair("gallerist.columns", columns));
    let index = Message::default()
        .message(3, pair("index_type", index))
        .message(3, pair("metric_type", "COSINE"))
        .message(3, pair("params", "{\"M\":16,\"efConstruction\":200}"))
        .text(4, "embedding");
    vec![
        Message::default().text(2, "v2.3.5"),
        description,
        Message::default().message(2, index),
        Message::default(),
        Message::default().int(2, 3),
        Message::default().int(2, 7),
    ]
}

fn rows(ids: &[i64]) -> Message {
    let json = Message::default().all(ids, |list, _| list.bytes(1, br#"{"price":3}"#));
    let columns =
        Message::default().int(1, 23).text(2, "columns").message(3, Message::default().message(9, json));
    let list = vec!["a"; ids.len()];
    Message::default()
        .message(2, longs("id", ids))
        .message(2, texts("label", &list))
        .message(2, texts("path", &list))
        .message(2, texts("camera", &list))
        .message(2, texts("source", &list))
        .message(2, columns)
        .message(2, vectors(2, &vec![0.25; 2 * ids.len()]))
}

pub(crate) fn write(seeds: &Seeds) {
    let conversation = |name: &str, index: &str, dimensions: &str, further: Vec<Message>| {
        let mut input = Vec::new();
        for answer in opening(index, dimensions).into_iter().chain(further) {
            let bytes = answer.into_bytes();
            input.extend((bytes.len() as u16).to_le_bytes());
            input.extend(bytes);
        }
        seeds.add("milvus", name, &input);
    };
    let add = |name: &str, index: &str, further| conversation(name, index, "2", further);
    let search = |ids: &[i64]| {
        let list = Message::default().all(ids, |list, &id| list.int(1, id));
        let scores: Vec<u8> = ids.iter().flat_map(|_| 0.5_f32.to_le_bytes()).collect();
        let results = Message::default()
            .int(1, 1)
            .bytes(4, &scores)
            .message(5, Message::default().message(1, list))
            .int(6, ids.len() as i64);
        Message::default().message(2, results)
    };
    add("search", "FLAT", vec![search(&[1, 2]), rows(&[1, 2])]);
    add("hnsw", "HNSW", vec![search(&[1, 2, 3]), rows(&[1, 2, 3])]);
    let description = || opening("FLAT", "2").swap_remove(1);
    // Regressions.
    conversation("dimensions-0", "FLAT", "0", vec![search(&[1]), rows(&[1])]);
    conversation("dimensions-huge", "FLAT", "18446744073709551615", vec![search(&[1]), rows(&[1])]);
    add("same-rows", "FLAT", vec![rows(&[1, 2])]);
    add("rows", "FLAT", vec![rows(&[1, 2]), rows(&[3]), rows(&[])]);
    add(
        "count",
        "FLAT",
        vec![Message::default().message(2, longs("count(*)", &[2])), rows(&[1, 2]), rows(&[]), description()],
    );
    add("columns", "FLAT", vec![description()]);
    add("remove", "FLAT", vec![rows(&[1]), Message::default(), Message::default().int(2, 8)]);
    add(
        "condition",
        "FLAT",
        vec![description(), rows(&[1, 2]), rows(&[]), description(), rows(&[1, 2]), rows(&[])],
    );
    add(
        "refused",
        "FLAT",
        vec![Message::default().message(1, Message::default().int(1, 1).text(2, "no").int(3, 65_535))],
    );
}
