//! Conversations with a Qdrant server, as far as the server speaks.

use gallerist_util::protobuf::Message;

use crate::Seeds;

fn id(id: u64) -> Message {
    Message::default().int(1, id as i64)
}

/// An entry of a map.
fn entry(key: &str, value: Message) -> Message {
    Message::default().text(1, key).message(2, value)
}

fn text(text: &str) -> Message {
    Message::default().text(4, text)
}

fn integer(value: i64) -> Message {
    Message::default().int(3, value)
}

/// An object of one field.
fn object(key: &str, value: Message) -> Message {
    Message::default().message(6, Message::default().message(1, entry(key, value)))
}

/// The answers to opening a collection.
fn opening(m: i64, dimensions: i64) -> Vec<Message> {
    let vector = |distance: i64| {
        Message::default()
            .int(1, dimensions)
            .int(2, distance)
            .message(3, Message::default().int(1, m).int(2, 100))
    };
    let map =
        Message::default().message(1, entry("embedding", vector(3))).message(1, entry("cosine", vector(1)));
    let params = Message::default().message(5, Message::default().message(2, map));
    let config = Message::default()
        .message(1, params)
        .message(7, entry("gallerist.version", integer(1)))
        .message(7, entry("gallerist.model", text("ab")))
        .message(7, entry("gallerist.column.numbers.price", integer(0)))
        .message(7, entry("gallerist.column.tags.colour", integer(1)));
    let info = Message::default().int(1, 1).message(7, config).int(9, 3).int(10, 3);
    vec![Message::default().text(1, "qdrant").text(2, "1.19.0"), Message::default().message(1, info)]
}

/// A point with all fields.
fn point(number: u64) -> Message {
    let values: Vec<u8> = [0.25_f32, 0.5].iter().flat_map(|value| value.to_le_bytes()).collect();
    let dense = Message::default().message(101, Message::default().bytes(1, &values));
    let vectors = Message::default().message(2, Message::default().message(1, entry("embedding", dense)));
    let tags = Message::default().message(7, Message::default().message(1, text("red")));
    Message::default()
        .message(1, id(number))
        .message(2, entry("label", text("a")))
        .message(2, entry("path", text("a.jpg")))
        .message(2, entry("digest", integer(7)))
        .message(2, entry("numbers", object("price", integer(3))))
        .message(2, entry("digits", object("size", text("3.0000000000000004e-1"))))
        .message(2, entry("tags", object("colour", tags)))
        .message(2, entry("dates", object("day", text("2024-05-01"))))
        .message(4, vectors)
}

fn get(ids: &[u64]) -> Message {
    Message::default().all(ids, |list, &number| list.message(1, point(number)))
}

fn scroll(next: Option<u64>, ids: &[u64]) -> Message {
    Message::default()
        .all(next, |list, next| list.message(1, id(next)))
        .all(ids, |list, &number| list.message(2, point(number)))
}

fn search(ids: &[u64]) -> Message {
    let list = Message::default()
        .all(ids, |list, &number| list.message(1, Message::default().message(1, id(number)).float(3, 0.5)));
    Message::default().message(1, list)
}

pub(crate) fn write(seeds: &Seeds) {
    let conversation = |name: &str, opening: Vec<Message>, further: Vec<Message>| {
        let mut input = Vec::new();
        for answer in opening.into_iter().chain(further) {
            let bytes = answer.into_bytes();
            input.extend((bytes.len() as u16).to_le_bytes());
            input.extend(bytes);
        }
        seeds.add("qdrant", name, &input);
    };
    let info = || opening(0, 2).pop().expect("the description");
    conversation("search", opening(0, 2), vec![search(&[1, 2]), get(&[1, 2])]);
    conversation("hnsw", opening(16, 2), vec![search(&[1, 2, 3]), get(&[1, 2, 3])]);
    conversation("get", opening(0, 2), vec![get(&[1, 2, 3])]);
    conversation("scroll", opening(0, 2), vec![scroll(Some(3), &[1, 2]), scroll(None, &[3])]);
    let table = || scroll(None, &[1, 2]);
    conversation("condition", opening(0, 2), vec![info(), table(), info(), table()]);
    conversation("same-rows", opening(0, 2), vec![scroll(Some(3), &[1, 2])]);
    conversation(
        "count",
        opening(0, 2),
        vec![Message::default().message(1, Message::default().int(1, 2)), info()],
    );
    conversation(
        "remove",
        opening(0, 2),
        vec![get(&[1]), Message::default().message(1, Message::default().int(2, 2))],
    );
    for (name, dimensions) in [("dimensions-0", 0), ("dimensions-huge", -1)] {
        conversation(name, opening(0, dimensions), vec![search(&[1]), get(&[1])]);
    }
}
