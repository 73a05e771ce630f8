//! How a request must be made: its host, its origin, its size, its token.

use crate::common::{Fixture, Response, Running, form, options, secret, square};
use gallerist_serve::Options;

/// The answer to lines that are sent as they are.
fn raw(server: &Running, lines: &str) -> Response {
    server.raw(lines.replace('\n', "\r\n").as_bytes())
}

#[test]
fn a_request_names_its_host_once() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let ask = |lines: &str| raw(&server, &format!("{lines}Connection: close\n\n"));
    assert_eq!(ask("GET /health HTTP/1.1\nHost: localhost\n").status, 200);
    let answer = ask("GET /health HTTP/1.1\nHost: localhost\nHost: localhost\n");
    assert_eq!((answer.status, answer.error().as_str()), (400, "wanted one `Host` header, found 2"));
    for second in ["evil.example", ""] {
        assert_eq!(ask(&format!("GET /health HTTP/1.1\nHost: localhost\nHost: {second}\n")).status, 400);
    }
    assert_eq!(ask("GET /health HTTP/1.1\n").error(), "wanted one `Host` header, found 0");
    // The request line can name the host, too.
    assert_eq!(ask("GET http://localhost/health HTTP/1.1\nHost: localhost\n").status, 200);
    assert_eq!(ask("GET http://evil.example/health HTTP/1.1\nHost: localhost\n").status, 421);
}

#[test]
fn headers_of_64_kib_pass_and_one_byte_more_is_refused() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let of_size = |bytes: usize| {
        let head = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let filler = |name: &str, bytes: usize| format!("{name}: {}\r\n", "x".repeat(bytes - name.len() - 4));
        let first = filler("A", 30_000);
        let rest = bytes - head.len() - first.len() - 2;
        server.raw(format!("{head}{first}{}\r\n", filler("B", rest)).as_bytes()).status
    };
    assert_eq!([65_536, 65_537, 100_000, 130_000].map(of_size), [200, 431, 431, 431]);
    let long = format!("GET /{} HTTP/1.1\nHost: localhost\nConnection: close\n\n", "x".repeat(70_000));
    assert!([414, 431].contains(&raw(&server, &long).status));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let post = |headers: &str, body: &str| {
        let head = "POST /api/v1/search HTTP/1.1\nHost: localhost\nConnection: close\n";
        raw(&server, &format!("{head}Content-Type: application/json\n{headers}\n{body}")).status
    };
    assert_eq!(post("Content-Length: 2\n", "{}"), 400, "read, and nothing to search with");
    for headers in [
        "Content-Length: 2\nContent-Length: 3\n",
        "Content-Length: 2, 3\n",
        "Content-Length: +2\n",
        "Content-Length: -2\n",
        "Content-Length: 99999999999999999999\n",
        "Transfer-Encoding: gzip\n",
        "Transfer-Encoding: chunked, gzip\n",
    ] {
        let status = post(headers, "{}");
        assert!([400, 413, 501].contains(&status), "{headers}: {status}");
    }
    // Chunks that promise more than there is, or than fits a number.
    for chunk in ["ffffffffffffffffff\n{}", "-1\n{}", "2x\n{}\n0\n\n"] {
        assert_eq!(post("Transfer-Encoding: chunked\n", chunk), 400, "{chunk}");
    }
}

/// What a browser says of a request, and whether it is answered.
const ORIGINS: [(&[(&str, &str)], bool); 11] = [
    // A program.
    (&[], true),
    // The server's own page.
    (&[("Sec-Fetch-Site", "same-origin"), ("Origin", "http://HOST")], true),
    (&[("Origin", "http://HOST")], true),
    // Behind a proxy that changes the host, the browser still knows.
    (&[("Sec-Fetch-Site", "same-origin"), ("Origin", "https://gallery.example")], true),
    (&[("Sec-Fetch-Site", "none")], true),
    // Other sites, other ports of this machine, pages without an origin of their own.
    (&[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")], false),
    (&[("Sec-Fetch-Site", "same-site"), ("Origin", "http://127.0.0.1:1")], false),
    (&[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-User", "?1")], false),
    (&[("Origin", "https://evil.example")], false),
    (&[("Origin", "http://127.0.0.1:1")], false),
    (&[("Origin", "null")], false),
];

#[test]
fn a_page_of_another_site_can_make_the_server_do_nothing() {
    let fixture = Fixture::new();
    let tokens = secret();
    let server = Running::start(fixture.contents_in_index(), Options { tokens, ..options() });
    let id = server.items()[0].0.clone();
    let png = square([1, 2, 3], 2);
    let (multipart, upload) = form(&[("image", Some("a.png"), &png)]);
    let (json, search) = ("application/json".to_owned(), format!("{{\"ids\": [\"{id}\"]}}"));
    let new = form(&[("image", Some("new.png"), &png)]).1;
    let item = format!("/api/v1/items/{}", server.items()[5].0);
    let calls: [(&str, &str, &str, &[u8], u16); 5] = [
        ("POST", "/api/v1/search/upload", &multipart, &upload, 200),
        ("POST", "/api/v1/search", &json, search.as_bytes(), 200),
        ("POST", "/api/v1/items/lookup", &json, search.as_bytes(), 200),
        ("POST", "/api/v1/items", &multipart, &new, 201),
        ("DELETE", &item, "text/plain", b"", 204),
    ];
    for (origin, answered) in ORIGINS {
        let count = server.json("/api/v1/gallery")["count"].clone();
        for (method, path, content_type, body, status) in calls {
            let host = server.address.to_string();
            let origin: Vec<_> =
                origin.iter().map(|(name, value)| (*name, value.replace("HOST", &host))).collect();
            let mut headers = vec![("Content-Type", content_type), ("Authorization", "bearer secret")];
            headers.extend(origin.iter().map(|(name, value)| (*name, value.as_str())));
            let found = server.send(method, path, &headers, body);
            if answered {
                // The second time the item is gone, or there already, the same.
                let again = if method == "DELETE" { 404 } else { 200 };
                assert!([status, again].contains(&found.status), "{path} {origin:?}: {}", found.status);
            } else {
                assert_eq!(found.status, 403, "{path} {origin:?}");
                assert!(found.error().contains("comes from a page of"), "{}", found.error());
            }
        }
        if !answered {
            assert_eq!(server.json("/api/v1/gallery")["count"], count, "{origin:?}");
        }
    }
}

#[test]
fn a_link_from_another_site_opens_the_page_and_loads_nothing_into_that_site() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let id = server.items()[0].0.clone();
    let image = format!("/images/{id}");
    let similar = format!("/api/v1/items/{id}/similar");
    let foreign = ("Sec-Fetch-Site", "cross-site");
    let ask = |path: &str, more: &[(&str, &str)]| {
        server.send("GET", path, &[&[foreign], more].concat(), b"").status
    };
    let navigate = ("Sec-Fetch-Mode", "navigate");
    let clicked = ("Sec-Fetch-User", "?1");
    assert_eq!(ask("/", &[navigate]), 200);
    assert_eq!(ask(&image, &[navigate, clicked]), 200);
    // A page that loads the image, calls, or opens a window by itself.
    for path in [image.as_str(), &similar, "/"] {
        assert_eq!(ask(path, &[("Sec-Fetch-Mode", "no-cors")]), 403, "{path}");
    }
    assert_eq!(ask(&similar, &[navigate]), 403);
    assert_eq!(ask(&similar, &[("Sec-Fetch-Mode", "cors"), clicked]), 403);
}

#[test]
fn the_name_of_the_scheme_of_a_token_has_no_case() {
    let fixture = Fixture::new();
    let tokens = secret();
    let server = Running::start(fixture.contents_in_index(), Options { tokens, ..options() });
    let ids = server.items();
    for (given, (id, _)) in ["bearer secret", "BEARER secret", "Bearer  secret"].into_iter().zip(&ids) {
        let path = format!("/api/v1/items/{id}");
        assert_eq!(server.send("DELETE", &path, &[("Authorization", given)], b"").status, 204, "{given}");
    }
    for given in ["bearer Secret", "bearer", "Bearersecret", "bearer secret secret"] {
        let path = format!("/api/v1/items/{}", ids[9].0);
        assert_eq!(server.send("DELETE", &path, &[("Authorization", given)], b"").status, 401, "{given}");
    }
}

#[test]
fn the_examples_of_the_api_name_the_address_they_were_asked_under_and_run_as_they_are() {
    let fixture = Fixture::new();
    let hosts = vec!["birds.example".to_owned()];
    let server = Running::start(fixture.contents(), Options { hosts, ..options() });
    let page = |headers: &[(&str, &str)]| {
        let answer = server.send("GET", "/api", headers, b"");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        String::from_utf8(answer.body).unwrap()
    };
    let own = page(&[]);
    assert!(own.contains(&format!("curl http://{}/api/v1/gallery", server.address)), "{own}");
    assert!(own.contains("href=\"style.css\"") && !own.contains("{server}"));
    assert!(page(&[("Host", "birds.example:81")]).contains("curl http://birds.example:81/health"));
    let proxied = page(&[("Host", "birds.example"), ("X-Forwarded-Proto", "https")]);
    assert!(proxied.contains("curl https://birds.example/health"));
    let marked = page(&[("X-Forwarded-Proto", "\"><script>")]);
    assert!(marked.contains("curl http://") && !marked.contains("<script"));
    // What is asked for by GET is there, except what this server was started without.
    let mut asked = 0;
    for line in own.lines().map(|line| line.replace("&amp;", "&")) {
        let Some((_, path)) = line.split_once(&format!("http://{}", server.address)) else { continue };
        if line.contains(" -F ") || line.contains(" -d ") || line.contains(" -X ") || !line.contains("curl") {
            continue;
        }
        let path = path.trim_end_matches("</pre>").trim_end_matches('\'');
        assert_eq!(server.get(path).status, 200, "{path}");
        asked += 1;
    }
    assert!(asked >= 14, "{asked}");
}
