//! Several galleries on one server.

use crate::common::{Fixture, Running, ids, options, square};
use gallerist_retrieval::EmbeddingSet;
use gallerist_serve::{Contents, Error, Gallery, Server};
use serde_json::{Value, json};

/// The gallery without its first `without` items, which are of the first class.
fn part(fixture: &Fixture, without: usize) -> Contents {
    let rows: Vec<usize> = (without..fixture.set.embeddings.rows()).collect();
    let set = EmbeddingSet { ..fixture.set.select(&rows) };
    fixture.contents_of(Gallery::from_set("part", set).unwrap())
}

fn both(fixture: &Fixture) -> Running {
    let galleries = vec![("all".to_owned(), fixture.contents()), ("a & b".to_owned(), part(fixture, 4))];
    Running::of(Server::bind_all(galleries, options()).unwrap())
}

#[test]
fn the_parameter_gallery_chooses_and_old_addresses_are_of_the_first() {
    let fixture = Fixture::new();
    let server = both(&fixture);
    let count = |query: &str| server.json(&format!("/api/v1/gallery{query}"));
    assert_eq!((&count("")["count"], &count("")["gallery"]), (&json!(12), &json!("all")));
    assert_eq!(count("?gallery=all")["count"], 12);
    let other = count("?gallery=a%20%26%20b");
    assert_eq!((&other["count"], &other["gallery"]), (&json!(8), &json!("a & b")));
    assert_eq!(other["galleries"], json!(["all", "a & b"]));

    // Every kind of call: an item, a list with other parameters, a body, a form, a picture.
    let first = server.items()[0].0.clone();
    let at = |path: &str| format!("{path}{}gallery=a%20%26%20b", if path.contains('?') { '&' } else { '?' });
    assert_eq!(server.get(&format!("/api/v1/items/{first}")).status, 200);
    assert_eq!(server.get(&at(&format!("/api/v1/items/{first}"))).status, 404);
    assert_eq!(server.json(&at("/api/v1/items?label=red&limit=2"))["total"], 4);
    assert_eq!(server.get(&at(&format!("/thumbnails/{first}?size=64"))).status, 404);
    let body = json!({"ids": [first], "k": 3});
    assert_eq!(server.post_json("/api/v1/search", &body).status, 200);
    assert_eq!(server.post_json(&at("/api/v1/search"), &body).status, 404);
    let image = square([20, 40, 250], 40);
    let form = [("image", Some("a.png"), image.as_slice())];
    let found = |path: &str| -> Value { server.post_form(path, &[], &form).json() };
    assert_eq!(ids(&found("/api/v1/search/upload")).len(), 12);
    assert_eq!(ids(&found(&at("/api/v1/search/upload"))).len(), 8);
    assert_eq!(server.get(&at("/")).status, 200);

    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    for sample in ["gallerist_items{gallery=\"all\"} 12", "gallerist_items{gallery=\"a & b\"} 8"] {
        assert!(metrics.contains(&format!("\n{sample}\n")), "{sample}\n{metrics}");
    }
}

#[test]
fn an_unknown_gallery_is_refused_with_the_names_of_the_others() {
    let fixture = Fixture::new();
    let server = both(&fixture);
    let answer = server.get("/api/v1/items?gallery=none");
    assert_eq!((answer.status, answer.error().as_str()), (404, "there is no gallery `none`"));
    assert_eq!(answer.json()["hint"], "the galleries of this server are `all`, `a & b`");
    assert_eq!(server.get("/api/v1/items?gallery=all&gallery=all").status, 404);
    // The other checks come first: a page of another host learns no names.
    let foreign = server.send("GET", "/api/v1/items?gallery=none", &[("Host", "evil.example")], b"");
    assert_eq!(foreign.status, 421);
}

#[test]
fn what_is_wrong_with_a_gallery_is_said_with_its_name() {
    let fixture = Fixture::new();
    let refused = |galleries: Vec<(&str, Contents)>| -> Error {
        let galleries = galleries.into_iter().map(|(name, contents)| (name.to_owned(), contents));
        Server::bind_all(galleries.collect(), options()).err().expect("it was accepted")
    };
    let twice = refused(vec![("a", fixture.contents()), ("a", fixture.contents())]);
    assert!(twice.to_string().contains("two galleries have the name `a`"), "{twice}");
    let other = EmbeddingSet { model: Some("another".to_owned()), ..fixture.set.clone() };
    let other = fixture.contents_of(Gallery::from_set("file", other).unwrap());
    let network = refused(vec![("a", fixture.contents()), ("b", other)]);
    assert!(network.to_string().starts_with("the gallery `b`: "), "{network}");
    assert!(network.hint().is_some());
    assert!(refused(Vec::new()).to_string().contains("no gallery"));
}
