//! The log of changes.

use std::path::Path;

use gallerist_serve::{Gallery, Options, Server};
use serde_json::{Value, json};

use crate::common::{Fixture, Running, options, square};

fn entries(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_change_has_an_entry_with_its_author_and_what_is_refused_has_none() {
    let fixture = Fixture::new();
    let log = fixture.path("audit.jsonl");
    let tokens = ["alice:a1", "bob:b1"].map(|text| text.parse().unwrap()).to_vec();
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let options = Options { tokens, trusted_proxies: proxies, audit: Some(log.clone()), ..options() };
    let contents = fixture.contents_of(Gallery::open(&fixture.index_file(), true).unwrap());
    let server = Running::start(contents, options);
    assert_eq!(entries(&log), Vec::<Value>::new());
    let name = server.json("/api/v1/gallery")["gallery"].clone();
    let id = server.items()[0].0.clone();
    let by = |token: &'static str| [("Authorization", token), ("X-Forwarded-For", "1.1.1.1")];
    let (alice, bob) = (by("Bearer a1"), by("Bearer b1"));
    let json_type = ("Content-Type", "application/json");

    let png = square([1, 2, 3], 2);
    let fields: [(&str, Option<&str>, &[u8]); 3] =
        [("image", Some("x"), &png), ("path", None, b"<new>.png"), ("label", None, b"a\"b")];
    let added = server.post_form("/api/v1/items", &alice, &fields);
    assert_eq!(added.status, 201);
    let change = json!({"add": [id], "name": "second"}).to_string();
    let first = json!({"add": [id]}).to_string();
    let tagged = [bob[0], bob[1], json_type];
    assert_eq!(server.send("POST", "/api/v1/saved/tags/first", &tagged, first.as_bytes()).status, 200);
    assert_eq!(server.send("POST", "/api/v1/saved/tags/first", &tagged, change.as_bytes()).status, 200);
    assert_eq!(server.send("DELETE", "/api/v1/saved/tags/second", &bob, b"").status, 204);
    assert_eq!(server.send("DELETE", &format!("/api/v1/items/{id}"), &alice, b"").status, 204);
    // Refused, or nothing to change.
    assert_eq!(server.send("DELETE", "/api/v1/items/7", &alice, b"").status, 404);
    assert_eq!(server.send("DELETE", "/api/v1/items/7", &by("Bearer c1"), b"").status, 401);
    assert_eq!(server.send("POST", "/api/v1/saved/tags/a", &[json_type], b"{}").status, 401);
    assert_eq!(server.send("POST", "/api/v1/reload", &alice, b"").status, 501);
    // Refused because of what is stored, or of the name: the change was begun.
    assert_eq!(server.send("DELETE", "/api/v1/saved/tags/none", &bob, b"").status, 404);
    assert_eq!(server.send("POST", "/api/v1/saved/tags/%20a", &tagged, first.as_bytes()).status, 400);

    let all = entries(&log);
    let mut found = Vec::new();
    for entry in &all {
        let mut entry = entry.clone();
        let time = entry["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
        entry.as_object_mut().unwrap().retain(|key, _| !["entry", "time"].contains(&key.as_str()));
        found.push(entry);
    }
    let entry = |token: &str, change: Value| {
        let mut entry = json!({"client": "1.1.1.1", "token": token, "gallery": name});
        entry.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        entry
    };
    let list = |name: &str, add: &[&str], rename: Value, delete: bool| json!({"change": "list", "kind": "tags", "name": name, "add": add, "remove": [], "rename": rename, "delete": delete});
    let new = added.json()["id"].clone();
    let wanted = [
        entry(
            "alice",
            json!({
                "change": "add", "item": new, "path": "<new>.png", "label": "a\"b", "camera": null, "source": null, "replace": false
            }),
        ),
        entry("bob", list("first", &[&id], Value::Null, false)),
        entry("bob", list("first", &[&id], "second".into(), false)),
        entry("bob", list("second", &[], Value::Null, true)),
        entry("alice", json!({"change": "remove", "item": id})),
        entry("bob", list("none", &[], Value::Null, true)),
    ];
    assert_eq!(found[..6], wanted);
    // The last two failed.
    assert_eq!((&all[6]["failed"], all.len()), (&all[5]["entry"], 9));
    assert!(all[6]["problem"].as_str().unwrap().contains("none"));
    assert_eq!((&all[7]["name"], &all[8]["failed"]), (&json!(" a"), &all[7]["entry"]));
}

#[test]
fn a_reload_of_all_galleries_names_none_and_one_that_fails_has_a_second_entry() {
    let fixture = Fixture::new();
    let log = fixture.path("audit.jsonl");
    let (one, two) = (fixture.file(), fixture.path("two.safetensors"));
    fixture.set.save(&two).unwrap();
    let files = [("one", one), ("two", two.clone())];
    let open = |file: &Path| Ok(Gallery::open(file, false)?.into());
    let galleries = files.iter().map(|(name, file)| Ok(((*name).to_owned(), open(file)?)));
    let galleries = galleries.collect::<gallerist_serve::Result<_>>().unwrap();
    let options = Options { tokens: crate::common::secret(), audit: Some(log.clone()), ..options() };
    let server = Server::bind_all(galleries, options).unwrap();
    let server = server.with_reopen(move |name| open(&files.iter().find(|(own, _)| *own == name).unwrap().1));
    let server = Running::of(server);
    std::fs::write(&two, b"no embeddings").unwrap();
    let token = ("Authorization", "Bearer secret");
    let reload = |query: &str| server.send("POST", &format!("/api/v1/reload{query}"), &[token], b"").status;
    assert_eq!([reload(""), reload("?gallery=one"), reload("?gallery=two")], [500, 200, 500]);

    let all = entries(&log);
    let galleries: Vec<&Value> = all.iter().filter_map(|entry| entry.get("gallery")).collect();
    assert_eq!(galleries, [&Value::Null, &json!("one"), &json!("two")]);
    assert_eq!(all.len(), 5);
    for (entry, failed) in [(0, 1), (3, 4)] {
        assert_eq!(all[failed]["failed"], all[entry]["entry"]);
        let problem = all[failed]["problem"].as_str().unwrap();
        assert!(problem.starts_with("the gallery `two` stays as it was: "), "{problem}");
    }
}

#[test]
fn a_gallery_is_not_its_own_log() {
    let fixture = Fixture::new();
    let index = fixture.index_file();
    let before = std::fs::read(&index).unwrap();
    let contents = fixture.contents_of(Gallery::open(&index, true).unwrap());
    let options = Options { tokens: crate::common::secret(), audit: Some(index.clone()), ..options() };
    let Err(error) = Server::bind(contents, options) else { panic!("the log would destroy the index") };
    assert!(error.to_string().contains("other content than entries"), "{error}");
    assert!(error.hint().unwrap().contains("--audit another file"));
    assert_eq!(std::fs::read(&index).unwrap(), before);
}

#[test]
fn without_its_log_the_server_changes_nothing() {
    let fixture = Fixture::new();
    let folder = fixture.path("logs");
    let open = || fixture.contents_of(Gallery::open(&fixture.index_file(), true).unwrap());
    let with =
        || Options { tokens: crate::common::secret(), audit: Some(folder.join("a.jsonl")), ..options() };
    let Err(error) = Server::bind(open(), with()) else { panic!("the folder is missing") };
    assert!(error.to_string().contains("audit log"), "{error}");
    std::fs::create_dir(&folder).unwrap();
    let server = Running::start(open(), with());
    std::fs::remove_dir_all(&folder).unwrap();
    let id = server.items()[0].0.clone();
    let token = ("Authorization", "Bearer secret");
    let answer = server.send("DELETE", &format!("/api/v1/items/{id}"), &[token], b"");
    assert_eq!((answer.status, answer.error().contains("audit log")), (500, true));
    assert_eq!(server.items().len(), 12);
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(server.send("DELETE", &format!("/api/v1/items/{id}"), &[token], b"").status, 204);
    assert_eq!(entries(&folder.join("a.jsonl")).len(), 1);
}
