//! Servers that only answer clients with a token.

use gallerist_serve::{Options, Token};
use serde_json::Value;

use crate::common::{Fixture, Response, Running, form, options, secret, square};

fn tokens(texts: &[&str]) -> Vec<Token> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn closed(fixture: &Fixture) -> Running {
    let read_tokens = tokens(&["alice:r1", "r2"]);
    Running::start(fixture.contents_in_index(), Options { tokens: secret(), read_tokens, ..options() })
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn ask(server: &Running, method: &str, path: &str, token: &str) -> Response {
    server.send(method, path, &[("Authorization", &bearer(token))], b"")
}

/// The cookie that a sign-in sets, as a browser sends it back.
fn cookie(server: &Running, token: &str) -> String {
    let answer = ask(server, "POST", "/api/v1/session", token);
    assert_eq!(answer.status, 204);
    let set = answer.header("set-cookie");
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax") && !set.contains(token), "{set}");
    set.split(';').next().unwrap().to_owned()
}

#[test]
fn every_call_but_health_and_the_files_of_the_page_needs_a_token() {
    let fixture = Fixture::new();
    let server = closed(&fixture);
    let id = ask(&server, "GET", "/api/v1/items", "r1").json()["items"][0]["id"].as_str().unwrap().to_owned();
    let api = ask(&server, "GET", "/openapi.json", "r2").json();
    assert_eq!(api["security"], serde_json::json!([{"token": []}]));
    let mut asked = 0;
    for (path, calls) in api["paths"].as_object().unwrap() {
        for method in calls.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let is_open = ["/health", "/ready", "/api/v1/session"].contains(&path.as_str());
            let path = path.replace("{id}", &id).replace("{kind}", "tags").replace("{name}", "a");
            for token in ["", "r", "secre", "alice:r1"] {
                let answer = ask(&server, &method, &path, token);
                assert_eq!(answer.status == 401, !is_open || method == "POST", "{method} {path} {token}");
                if answer.status == 401 {
                    assert_eq!(answer.header("www-authenticate"), "Bearer");
                    assert!(answer.header("set-cookie").is_empty());
                }
            }
            let status = ask(&server, &method, &path, "r1").status;
            match needs_writer(&method, &path) {
                true => assert!([400, 401].contains(&status), "{method} {path}: {status}"),
                false => assert_ne!(status, 401, "{method} {path}"),
            }
            asked += 1;
        }
    }
    assert!(asked >= 30, "{asked}");
    for path in
        ["/openapi.json", "/api", "/?gallery=none", "/app.js?gallery=none", "/api/v1/nothing?gallery=none"]
    {
        let answer = server.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert!(!String::from_utf8(answer.body).unwrap().contains("the galleries"), "{path}");
    }
    for path in ["/", "/app.js", "/views/map.js", "/style.css", "/health", "/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let examples = String::from_utf8(ask(&server, "GET", "/api", "secret").body).unwrap();
    let curls = |with: &str| examples.matches(with).count();
    assert_eq!(curls("curl "), curls("curl -H \"Authorization"), "{examples}");
}

/// Calls that a token for reading does not open.
fn needs_writer(method: &str, path: &str) -> bool {
    let changes = path == "/api/v1/items" || path.starts_with("/api/v1/saved/") || path == "/api/v1/reload";
    path != "/api/v1/session" && (method == "DELETE" || (method == "POST" && changes))
}

#[test]
fn a_token_for_reading_searches_and_changes_nothing() {
    let fixture = Fixture::new();
    let server = closed(&fixture);
    let (content_type, body) = form(&[("image", Some("new.png"), &square([1, 2, 3], 2))]);
    let upload = |path: &str, token: &str| {
        let headers = [("Content-Type", content_type.as_str()), ("Authorization", &bearer(token))];
        server.send("POST", path, &headers, &body).status
    };
    for (token, searched, added) in
        [("r1", 200, 401), ("r2", 200, 401), ("r3", 401, 401), ("secret", 200, 201)]
    {
        assert_eq!(upload("/api/v1/search/upload", token), searched, "{token}");
        assert_eq!(upload("/api/v1/items", token), added, "{token}");
    }
    let authorized = |token: &str| ask(&server, "GET", "/api/v1/saved", token).json()["authorized"].clone();
    assert_eq!((authorized("r1"), authorized("secret")), (Value::Bool(false), Value::Bool(true)));
}

#[test]
fn the_cookie_of_a_page_reads_and_changes_nothing() {
    let fixture = Fixture::new();
    let server = closed(&fixture);
    let id = ask(&server, "GET", "/api/v1/items", "r1").json()["items"][0]["id"].as_str().unwrap().to_owned();
    for token in ["r1", "secret"] {
        let cookie = cookie(&server, token);
        let with = |method: &str, path: &str, cookie: &str| {
            server.send(method, path, &[("Cookie", cookie)], b"").status
        };
        let thumbnail = format!("/thumbnails/{id}");
        assert_eq!(with("GET", &thumbnail, &cookie), 200);
        assert_eq!(with("GET", &thumbnail, &format!("other=1; {cookie}; a=b")), 200);
        assert_eq!(with("DELETE", &format!("/api/v1/items/{id}"), &cookie), 401);
        assert_eq!(with("POST", "/api/v1/reload", &cookie), 401);
        assert_eq!(with("POST", "/api/v1/session", &cookie), 401, "no cookie makes another one");
        let (name, value) = cookie.split_once('=').unwrap();
        assert_eq!(ask(&server, "GET", &thumbnail, value).status, 401, "it is no token");
        for wrong in
            [&cookie[..cookie.len() - 1], &format!("{name}={}", "0".repeat(64)), &format!("other={value}")]
        {
            assert_eq!(with("GET", &thumbnail, wrong), 401, "{wrong}");
        }
        // A page of another site cannot use it.
        let foreign = [("Cookie", cookie.as_str()), ("Sec-Fetch-Site", "cross-site")];
        assert_eq!(server.send("GET", &thumbnail, &foreign, b"").status, 403);
    }
    let gone = server.send("DELETE", "/api/v1/session", &[("Cookie", &cookie(&server, "r1"))], b"");
    assert_eq!(gone.status, 204);
    assert_eq!(
        gone.headers
            .iter()
            .filter(|(name, value)| name == "set-cookie" && value.contains("Max-Age=0"))
            .count(),
        3
    );
    let other = Running::start(fixture.contents(), Options { read_tokens: tokens(&["r9"]), ..options() });
    assert_eq!(other.send("GET", "/api/v1/items", &[("Cookie", &cookie(&server, "r1"))], b"").status, 401);
}

#[test]
fn without_tokens_for_reading_everybody_reads() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents_in_index(), Options { tokens: secret(), ..options() });
    assert_eq!(ask(&server, "GET", "/api/v1/items", "nonsense").status, 200);
    let api = server.json("/openapi.json");
    assert!(api.get("security").is_none());
    let same = Options { tokens: secret(), read_tokens: secret(), ..options() };
    let Err(error) = gallerist_serve::Server::bind(fixture.contents(), same) else {
        panic!("two of one token")
    };
    assert!(error.to_string().contains("are the same"), "{error}");
}
