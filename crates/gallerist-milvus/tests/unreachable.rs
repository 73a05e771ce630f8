//! What a user is told when there is no Milvus where one was expected. No server is needed.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use gallerist_milvus::{ConnectOptions, Error, MilvusIndex};

/// The message of an attempt to open a collection at `server`.
fn message(server: &str) -> (String, String) {
    let address = format!("milvus://{server}/birds").parse().unwrap();
    let options = ConnectOptions {
        connect_timeout: Duration::from_millis(700),
        timeout: Duration::from_millis(700),
        ..ConnectOptions::default()
    };
    let error = MilvusIndex::open(&address, options).err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    (error.to_string(), error.hint().unwrap())
}

/// A port behind which every connection is answered with `answer`, after something was asked.
fn answering(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer);
        }
    });
    server
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (text, hint) = message(&free.to_string());
    assert_eq!(text, format!("cannot reach Milvus at {free}: the connection was refused"));
    assert!(hint.starts_with("is the server running"), "{hint}");
}

#[test]
fn a_host_that_does_not_exist_is_named() {
    let (text, hint) = message("no-such-host.invalid:19530");
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
fn a_web_server_is_not_taken_for_milvus() {
    let server = answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let (text, hint) = message(&server);
    assert!(text.contains("does not speak gRPC"), "{text}");
    assert!(hint.contains("19530"), "{hint}");
}

#[test]
fn a_server_that_hangs_up_or_speaks_nonsense_is_no_milvus() {
    for answer in [&b""[..], b"SSH-2.0-OpenSSH_9.2\r\n", &[0; 64]] {
        let (text, _) = message(&answering(answer));
        assert!(text.contains("broke") || text.contains("does not speak gRPC"), "{text}");
    }
}
