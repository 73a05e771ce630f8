//! Changes of an index: what else uses its file, and what they would break.

use std::path::Path;
use std::sync::Arc;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::index::{ExactIndex, Index, ItemFilter, Items, open_index, stable_id};
use gallerist_retrieval::search::Metric;
use gallerist_serve::{Companion, Contents, Gallery, Server};
use serde_json::json;

use crate::common::{Colours, Fixture, Running, TOKEN, add, options, square, with_token};

fn count(path: &Path) -> usize {
    open_index(path, true).unwrap().ids(&ItemFilter::default()).unwrap().len()
}

#[test]
fn what_another_program_wrote_is_not_overwritten() {
    let fixture = Fixture::new();
    let path = fixture.index_file();
    let open = |path: &Path| -> gallerist_serve::Result<Contents> {
        Ok(Contents { embedder: Some(Arc::new(Colours::default())), ..Gallery::open(path, true)?.into() })
    };
    let file = path.clone();
    let server = Server::bind(open(&path).unwrap(), with_token()).unwrap();
    let server = Running::of(server.with_reopen(move |_| open(&file)));
    assert_eq!(add(&server, "new/1.png", &[]).status, 201);
    let items = server.items();
    let mut index = open_index(&path, false).unwrap();
    index.remove(&[items[0].0.parse().unwrap()]).unwrap();
    index.flush().unwrap();

    let refused = add(&server, "new/2.png", &[]);
    assert_eq!(refused.status, 409);
    assert!(refused.json()["hint"].as_str().unwrap().contains("/api/v1/reload"));
    assert_eq!(server.send("DELETE", &format!("/api/v1/items/{}", items[1].0), &[TOKEN], b"").status, 409);
    assert_eq!(count(&path), 12);
    let reloaded = server.send("POST", "/api/v1/reload", &[TOKEN], b"").json();
    assert_eq!(reloaded["galleries"][0]["items"], 12);
    assert_eq!(add(&server, "new/2.png", &[]).status, 201);
    assert_eq!(count(&path), 13);

    // A file that is not there is not made again.
    let away = path.with_extension("away");
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(add(&server, "new/3.png", &[]).status, 409);
    assert!(!path.exists());
    std::fs::rename(&away, &path).unwrap();
    assert_eq!((add(&server, "new/3.png", &[]).status, count(&path)), (201, 14));
}

#[test]
fn the_name_of_an_uploaded_file_is_checked_as_a_path() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents_in_index(), with_token());
    let png = square([200, 200, 200], 8);
    let add = |name: &str| server.post_form("/api/v1/items", &[TOKEN], &[("image", Some(name), &png)]);
    let refused = add(&"a".repeat(3000));
    assert_eq!(refused.status, 400);
    assert!(refused.error().contains("the name of the file"), "{}", refused.error());
    assert!(add("").error().contains("wanted a field `path`"));
    assert_eq!(add("a.png").status, 201);
}

#[test]
fn the_path_of_a_new_item_is_stored_as_a_folder_of_images_has_it() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents_in_index(), with_token());
    let added = add(&server, "./new//1.png", &[]);
    assert_eq!(added.status, 201, "{}", added.error());
    let id = added.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("/api/v1/items/{id}"))["path"], "new/1.png");
    let same = add(&server, "new/1.png", &[]);
    assert_eq!((same.status, &same.json()["id"]), (200, &json!(id)));
    assert_eq!(add(&server, "./", &[]).status, 400);
    let address = add(&server, "s3://photos//1.png", &[]).json();
    let address = server.json(&format!("/api/v1/items/{}", address["id"].as_str().unwrap()));
    assert_eq!(address["path"], "s3://photos//1.png");

    // Windows's `\`, unless an item of the gallery has it in its name.
    let same = add(&server, "new\\1.png", &[]);
    assert_eq!((same.status, &same.json()["id"]), (200, &json!(id)));
    let mut fixture = Fixture::new();
    fixture.set.paths.as_mut().unwrap()[0] = "0\\0.png".to_owned();
    let server = Running::start(fixture.contents_in_index(), with_token());
    let replaced = add(&server, "./0\\0.png", &[("replace", None, b"true")]);
    assert_eq!(replaced.status, 201, "{}", replaced.error());
    assert_eq!(replaced.json()["id"], json!(stable_id("0\\0.png").to_string()));
    assert_eq!(server.json("/api/v1/gallery")["count"], 12);
}

#[test]
fn the_label_of_a_new_item_is_stored_as_an_image_set_has_it() {
    let mut fixture = Fixture::new();
    fixture.set.labels.as_mut().unwrap()[0] = " neu".to_owned();
    let server = Running::start(fixture.contents_in_index(), with_token());
    let label = |path: &str, label: &str| {
        let added = add(&server, path, &[("label", None, label.as_bytes())]);
        assert_eq!(added.status, 201, "{}", added.error());
        server.json(&format!("/api/v1/items/{}", added.json()["id"].as_str().unwrap()))["label"].clone()
    };
    assert_eq!(label("new/1.png", "wading | heron|wading"), "heron|wading");
    assert_eq!(label("new/2.png", " red "), "red");
    assert_eq!(label("new/3.png", " neu"), " neu", "an item has this label");
    for empty in ["a||b", "|", "a|", " "] {
        let refused = add(&server, "new/4.png", &[("label", None, empty.as_bytes())]);
        assert_eq!(refused.status, 400, "{empty}");
        assert_eq!(refused.error(), format!("the label `{empty}` has an empty part"));
        assert!(refused.json()["hint"].as_str().unwrap().contains("`a|b`"));
    }
}

#[test]
fn a_new_item_is_refused_where_ids_are_not_those_of_paths() {
    let fixture = Fixture::new();
    let mut index = ExactIndex::new(fixture.set.embeddings.cols(), Metric::Cosine).unwrap();
    index.upsert(&Items::numbered(fixture.set.clone(), 0).unwrap()).unwrap();
    let gallery = Gallery::from_index("i", Box::new(index)).unwrap();
    let server = Running::start(fixture.contents_of(gallery), with_token());
    let refused = add(&server, "new/1.png", &[]);
    assert_eq!(refused.status, 403);
    assert!(refused.error().contains("ids of its own (item 0 is `0/0.png`)"), "{}", refused.error());
    assert_eq!(server.send("DELETE", "/api/v1/items/0", &[TOKEN], b"").status, 204);
}

#[test]
fn an_index_without_items_has_an_empty_list() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents_in_index(), with_token());
    for (id, _) in server.items() {
        assert_eq!(server.send("DELETE", &format!("/api/v1/items/{id}"), &[TOKEN], b"").status, 204);
    }
    let found = server.post_json("/api/v1/search", &json!({"vectors": [[1, 2, 3, 4]]}));
    assert_eq!((found.status, &found.json()["results"]), (200, &json!([])));
    assert_eq!(add(&server, "new/1.png", &[]).status, 201);
}

#[test]
fn two_galleries_of_one_file_do_not_lose_each_others_changes() {
    let fixture = Fixture::new();
    let (index, file) = (fixture.index_file(), fixture.file());
    let folder = index.parent().unwrap();
    let detour = folder.join("images/..").join(index.file_name().unwrap());
    let twice = |path: &Path, other: &Path, options| {
        let open = |path: &Path| -> Contents { Gallery::open(path, true).unwrap().into() };
        let galleries = vec![("a".to_owned(), open(path)), ("b".to_owned(), open(other))];
        Server::bind_all(galleries, options)
    };
    let refused = twice(&index, &detour, with_token()).err().expect("it was accepted");
    assert!(refused.to_string().contains("`a` and `b` are the same index"), "{refused}");
    assert!(refused.hint().unwrap().contains("one name"));
    assert!(twice(&index, &detour, options()).is_ok(), "nothing changes it");

    let server = Running::of(twice(&file, &file, with_token()).unwrap());
    let id = server.items()[0].0.clone();
    let body = json!({"add": [id]}).to_string();
    let headers = [TOKEN, ("Content-Type", "application/json")];
    let tag = server.send("POST", "/api/v1/saved/tags/t?gallery=a", &headers, body.as_bytes());
    assert_eq!(tag.status, 200);
    assert_eq!(server.json(&format!("/api/v1/items/{id}?gallery=b"))["tags"], json!(["t"]));
}

#[test]
fn an_item_without_which_the_server_starts_and_with_which_it_would_not_is_refused() {
    let fixture = Fixture::new();
    let path = fixture.index_file();
    let other = fixture.path("other.safetensors");
    EmbeddingSet { model: Some("shapes".to_owned()), ..fixture.set.clone() }.save(&other).unwrap();
    let open = || fixture.contents_of(Gallery::open(&path, true).unwrap());
    let server = Running::start(Contents { compare: Some(other), ..open() }, with_token());
    let refused = add(&server, "new/1.png", &[]);
    assert_eq!(refused.status, 403);
    assert!(refused.json()["hint"].as_str().unwrap().contains("without --compare"));
    let id = &server.items()[0].0;
    assert_eq!(server.send("DELETE", &format!("/api/v1/items/{id}"), &[TOKEN], b"").status, 403);
    drop(server);

    let cameras = Some(vec!["c1".to_owned(); fixture.set.embeddings.rows()]);
    let queries = EmbeddingSet { cameras, ..fixture.set.clone() };
    let with = |protocol: Option<&str>| {
        let queries = Some(Companion::from_set("queries", queries.clone()));
        Contents { queries, protocol: protocol.map(str::to_owned), ..open() }
    };
    let (set, camera) = (("label", None, &b"red|blue"[..]), ("camera", None, &b"c2"[..]));
    let server = Running::start(with(None), with_token());
    assert_eq!(add(&server, "new/1.png", &[set]).status, 201, "no item has a camera yet");
    let refused = add(&server, "new/2.png", &[camera]);
    assert_eq!(refused.status, 422);
    assert!(refused.error().contains("one class per image"), "{}", refused.error());
    drop(server);
    let server = Running::start(with(Some("none")), with_token());
    assert_eq!(add(&server, "new/2.png", &[camera, set]).status, 201, "cameras do not count");
    drop(server);
    assert!(Server::bind(with(None), options()).is_err());
}

#[test]
fn a_new_item_has_the_columns_that_its_form_has() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents_in_index(), with_token());
    let add = |columns: &str, others: &[(&str, Option<&str>, &[u8])]| {
        add(&server, "new/1.png", &[&[("columns", None, columns.as_bytes())], others].concat())
    };
    let columns = json!({"price": 12.5, "shop": "north", "colour": ["blue", "red"]});
    let added = add(&columns.to_string(), &[]);
    assert_eq!(added.status, 201, "{}", added.error());
    let id = added.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("/api/v1/items/{id}"))["columns"], columns);
    let found = server.json("/api/v1/items?where=price%20%3E%2012%20and%20shop%20%3D%20%22north%22");
    assert_eq!((found["total"].clone(), found["items"][0]["id"].clone()), (json!(1), json!(id)));

    assert_eq!(add(&columns.to_string(), &[]).status, 200);
    assert_eq!(add(r#"{"price": 13}"#, &[]).status, 409);
    let replace = ("replace", None, &b"true"[..]);
    assert_eq!(add(r#"{"price": 13}"#, &[replace]).status, 201);
    assert_eq!(server.json(&format!("/api/v1/items/{id}"))["columns"], json!({"price": 13}));
    assert_eq!(add("", &[replace, ("label", None, b"other")]).status, 201);
    assert_eq!(server.json(&format!("/api/v1/items/{id}"))["columns"], json!({"price": 13}));
    let other = [replace, ("label", None, &b"other"[..])];
    for none in ["{}", r#"{"price": null}"#] {
        assert_eq!(add(none, &other[1..]).status, 409, "{none} is a change");
        assert_eq!(add(none, &other).status, 201);
        let item = server.json(&format!("/api/v1/items/{id}"));
        assert!(item.get("columns").is_none(), "{none}: {item}");
        assert_eq!(add(none, &other).status, 200);
        assert_eq!(add(r#"{"price": 13}"#, &other).status, 201);
    }

    for (columns, status, problem) in [
        ("[1]", 400, "columns must be a JSON object"),
        (r#"{"price": "cheap"}"#, 422, "`cheap` is no number"),
        (&format!("{{\"shop\": \"{}\"}}", "x".repeat(1 << 16)), 400, "columns must have at most 65536 bytes"),
    ] {
        let refused = add(columns, &[replace]);
        assert_eq!(refused.status, status, "{}", refused.error());
        assert!(refused.error().contains(problem), "{}", refused.error());
    }
}

#[test]
fn labels_of_new_items_and_of_filters_are_in_the_form_nfc() {
    let mut fixture = Fixture::new();
    let labels = fixture.set.labels.as_mut().unwrap();
    // The second label is of a file of another program.
    (labels[0], labels[1]) = ("\u{e9}".to_owned(), "a\u{30a}".to_owned());
    let server = Running::start(fixture.contents_in_index(), with_token());
    let added = add(&server, "new/1.png", &[("label", None, "e\u{301}".as_bytes())]);
    assert_eq!(added.status, 201, "{}", added.error());
    let id = added.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("/api/v1/items/{id}"))["label"], "\u{e9}");
    let total = |address: &str| server.json(&format!("/api/v1/{address}"))["total"].clone();
    for (parameter, count) in [
        ("label=e%CC%81", 2),
        ("label=%C3%A9", 2),
        ("not_label=e%CC%81", 11),
        ("label=a%CC%8A", 1),
        ("label=a%CC%8A&label=e%CC%81", 3),
    ] {
        assert_eq!(total(&format!("items?{parameter}")), count, "{parameter}");
    }
    assert_eq!(total("labels?contains=E%CC%81"), 1);
    assert_eq!(total("labels?contains=a%CC%8A"), 1);
    let found = server.json(&format!("/api/v1/items/{id}/similar?label=e%CC%81"));
    assert_eq!(found["results"].as_array().unwrap().len(), 1);
}
