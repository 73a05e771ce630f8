//! Searches by words.

use serde_json::{Value, json};

use crate::common::{CLASSES, Fixture, Running, ids, options, square};

/// The ranked list of a body with `k = 12`.
fn found(server: &Running, body: Value) -> Value {
    let mut body = body;
    body["k"] = 12.into();
    let answer = server.post_json("/api/v1/search", &body);
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()
}

#[test]
fn a_text_finds_what_the_image_finds_that_has_its_embedding() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    assert_eq!(server.json("/api/v1/gallery")["text"], true);
    for (name, colour) in CLASSES {
        let by_words = found(&server, json!({"texts": [format!("a {name} square")]}));
        let png = square(colour, 8);
        let fields = [("image", Some("a.png"), &png[..]), ("k", None, b"12")];
        let by_image = server.post_form("/api/v1/search/upload", &[], &fields).json();
        assert_eq!(ids(&by_words), ids(&by_image));
        assert_eq!(by_words["queries"][0]["name"], format!("a {name} square"));
        assert_eq!(by_words["queries"][0]["cut_to"], Value::Null);
    }
}

#[test]
fn texts_go_together_with_items_images_and_filters() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let [(first, of_first), (second, _), ..] = CLASSES;
    let item = server.items()[0].0.clone();
    let both = found(&server, json!({"texts": [first, second]}));
    assert_eq!(both["queries"].as_array().unwrap().len(), 2);
    let with_item = found(&server, json!({"texts": [second], "ids": [item], "label": [second]}));
    assert!(with_item["results"].as_array().unwrap().iter().all(|hit| hit["label"] == second));
    // The mean of the two, in either way.
    let png = square(of_first, 8);
    let fields = [("image", Some("a.png"), &png[..]), ("text", None, second.as_bytes()), ("k", None, b"12")];
    let mixed = server.post_form("/api/v1/search/upload", &[], &fields).json();
    assert_eq!(ids(&mixed), ids(&both));
}

#[test]
fn a_text_that_cannot_be_embedded_is_refused_and_one_that_is_cut_says_so() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let post = |body: Value| server.post_json("/api/v1/search", &body);
    let refused = post(json!({"texts": ["a shoe"]}));
    assert_eq!((refused.status, refused.error()), (422, "no colour is in `a shoe`".to_owned()));
    assert_eq!(post(json!({"texts": ["red", "red", "red", "red"]})).status, 400);
    assert_eq!(post(json!({"texts": "red"})).status, 400);
    assert!(post(json!({})).json()["hint"].as_str().unwrap().contains("`texts`"));
    let cut = found(&server, json!({"texts": ["a red square on white paper"]}));
    assert_eq!(cut["queries"][0]["cut_to"], 3);
}
