//! What a user is told when there is no database where one was expected. No server is needed.
//!
//! The test program that includes this defines `DatabaseIndex`, its type of index, and how the database is named.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use gallerist_database::{ConnectOptions, Error};

use crate::{DatabaseIndex, NAME, PORT, SCHEME};

/// The message of an attempt to open a collection at `server`.
fn message(server: &str) -> (String, String) {
    let address = format!("{SCHEME}://{server}/birds").parse().unwrap();
    let options = ConnectOptions {
        connect_timeout: Duration::from_millis(700),
        timeout: Duration::from_millis(700),
        ..ConnectOptions::default()
    };
    let error = DatabaseIndex::open(&address, options).err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    (error.to_string(), error.hint().unwrap())
}

/// When a server sends its answer: after something was asked, or before, as a server does whose
/// bytes overtake the question's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Asked,
    AtOnce,
}

/// The port of a server that answers every connection with `answer`.
fn answering(answer: &'static [u8], when: When) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if when == When::Asked {
                let _ = stream.read(&mut [0; 1024]);
            }
            let _ = stream.write_all(answer);
            if when == When::AtOnce {
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut [0; 1024]);
            }
        }
    });
    server
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (text, hint) = message(&free.to_string());
    assert_eq!(text, format!("cannot reach {NAME} at {free}: the connection was refused"));
    assert!(hint.starts_with("is the server running"), "{hint}");
}

#[test]
fn a_host_that_does_not_exist_is_named() {
    let (text, hint) = message("no-such-host.invalid:1");
    assert!(text.ends_with("the host `no-such-host.invalid` is not known"), "{text}");
    assert_eq!(hint, "check the host's name");
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (text, _) = message(&listener.local_addr().unwrap().to_string());
    assert!(text.ends_with("no answer within 0.7 s"), "{text}");
}

#[test]
fn a_web_server_is_not_taken_for_a_database() {
    for when in [When::Asked, When::AtOnce] {
        let server = answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", when);
        // Which of the two sides is first varies from one attempt to the next.
        for _ in 0..100 {
            let (text, hint) = message(&server);
            assert!(text.contains("does not speak gRPC"), "{text}");
            assert!(hint.contains(PORT), "{hint}");
        }
    }
}

#[test]
fn a_server_that_hangs_up_or_speaks_nonsense_is_no_database() {
    for answer in [&b""[..], b"SSH-2.0-OpenSSH_9.2\r\n", &[0; 64]] {
        let (text, _) = message(&answering(answer, When::Asked));
        assert!(text.contains("broke") || text.contains("does not speak gRPC"), "{text}");
    }
}

#[test]
fn an_encrypted_connection_to_a_server_without_tls_is_refused() {
    let server = answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", When::Asked);
    let address = format!("{SCHEME}+tls://{server}/birds").parse().unwrap();
    let options = ConnectOptions { timeout: Duration::from_secs(5), ..ConnectOptions::default() };
    let error = DatabaseIndex::open(&address, options).err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let hint = error.hint().unwrap();
    assert!(hint.contains(&format!("{SCHEME}://HOST:PORT/COLLECTION")), "{error}: {hint}");
}
