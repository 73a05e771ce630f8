//! What is refused, with which status, and that nothing gets out that should not.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Barrier, Colours, Fixture, Response, Running, form, options, secret, square};
use gallerist_retrieval::EmbeddingSet;
use gallerist_serve::{Contents, Gallery, Options, Server};
use serde_json::json;

/// Each is refused with this status, in words.
fn assert_refused(answer: &Response, status: u16, words: &str) {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, status, "{text}");
    assert!(answer.error().contains(words), "wanted `{words}`: {text}");
    assert_eq!(answer.header("content-type"), "application/json");
}

#[test]
fn each_fault_of_a_request_has_its_status_and_its_words() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), Options { k: 50, ..options() });
    let id = server.items()[0].0.clone();
    let similar = |params: &str| server.get(&format!("/api/v1/items/{id}/similar?{params}"));
    assert_refused(&similar("k=0"), 400, "k must be from 1 to 50, not 0");
    assert_refused(&similar("k=51"), 400, "k must be from 1 to 50, not 51");
    assert_refused(&similar("k=many"), 400, "cannot be read");
    assert_refused(&similar("colour=red"), 400, "unknown field `colour`");
    assert_refused(&similar("model=other"), 404, "no other network");
    assert_refused(&server.get("/api/v1/items/seven"), 400, "`seven` is no id");
    assert_refused(&server.get("/api/v1/items/7"), 404, "there is no item 7");
    assert_refused(&server.get("/api/v1/nothing"), 404, "/api/v1/nothing");
    assert_refused(&server.send("PUT", "/api/v1/gallery", &[], b""), 405, "no such call");
    assert_refused(&server.get(&format!("/thumbnails/{id}?size=161")), 400, "64, 160 or 320");

    let search = |body: serde_json::Value| server.post_json("/api/v1/search", &body);
    assert_refused(&search(json!({})), 400, "nothing to search with");
    assert_refused(&search(json!({"ids": [id, id, id, id]})), 400, "4 queries, and 3 may be combined");
    assert_refused(&search(json!({"ids": [7]})), 400, "expected a string");
    assert_refused(&search(json!({"ids": ["7"]})), 404, "there is no item 7");
    assert_refused(&search(json!({"vectors": [[1.0]]})), 422, "1 values, the gallery's embeddings have 4");
    assert_refused(&search(json!({"vectors": [[1e39, 0, 0, 0]]})), 400, "number out of range");
    assert_refused(&search(json!({"vectors": [[0, 0, 0, 0]]})), 422, "all zeros");
    let against = json!({"vectors": [[1, 0, 0, 0], [-1, 0, 0, 0]]});
    assert_refused(&search(against), 422, "all zeros");
    let answer = server.send("POST", "/api/v1/search", &[("Content-Type", "application/json")], b"{\"ids\":");
    assert_refused(&answer, 400, "the body cannot be read");
    let answer = server.send("POST", "/api/v1/search", &[("Content-Type", "text/plain")], b"{}");
    assert_refused(&answer, 415, "application/json");
    let many = vec!["1"; 1001];
    assert_refused(&server.post_json("/api/v1/items/lookup", &json!({"ids": many})), 400, "1001 ids");
}

#[test]
fn each_fault_of_an_upload_has_its_status_and_its_words() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), Options { upload_bytes: 10_000, ..options() });
    let upload =
        |fields: &[(&str, Option<&str>, &[u8])]| server.post_form("/api/v1/search/upload", &[], fields);
    let png = square([1, 2, 3], 20);
    assert_refused(&upload(&[("image", None, b"<svg onload=alert(1)>")]), 415, "not an image");
    assert_refused(&upload(&[("image", None, &png[..png.len() - 20])]), 422, "cannot be decoded");
    assert_refused(&upload(&[("image", None, &bomb())]), 422, "its header says 60000 x 60000 pixels");
    assert_refused(&upload(&[("image", None, &[0; 20_000])]), 413, "more bytes");
    assert_refused(&upload(&[("k", None, b"3")]), 400, "nothing to search with");
    assert_refused(&upload(&[("image", None, &png), ("k", None, b"x")]), 400, "not `x`");
    assert_refused(&upload(&[("image", None, &png), ("size", None, b"1")]), 400, "no field `size`");
    let four: Vec<(&str, Option<&str>, &[u8])> = vec![("image", None, &png); 4];
    assert_refused(&upload(&four), 400, "more images than the 3");
    for header in [&[("Content-Type", "text/plain")][..], &[("Content-Type", "multipart/form-data")], &[]] {
        let answer = server.send("POST", "/api/v1/search/upload", header, b"x");
        assert_refused(&answer, 415, "multipart/form-data");
        assert!(answer.json()["hint"].as_str().unwrap().contains("-F image=@FILE"));
    }
    let large = vec![b' '; 20_000];
    let answer = server.send("POST", "/api/v1/search", &[("Content-Type", "application/json")], &large);
    assert_refused(&answer, 413, "more bytes");
}

/// A PNG whose header promises 60,000 x 60,000 pixels.
fn bomb() -> Vec<u8> {
    let mut png = square([0, 0, 0], 1);
    png[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    png
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (0u32.wrapping_sub(crc & 1))))
    })
}

#[test]
fn without_network_token_or_images_it_is_said_so() {
    let fixture = Fixture::new();
    let gallery = Gallery::open(&fixture.file(), false).unwrap();
    let server = Running::start(gallery.into(), options());
    let id = server.items()[0].0.clone();
    let png = square([1, 2, 3], 2);
    let fields: [(&str, Option<&str>, &[u8]); 1] = [("image", Some("a"), &png)];
    assert_refused(&server.post_form("/api/v1/search/upload", &[], &fields), 501, "no network");
    assert_refused(&server.get(&format!("/api/v1/heatmap?query={id}&item={id}")), 501, "no network");
    assert_refused(&server.get(&format!("/images/{id}")), 404, "not at hand");
    assert_refused(&server.post_form("/api/v1/items", &[], &fields), 403, "cannot be changed");
    assert_refused(
        &server.send("DELETE", &format!("/api/v1/items/{id}"), &[], b""),
        403,
        "cannot be changed",
    );
    let gallery = server.json("/api/v1/gallery");
    let body = serde_json::json!({"texts": ["a red square"]});
    assert_refused(&server.post_json("/api/v1/search", &body), 501, "no text tower");
    for flag in ["images", "upload", "text", "heatmap", "writable"] {
        assert_eq!(gallery[flag], false, "{flag}");
    }
}

#[test]
fn a_parameter_that_cannot_be_read_is_named_and_types_of_bodies_have_no_case() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let id = server.items()[0].0.clone();
    let similar = format!("/api/v1/items/{id}/similar");
    assert_refused(&server.get(&format!("{similar}?label=red&k=-1")), 400, "the parameter `k`");
    assert_refused(&server.get(&format!("{similar}?k=2&colour=red")), 400, "`colour`");
    assert_refused(&server.get("/api/v1/heatmap?query=1"), 400, "missing field `item`");
    for distance in ["nan", "inf"] {
        let list = format!("/api/v1/duplicates?distance={distance}");
        assert_refused(&server.get(&list), 400, "distance must be a finite number");
    }
    let body = serde_json::json!({"ids": [id]}).to_string();
    let kind = [("Content-Type", "Application/JSON; charset=utf-8")];
    assert_eq!(server.send("POST", "/api/v1/search", &kind, body.as_bytes()).status, 200);
}

#[test]
fn a_parameter_that_a_call_does_not_take_is_refused_by_every_call() {
    let fixture = Fixture::new();
    let galleries = ["a", "b"].map(|name| (name.to_owned(), fixture.contents_in_index()));
    let with_token = Options { tokens: secret(), ..options() };
    let server = Running::of(Server::bind_all(galleries.into(), with_token).unwrap());
    let id = server.items()[0].0.clone();
    // With the values that each needs, every call of the description refuses one that it does not have.
    let api = server.json("/openapi.json");
    let mut calls = 0;
    let of_api = api["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/api/"));
    for (path, methods) in of_api {
        let path = path.replace("{id}", &id).replace("{kind}", "tags").replace("{name}", "t");
        for method in methods.as_object().unwrap().keys() {
            let address = format!("{path}?gallery=b&colour=red");
            let token = [("Authorization", "Bearer secret"), ("Content-Type", "application/json")];
            let answer = match methods[method]["requestBody"]["content"]["multipart/form-data"].is_null() {
                true => server.send(&method.to_uppercase(), &address, &token, b"{}"),
                false => {
                    server.post_form(&address, &token[..1], &[("image", Some("a"), &square([1, 2, 3], 2))])
                }
            };
            assert_refused(&answer, 400, "the parameter `colour` cannot be read: unknown field `colour`");
            calls += 1;
        }
    }
    assert!(calls >= 28, "{calls}");
    for gallery in ["a", "b"] {
        assert_eq!(server.json(&format!("/api/v1/gallery?gallery={gallery}"))["count"], 12);
    }

    let hint = |answer: &Response| answer.json()["hint"].as_str().unwrap().to_owned();
    let png = square([1, 2, 3], 2);
    let image: [(&str, Option<&str>, &[u8]); 1] = [("image", Some("a"), &png)];
    let upload = server.post_form("/api/v1/search/upload?k=2", &[], &image);
    assert_refused(&upload, 400, "the parameter `k`");
    assert!(hint(&upload).contains("a field of the form"), "{}", hint(&upload));
    let search = server.post_json("/api/v1/search?k=2", &json!({"ids": [id]}));
    assert_refused(&search, 400, "the parameter `k`");
    assert!(hint(&search).contains("a field of the JSON body"), "{}", hint(&search));
    let head = server.send("HEAD", "/api/v1/gallery?k=2", &[], b"");
    assert_eq!(head.status, 400);
    assert_eq!(server.get("/health?probe=1").status, 200);
    // Without one, and with that of all calls, they are answered.
    for address in ["/api/v1/search/upload", "/api/v1/search/upload?", "/api/v1/search/upload?gallery=b"] {
        assert_eq!(server.post_form(address, &[], &image).status, 200, "{address}");
    }
    for address in ["/health?gallery=a", "/api/v1/saved?gallery=b", "/app.js?version=2", "/?saved=1"] {
        assert_eq!(server.get(address).status, 200, "{address}");
    }
    assert_refused(&server.get("/api/v1/gallery?gallery=none&k=2"), 404, "there is no gallery `none`");
}

#[test]
fn only_who_knows_the_token_changes_the_gallery() {
    let fixture = Fixture::new();
    let options = Options { tokens: secret(), ..options() };
    let server = Running::start(fixture.contents_in_index(), options);
    let path = format!("/api/v1/items/{}", server.items()[0].0);
    for given in [None, Some("Bearer secre"), Some("Bearer secrets"), Some("secret"), Some("Basic secret")] {
        let headers: Vec<_> = given.map(|given| ("Authorization", given)).into_iter().collect();
        let answer = server.send("DELETE", &path, &headers, b"");
        assert_refused(&answer, 401, "token");
        assert_eq!(answer.header("www-authenticate"), "Bearer");
        let png = square([1, 2, 3], 2);
        let answer = server.post_form("/api/v1/items", &headers, &[("image", Some("a"), &png)]);
        assert_refused(&answer, 401, "token");
    }
    assert_eq!(server.json("/api/v1/gallery")["count"], 12);
}

#[test]
fn no_path_leads_out_of_the_folders() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("secret.png"), square([9, 9, 9], 2)).unwrap();
    let mut paths = fixture.set.paths.clone().unwrap();
    paths[0] = "../secret.png".to_owned();
    paths[1] = fixture.path("secret.png").display().to_string();
    let set = EmbeddingSet { paths: Some(paths), ..fixture.set.clone() };
    let contents = fixture.contents_of(Gallery::from_set("a", set).unwrap());
    let assets = fixture.path("page");
    std::fs::create_dir(&assets).unwrap();
    std::fs::write(assets.join("index.html"), "page").unwrap();
    let server = Running::start(contents, Options { assets: Some(assets), ..options() });
    let items = server.items();
    for (id, _) in &items[..2] {
        assert_refused(&server.get(&format!("/images/{id}")), 404, "not among the images");
        assert_refused(&server.get(&format!("/thumbnails/{id}")), 404, "not among the images");
    }
    assert_eq!(server.get(&format!("/images/{}", items[2].0)).status, 200);
    assert_eq!(server.get("/").body, b"page");
    for path in
        ["/../secret.png", "/%2e%2e/secret.png", "/..%2fsecret.png", "//etc/passwd", "/./../secret.png"]
    {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/images/..%2f..%2fsecret.png").status, 400);
}

#[test]
fn no_answer_can_be_taken_for_a_page_with_scripts() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let id = server.items()[4].0.clone();
    let item = format!("/api/v1/items/{id}");
    let nowhere = "/%3Cscript%3Ealert(1)%3C/script%3E";
    for path in
        ["/", "/api", &item, nowhere, "/api/v1/gallery", "/health", "/openapi.json", &format!("/images/{id}")]
    {
        let answer = server.get(path);
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        let html = answer.header("content-type").starts_with("text/html");
        assert_eq!(html, ["/", "/api"].contains(&path), "{path}");
    }
    assert_eq!(server.json(&item)["label"], "<script>green</script>");
}

#[test]
fn a_page_from_elsewhere_cannot_use_a_name_of_its_own() {
    let fixture = Fixture::new();
    let server =
        Running::start(fixture.contents(), Options { hosts: vec!["birds.example".to_owned()], ..options() });
    let ask = |host: &str| server.send("GET", "/api/v1/gallery", &[("Host", host)], b"").status;
    for host in
        ["localhost", "localhost:8080", "127.0.0.1", "[::1]:8080", "Birds.example", "birds.example:443"]
    {
        assert_eq!(ask(host), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
        assert_eq!(ask(host), 421, "{host}");
    }
}

#[test]
fn too_much_at_once_is_refused_and_the_others_are_answered() {
    let fixture = Fixture::new();
    let barrier = Arc::new(Barrier::default());
    let contents =
        Contents { embedder: Some(Arc::new(Colours(Some(Arc::clone(&barrier))))), ..fixture.contents() };
    let server = Running::start(contents, Options { threads: 1, waiting: 1, ..options() });
    let png = square([1, 2, 3], 2);
    let upload = || server.post_form("/api/v1/search/upload", &[], &[("image", None, &png)]);
    std::thread::scope(|scope| {
        let first = scope.spawn(upload);
        barrier.reached(1);
        // One more may wait; of two, one is refused, whichever comes second.
        let others = [scope.spawn(upload), scope.spawn(upload)];
        while !others.iter().any(|other| other.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(server.get("/health").status, 200, "what needs no network is answered");
        barrier.open();
        assert_eq!(first.join().unwrap().status, 200);
        let mut others = others.map(|other| other.join().unwrap());
        others.sort_by_key(|answer| answer.status);
        assert_eq!(others[0].status, 200);
        assert_refused(&others[1], 503, "too many");
        assert_eq!(others[1].header("retry-after"), "1");
    });
}

#[test]
fn what_takes_too_long_is_given_up() {
    let fixture = Fixture::new();
    let barrier = Arc::new(Barrier::default());
    let contents =
        Contents { embedder: Some(Arc::new(Colours(Some(Arc::clone(&barrier))))), ..fixture.contents() };
    let short = Duration::from_millis(200);
    let server = Running::start(contents, Options { time: short, upload_time: short, ..options() });
    let png = square([1, 2, 3], 2);
    let answer = server.post_form("/api/v1/search/upload", &[], &[("image", None, &png)]);
    assert_refused(&answer, 504, "too long");
    barrier.open();

    // Half an upload.
    let (content_type, body) = form(&[("image", None, &png)]);
    let mut stream = server.connect();
    let head = format!(
        "POST /api/v1/search/upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body[..body.len() / 2]).unwrap();
    assert_refused(&Response::read(&mut stream), 408, "longer than");

    // Half a header.
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn an_image_that_takes_too_long_to_decode_is_given_up_and_the_next_one_is_taken() {
    let fixture = Fixture::new();
    let png = square([1, 2, 3], 200);
    let upload = |decode_time: Duration| {
        let server = Running::start(fixture.contents(), Options { decode_time, ..options() });
        server.post_form("/api/v1/search/upload", &[], &[("image", None, &png)])
    };
    assert_refused(&upload(Duration::ZERO), 422, "takes more than 0 s to decode");
    assert_eq!(upload(Options::default().decode_time).status, 200);
}

#[test]
fn headers_without_end_are_refused() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let long = "x".repeat(200_000);
    assert_eq!(server.send("GET", "/health", &[("X", &long)], b"").status, 431);
    let names: Vec<String> = (0..200).map(|number| format!("X-{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(server.send("GET", "/health", &many, b"").status, 431);
    assert_eq!(server.raw(b"nonsense\r\n\r\n").status, 400);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_server_that_stops_finishes_what_it_has_begun() {
    let fixture = Fixture::new();
    let barrier = Arc::new(Barrier::default());
    let contents =
        Contents { embedder: Some(Arc::new(Colours(Some(Arc::clone(&barrier))))), ..fixture.contents() };
    let mut server = Running::start(contents, options());
    let png = square([1, 2, 3], 2);
    let (content_type, body) = form(&[("image", None, &png)]);
    let mut stream = server.connect();
    let head = format!(
        "POST /api/v1/search/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    barrier.reached(1);
    server.stop();
    // New ones are not taken.
    while std::net::TcpStream::connect(server.address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    barrier.open();
    assert_eq!(Response::read(&mut stream).status, 200);
    server.stopped();
}
