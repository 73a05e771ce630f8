//! Tags and saved selections.

use crate::common::{Fixture, Response, Running, TOKEN, ids, options, square, with_token};
use gallerist_serve::Gallery;
use serde_json::{Value, json};

fn change(server: &Running, path: &str, body: &Value) -> Response {
    let headers = [TOKEN, ("Content-Type", "application/json")];
    server.send("POST", &format!("/api/v1/saved/{path}"), &headers, body.to_string().as_bytes())
}

/// The ids of a page of items.
fn listed(server: &Running, parameters: &str) -> Vec<String> {
    let page = server.json(&format!("/api/v1/items?{parameters}"));
    let items = page["items"].as_array().unwrap();
    assert_eq!(page["total"], items.len());
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tags_are_shown_at_items_and_filter_lists_and_searches() {
    let fixture = Fixture::new();
    for contents in [
        fixture.contents_of(Gallery::open(&fixture.file(), true).unwrap()),
        fixture.contents_of(Gallery::open(&fixture.index_file(), true).unwrap()),
    ] {
        let server = Running::start(contents, with_token());
        let items = server.items();
        let all: Vec<String> = items.iter().map(|(id, _)| id.clone()).collect();
        let answer = change(&server, "tags/to%20check", &json!({"add": [all[0], all[5], all[9]]}));
        assert_eq!(answer.json(), json!({"name": "to check", "count": 3, "unknown": 0}));
        assert_eq!(change(&server, "tags/dark", &json!({"add": [all[5]]})).status, 200);
        assert_eq!(server.json(&format!("/api/v1/items/{}", all[5]))["tags"], json!(["dark", "to check"]));
        assert!(server.json(&format!("/api/v1/items/{}", all[6])).get("tags").is_none());
        assert_eq!(listed(&server, "tag=to%20check"), [&*all[0], &*all[5], &*all[9]]);
        assert_eq!(listed(&server, "tag=dark&tag=to%20check").len(), 3);
        let blue = [0, 5, 9].into_iter().filter(|&at| items[at].1 == "blue").map(|at| all[at].clone());
        assert_eq!(listed(&server, "tag=to%20check&label=blue"), blue.collect::<Vec<_>>());
        let only = format!("only={}&only={}", all[5], all[6]);
        assert_eq!(listed(&server, &only), [&*all[5], &*all[6]]);
        assert_eq!(listed(&server, &format!("{only}&tag=dark")), [&*all[5]]);

        let similar = format!("/api/v1/items/{}/similar?k=12", all[0]);
        let found = server.json(&format!("{similar}&tag=to%20check"));
        let mut expected = ids(&server.json(&similar));
        expected.retain(|id| [&all[5], &all[9]].contains(&id));
        assert_eq!(ids(&found), expected);
        assert!(found["results"].as_array().unwrap().iter().all(|one| one["tags"][0].is_string()));
        let both = server.json(&format!("{similar}&tag=dark&{only}"));
        assert_eq!(ids(&both), [&*all[5]]);
        let image = square([20, 40, 250], 40);
        let form = [("image", Some("a.png"), image.as_slice()), ("tag", None, b"dark")];
        assert_eq!(ids(&server.post_form("/api/v1/search/upload", &[], &form).json()), [&*all[5]]);
        let body = json!({"ids": [all[0]], "tag": ["to check"], "only": [all[9]]});
        assert_eq!(ids(&server.post_json("/api/v1/search", &body).json()), [&*all[9]]);

        let refused = server.get("/api/v1/items?tag=none");
        assert_eq!((refused.status, refused.error().as_str()), (404, "there is no tag `none`"));
        let many = vec![format!("only={}", all[0]); 1001].join("&");
        assert_eq!(server.get(&format!("/api/v1/items?{many}")).status, 400);
        // The tag is gone with its last item.
        assert_eq!(change(&server, "tags/dark", &json!({"remove": [all[5]]})).json()["count"], 0);
        let names = server.json("/api/v1/saved")["tags"].clone();
        assert_eq!(names, json!([{"name": "to check", "count": 3, "unknown": 0}]));
        std::fs::read_dir(fixture.path("")).unwrap().for_each(|entry| {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".tags.json") {
                std::fs::remove_file(path).unwrap();
            }
        });
    }
}

#[test]
fn selections_are_kept_renamed_exported_and_deleted() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let open = || fixture.contents_of(Gallery::open(&file, true).unwrap());
    let server = Running::start(open(), with_token());
    let all: Vec<String> = server.items().into_iter().map(|(id, _)| id).collect();
    let body = json!({"add": [all[7], all[2], "77", all[7]]});
    let list = json!({"name": "a/b, \"c\"", "count": 3, "unknown": 1});
    assert_eq!(change(&server, "selections/a%2Fb%2C%20%22c%22", &body).json(), list);
    change(&server, "tags/first", &json!({"add": [all[2]]}));
    drop(server);

    // Another start, without the right to change anything.
    let server = Running::start(open(), options());
    let saved = server.json("/api/v1/saved");
    assert_eq!(saved["selections"], json!([list]));
    assert_eq!((&saved["writable"], &saved["authorized"]), (&json!(false), &json!(false)));
    assert_eq!(saved["file"], "gallery.safetensors.tags.json");
    let path = "/api/v1/saved/selections/a%2Fb%2C%20%22c%22";
    assert_eq!(server.json(path)["ids"], json!([all[7], all[2], "77"]));
    assert_eq!(listed(&server, "selection=a/b,%20%22c%22"), [&*all[2], &*all[7]]);
    let table = server.get(&format!("{path}/csv"));
    assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
    let expected = format!(
        "id,label,path,camera,tags\r\n{},<script>green</script>,1/3.png,,\r\n{},blue,0/2.png,,first\r\n77,,,,\r\n",
        all[7], all[2]
    );
    assert_eq!(String::from_utf8(table.body).unwrap(), expected);
    assert_eq!(change(&server, "selections/x", &json!({"add": ["1"]})).status, 403);
    drop(server);

    let server = Running::start(open(), with_token());
    let own = "selections/a%2Fb%2C%20%22c%22";
    change(&server, "selections/other", &json!({"add": []}));
    let taken = change(&server, own, &json!({"name": "other"}));
    assert_eq!((taken.status, taken.error().as_str()), (409, "there is already a selection `other`"));
    assert_eq!(change(&server, own, &json!({"name": "new", "remove": ["77"]})).json()["unknown"], 0);
    assert_eq!(server.json("/api/v1/saved/selections/new")["ids"], json!([all[7], all[2]]));
    assert_eq!(server.get(path).status, 404);
    for status in [204, 404] {
        assert_eq!(server.send("DELETE", "/api/v1/saved/selections/new", &[TOKEN], b"").status, status);
    }
    assert_eq!(
        server.json("/api/v1/saved")["selections"],
        json!([{"name": "other", "count": 0, "unknown": 0}])
    );
}

#[test]
fn only_the_token_changes_them_and_no_page_of_another_site() {
    let fixture = Fixture::new();
    let contents = || fixture.contents_of(Gallery::open(&fixture.file(), true).unwrap());
    let server = Running::start(contents(), with_token());
    let body = br#"{"add": ["1"]}"#;
    let json = ("Content-Type", "application/json");
    let send = |headers: &[(&str, &str)]| server.send("POST", "/api/v1/saved/tags/a", headers, body).status;
    assert_eq!(send(&[json]), 401);
    assert_eq!(send(&[json, ("Authorization", "Bearer other")]), 401);
    assert_eq!(send(&[json, TOKEN, ("Origin", "http://evil.example")]), 403);
    assert_eq!(send(&[json, TOKEN, ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(send(&[TOKEN]), 415);
    assert_eq!(server.send("DELETE", "/api/v1/saved/tags/a", &[], b"").status, 401);
    assert_eq!(server.json("/api/v1/saved")["tags"], json!([]));
    assert_eq!(send(&[json, TOKEN]), 200);
    let asked = server.send("GET", "/api/v1/saved", &[TOKEN], b"").json();
    assert_eq!((&asked["authorized"], &asked["writable"]), (&json!(true), &json!(true)));

    for (path, body, status, words) in [
        ("tags/%20a", json!({"add": ["1"]}), 400, "a name has"),
        ("tags/a", json!({"name": "a\n"}), 400, "a name has"),
        ("tags/a", json!({"add": [1]}), 400, "expected a string"),
        ("tags/a", json!({"put": []}), 400, "unknown field `put`"),
        ("colours/a", json!({}), 404, "wanted tags or selections"),
        ("tags/none", json!({"remove": ["1"]}), 404, "there is no tag `none`"),
        ("tags/a", json!({"add": vec!["1"; 100_001]}), 422, "at most 100000"),
    ] {
        let answer = change(&server, path, &body);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.error().contains(words), "{}", answer.error());
    }
    // The items of a file of embeddings are fixed.
    let png = square([1, 2, 3], 8);
    let answer = server.post_form("/api/v1/items", &[TOKEN], &[("image", Some("a.png"), &png)]);
    assert_eq!(answer.status, 403);
    assert_eq!(server.json("/api/v1/gallery")["writable"], false);

    // A gallery that is no file.
    let server = Running::start(fixture.contents_in_index(), with_token());
    assert_eq!(change(&server, "tags/a", &json!({"add": ["1"]})).status, 403);
    assert_eq!(server.json("/api/v1/saved")["writable"], false);
}

#[test]
fn clients_that_write_at_once_lose_nothing() {
    let fixture = Fixture::new();
    let server =
        Running::start(fixture.contents_of(Gallery::open(&fixture.file(), true).unwrap()), with_token());
    std::thread::scope(|scope| {
        for client in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for at in 0..20 {
                    let own = change(server, &format!("tags/{client}"), &json!({"add": [format!("{at}")]}));
                    let shared = json!({"add": [format!("{}", 100 * client + at)]});
                    assert_eq!((own.status, change(server, "selections/shared", &shared).status), (200, 200));
                }
            });
        }
    });
    let saved = server.json("/api/v1/saved");
    let counts: Vec<&Value> = saved["tags"].as_array().unwrap().iter().map(|tag| &tag["count"]).collect();
    assert_eq!(counts, [20, 20, 20, 20]);
    assert_eq!(saved["selections"][0]["count"], 80);
    let stored = std::fs::read(fixture.path("gallery.safetensors.tags.json")).unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored["selections"]["shared"].as_array().unwrap().len(), 80);
}
