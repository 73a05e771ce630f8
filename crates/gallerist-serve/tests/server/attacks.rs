//! What attackers send: many and slow connections, messages with two meanings, deep JSON.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use gallerist_serve::Options;

use crate::common::{Fixture, Response, Running, options};

const GET: &[u8] = b"GET /api/v1/labels HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Everything that the server sends until it closes the connection, or says nothing for a second.
fn all_of(server: &Running, request: &str) -> String {
    let mut stream = server.connect();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A proxy and the server may find different ends of such a message. The rest would be a request that the proxy has not seen.
#[test]
fn a_message_with_two_ends_is_the_last_one_of_its_connection() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let hidden = "GET /health?hidden HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let post = "POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let chunked = format!("0\r\n\r\n{hidden}");
    let length = chunked.len();
    let cases = [
        format!("{post}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
        format!("{post}Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{chunked}"),
        format!("{post}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
        format!("{post}Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n{chunked}"),
        format!("{post}Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n{chunked}"),
        format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{chunked}"),
        format!("{post}Transfer-Encoding: identity, chunked, chunked\r\nContent-Length: 5\r\n\r\n{chunked}"),
        format!("{post}X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{chunked}"),
        format!("{post}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{chunked}"),
        format!("{post}Content-Length: 0,{length}\r\n\r\n{chunked}"),
        format!("{post}Content-Length: 0x{length}\r\n\r\n{chunked}"),
        format!(
            "POST /api/v1/search HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"
        ),
    ];
    for request in &cases {
        let answers = all_of(&server, request);
        assert!(answers.matches("HTTP/1.").count() <= 1, "{request}\n{answers}");
    }
    // Chunks that only some programs accept.
    for body in ["0x0\r\n\r\n", " 0\r\n\r\n", "-0\r\n\r\n", "0\n\n", "0;a\r\r\n\r\n", "2\r\n{}0\r\n\r\n"] {
        let answers = all_of(&server, &format!("{post}Transfer-Encoding: chunked\r\n\r\n{body}{hidden}"));
        assert!(!answers.contains("HTTP/1.1 200"), "{body:?}\n{answers}");
    }
    // The same connection serves clear messages one after the other.
    let clear = format!("{post}Content-Length: 2\r\n\r\n{{}}{hidden}{hidden}");
    assert_eq!(all_of(&server, &clear).matches("HTTP/1.1 200").count(), 2);
}

#[test]
fn characters_that_split_a_line_or_a_header_are_refused() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    for head in [
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\rY: b\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX Y: a\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n: a\r\n\r\n",
        "GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n",
        "GET /health\r\n\r\n",
        "G\0T /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let answer = all_of(&server, head);
        assert!(!answer.contains(" 200 "), "{head:?}\n{answer}");
    }
    // What a client sends does not become a header of the answer.
    let answer = all_of(
        &server,
        "GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert!(
        answer.starts_with("HTTP/1.1 404") && !answer.to_lowercase().contains("\r\nset-cookie"),
        "{answer}"
    );
}

/// The names by which a page of another site could reach the server.
#[test]
fn hosts_that_only_look_like_this_machine_are_refused() {
    let fixture = Fixture::new();
    let hosts = vec!["gallery.example".to_owned()];
    let server = Running::start(fixture.contents(), Options { hosts, ..options() });
    let status = |host: &str| server.send("GET", "/api/v1/labels", &[("Host", host)], b"").status;
    for host in
        ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080", "gallery.example", "Gallery.Example:443"]
    {
        assert_eq!(status(host), 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "evil.example:80:localhost",
        "localhost:80@evil.example",
        "gallery.example.evil.example",
        "xgallery.example",
        "127.0.0.1.nip.io",
        "localhost.",
        "gallery.example/",
        "localhost, evil.example",
        "localhost evil.example",
        "[::1",
        "",
        "%6cocalhost",
    ] {
        assert!([400, 421].contains(&status(host)), "{host}: {}", status(host));
    }
    // Other headers do not change the name.
    let forwarded =
        [("Host", "evil.example"), ("X-Forwarded-Host", "localhost"), ("Forwarded", "host=localhost")];
    assert_eq!(server.send("GET", "/api/v1/labels", &forwarded, b"").status, 421);
}

#[test]
fn forms_of_other_sites_are_refused_by_their_kind_and_their_origin() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let body = br#"{"texts": ["red"]}"#;
    // The kinds that a form or a script may send without asking first (CORS).
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
        for path in ["/api/v1/search", "/api/v1/items/lookup"] {
            assert_eq!(
                server.send("POST", path, &[("Content-Type", kind)], body).status,
                415,
                "{path} {kind}"
            );
        }
    }
    let json = ("Content-Type", "application/json");
    for origin in [
        "null",
        "http://evil.example",
        "http://localhost.evil.example",
        "https://localhost:1",
        "http://[::1]",
        "",
    ] {
        let answer = server.send("POST", "/api/v1/search", &[json, ("Origin", origin)], body);
        assert_eq!(answer.status, 403, "{origin}");
    }
    // No answer permits another site to read it, and asking first is refused.
    let asks = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    for answer in [server.send("OPTIONS", "/api/v1/search", &asks, b""), server.get("/api/v1/labels")] {
        assert!(
            answer.headers.iter().all(|(name, _)| !name.starts_with("access-control")),
            "{:?}",
            answer.headers
        );
    }
}

#[test]
fn deep_and_wide_json_is_refused_or_answered_in_little_time() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let post = |body: String| {
        let json = ("Content-Type", "application/json");
        server.send("POST", "/api/v1/search", &[json], body.as_bytes()).status
    };
    let deep = 1 << 20;
    assert_eq!(post("[".repeat(deep)), 400);
    assert_eq!(post(format!("{}{}", "[".repeat(deep), "]".repeat(deep))), 400);
    assert_eq!(post(format!("{}1{}", "{\"ids\":".repeat(deep), "}".repeat(deep))), 400);
    assert_eq!(post(format!("{{\"vectors\": [{}]}}", "[1],".repeat(deep) + "[1]")), 400);
    assert_eq!(post(format!("{{\"texts\": [\"{}\"]}}", "\\u0041".repeat(deep))), 422);
    assert_eq!(post(format!("{{\"k\": 1{}}}", "0".repeat(deep))), 400);
    assert_eq!(post(format!("{{\"ids\": [{}]}}", "\"1\",".repeat(deep) + "\"1\"")), 400);
    // A condition is parsed, too.
    for condition in ["(".repeat(4000), "not ".repeat(1000) + "a = 1", "a = 1 or ".repeat(400) + "a = 1"] {
        let status = post(serde_json::json!({"texts": ["red"], "where": condition}).to_string());
        assert!([200, 400, 422].contains(&status), "{status}");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_header_or_a_body_that_comes_byte_by_byte_is_given_up() {
    let fixture = Fixture::new();
    let limit = Duration::from_millis(500);
    let server = Running::start(fixture.contents(), Options { time: limit, upload_time: limit, ..options() });
    let post = "POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n";
    let upload = "POST /api/v1/search/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 10000\r\n\r\n--x\r\n";
    for (start, rest) in [("GET /health HTTP/1.1\r\nX: ", b'a'), (post, b' '), (upload, b'a')] {
        let mut stream = server.connect();
        stream.write_all(start.as_bytes()).unwrap();
        let begin = Instant::now();
        let mut reader = stream.try_clone().unwrap();
        let answer = std::thread::spawn(move || {
            let mut answer = Vec::new();
            let _ = reader.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        });
        while !answer.is_finished() && begin.elapsed() < Duration::from_secs(20) {
            let _ = stream.write_all(&[rest]);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(answer.is_finished(), "{start}");
        assert!(!answer.join().unwrap().contains(" 200 "), "{start}");
    }
}

/// Connections that the test may open: both of their ends belong to this process.
fn as_many_as(wanted: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = limits.lines().find(|line| line.starts_with("Max open files"));
    let soft = open.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok()).unwrap_or(256);
    wanted.min(soft.saturating_sub(1000) / 2)
}

fn answers(stream: &mut TcpStream) -> bool {
    stream.write_all(GET).is_ok() && Response::try_read(stream).is_some_and(|response| response.status == 200)
}

#[test]
fn ten_thousand_connections_of_one_client_leave_room_for_another() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let mut held = Vec::new();
    for number in 0..10_000 {
        let mut stream = server.connect();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHo");
        // Those that the server has closed are no burden to it.
        if number < as_many_as(3000) {
            held.push(stream);
        }
    }
    for _ in 0..20 {
        assert!(answers(&mut server.connect_from([127, 0, 0, 9])));
    }
    let mut metrics = server.connect_from([127, 0, 0, 9]);
    metrics.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let text = String::from_utf8(Response::read(&mut metrics).body).unwrap();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    // The server may not have noticed yet that the other client has closed its 20 connections.
    let others = 20 + 1;
    assert!(value("gallerist_connections") <= 256 + others, "{}", value("gallerist_connections"));
    assert!(value("gallerist_connections_refused_total") >= 9000);
}

#[test]
fn a_server_for_ten_thousand_connections_answers_while_all_of_them_are_open() {
    let fixture = Fixture::new();
    let many = as_many_as(10_000);
    let limits = Options { connections: many + 10, client_connections: many + 10, ..options() };
    let server = Running::start(fixture.contents(), limits);
    let held: Vec<TcpStream> = (0..many).map(|_| server.connect()).collect();
    for _ in 0..20 {
        assert!(answers(&mut server.connect()));
    }
    drop(held);
}
