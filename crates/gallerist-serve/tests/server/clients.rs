//! What one client may take, and that the others are answered.

use std::io::{Read, Write};
use std::net::TcpStream;

use gallerist_serve::{Network, Options};

use crate::common::{Fixture, Response, Running, options, square};

const GET: &[u8] = b"GET /api/v1/labels HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The status of a request that a proxy passes on for a client.
fn through_proxy(server: &Running, forwarded: &str) -> Response {
    server.send("GET", "/api/v1/labels", &[("X-Forwarded-For", forwarded)], b"")
}

fn proxies() -> Vec<Network> {
    vec!["127.0.0.1".parse().unwrap()]
}

#[test]
fn a_client_that_asks_too_often_is_told_when_to_ask_again_and_others_are_answered() {
    let fixture = Fixture::new();
    let server = Running::start(
        fixture.contents(),
        Options { client_requests: 1, trusted_proxies: proxies(), ..options() },
    );
    for _ in 0..5 {
        assert_eq!(through_proxy(&server, "1.1.1.1").status, 200);
    }
    let refused = through_proxy(&server, "6.6.6.6, 1.1.1.1");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.error(), "too many requests from this address");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.header("content-security-policy").starts_with("default-src"));
    assert_eq!(through_proxy(&server, "1.1.1.2").status, 200);
    // What a client writes itself is not believed: of a peer that is no proxy, and before the proxy's own entry.
    let answers = |address: [u8; 4]| {
        let status = |number: usize| {
            let mut stream = server.connect_from(address);
            let head = "GET /api/v1/labels HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
            write!(stream, "{head}X-Forwarded-For: 9.9.9.{number}\r\n\r\n").unwrap();
            Response::read(&mut stream).status
        };
        (0..7).map(status).filter(|status| *status == 200).count()
    };
    assert_eq!(answers([127, 0, 0, 9]), 5);
    // Health is not counted, and the refusals are in the metrics.
    for _ in 0..20 {
        assert_eq!(server.send("GET", "/health", &[("X-Forwarded-For", "1.1.1.1")], b"").status, 200);
    }
    let metrics = server.send("GET", "/metrics", &[("X-Forwarded-For", "1.1.1.3")], b"").body;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("path=\"/api/v1/labels\",status=\"429\"} 3"), "{metrics}");
}

#[test]
fn uploads_have_a_rate_of_their_own_and_are_refused_before_they_are_read() {
    let fixture = Fixture::new();
    let server = Running::start(
        fixture.contents(),
        Options { client_uploads: 1, trusted_proxies: proxies(), ..options() },
    );
    let png = square([1, 2, 3], 2);
    let upload = |client: &str| {
        let fields = [("image", None, png.as_slice())];
        server.post_form("/api/v1/search/upload", &[("X-Forwarded-For", client)], &fields).status
    };
    let statuses: Vec<u16> = (0..7).map(|_| upload("1.1.1.1")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(upload("1.1.1.2"), 200);
    assert_eq!(through_proxy(&server, "1.1.1.1").status, 200, "other requests are not uploads");
    // The body is not waited for.
    let mut stream = server.connect();
    let head = "POST /api/v1/search/upload HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 1.1.1.1\r\n";
    let rest = "Connection: close\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n\r\n";
    stream.write_all([head, rest].concat().as_bytes()).unwrap();
    assert_eq!(Response::read(&mut stream).status, 429);
    let heatmap = "/api/v1/heatmap?query=1&item=2";
    for method in ["GET", "HEAD"] {
        let answer = server.send(method, heatmap, &[("X-Forwarded-For", "1.1.1.1")], b"");
        assert_eq!(answer.status, 429, "{method}");
    }
    let similar = "/api/v1/items/7/similar?%72egion=0,0,1,1";
    assert_eq!(server.send("GET", similar, &[("X-Forwarded-For", "1.1.1.1")], b"").status, 429);
}

#[test]
fn a_client_with_all_of_its_connections_open_leaves_the_others_theirs() {
    let fixture = Fixture::new();
    let server =
        Running::start(fixture.contents(), Options { client_connections: 20, connections: 40, ..options() });
    let is_open = |stream: &mut TcpStream| {
        stream.write_all(GET).is_ok() && stream.read(&mut [0; 12]).is_ok_and(|read| read == 12)
    };
    // Connections that send half a header and wait.
    let mut held: Vec<TcpStream> = (0..20).map(|_| server.connect_from([127, 0, 0, 2])).collect();
    held.iter_mut().for_each(|stream| stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap());
    for _ in 0..30 {
        assert!(!is_open(&mut server.connect_from([127, 0, 0, 2])));
    }
    assert!(is_open(&mut server.connect()));
    drop(held);
    while !is_open(&mut server.connect_from([127, 0, 0, 2])) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
