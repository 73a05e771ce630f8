//! Servers with a certificate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gallerist_serve::{Gallery, Options, Server, Tls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::{Fixture, Running, options, secret};

/// Writes a new certificate for `localhost` and its key.
fn certify(folder: &Path) -> (Tls, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&tls.certificate, cert.pem()).unwrap();
    std::fs::write(&tls.key, signing_key.serialize_pem()).unwrap();
    (tls, cert.der().clone())
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts one certificate.
fn connect(server: &Running, trusted: &CertificateDer<'static>) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(client, server.connect())
}

fn ask(stream: &mut Stream, request: &str) -> std::io::Result<String> {
    stream.write_all(request.replace('\n', "\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

const HEALTH: &str = "GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n";

#[test]
fn a_client_that_trusts_the_certificate_is_answered_and_plain_http_is_not() {
    let fixture = Fixture::new();
    let (tls, certificate) = certify(&fixture.path(""));
    let (tokens, read_tokens) = (secret(), vec!["r1".parse().unwrap()]);
    let options =
        Options { tls: Some(tls), tokens, read_tokens, upload_time: Duration::from_millis(300), ..options() };
    let server = Server::bind(fixture.contents_in_index(), options).unwrap();
    assert!(server.url().unwrap().starts_with("https://127.0.0.1:"));
    let server = Running::of(server);
    assert!(ask(&mut connect(&server, &certificate), HEALTH).unwrap().starts_with("HTTP/1.1 200"));
    // The cookie of a page is sent over TLS only, and the examples name the scheme.
    let sign_in = "POST /api/v1/session HTTP/1.1\nHost: localhost\nAuthorization: Bearer r1\nConnection: close\nContent-Length: 0\n\n";
    let answer = ask(&mut connect(&server, &certificate), sign_in).unwrap();
    assert!(answer.contains("SameSite=Lax; Secure\r\n"), "{answer}");
    let api = "GET /api HTTP/1.1\nHost: localhost\nAuthorization: Bearer r1\nConnection: close\n\n";
    assert!(ask(&mut connect(&server, &certificate), api).unwrap().contains("https://localhost/api"));
    // Another certificate is not trusted; plain HTTP, nonsense and a client that says nothing get no answer.
    let (_, other) = certify(&fixture.path("images"));
    assert!(ask(&mut connect(&server, &other), HEALTH).is_err());
    for bytes in [HEALTH.replace('\n', "\r\n").as_bytes(), &[0x16, 3, 1, 0xff, 0xff, 1], b""] {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"));
    }
    assert!(ask(&mut connect(&server, &certificate), HEALTH).unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn a_new_certificate_is_used_after_a_reload_and_a_broken_one_is_not() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let (tls, old) = certify(&fixture.path(""));
    let options = Options { tls: Some(tls.clone()), ..options() };
    let server = Server::bind(Gallery::open(&file, false).unwrap().into(), options).unwrap();
    let server = server.with_reopen(move |_| Ok(Gallery::open(&file, false)?.into()));
    let reload = server.reload().unwrap();
    let server = Running::of(server);
    let answers = |trusted| ask(&mut connect(&server, trusted), HEALTH).is_ok();
    let mut kept = connect(&server, &old);
    let keep_alive = HEALTH.replace("Connection: close\n", "");
    kept.write_all(keep_alive.replace('\n', "\r\n").as_bytes()).unwrap();
    assert!(kept.read(&mut [0; 1000]).unwrap() > 0);
    let (_, new) = certify(&fixture.path(""));
    assert!(answers(&old) && !answers(&new));
    reload.now(false);
    assert!(!answers(&old) && answers(&new));
    // A connection that is open stays.
    assert!(ask(&mut kept, HEALTH).unwrap().starts_with("HTTP/1.1 200"));
    std::fs::write(&tls.certificate, "no certificate").unwrap();
    reload.now(false);
    assert!(answers(&new));
}

#[test]
fn files_that_are_no_certificate_and_key_are_refused_at_the_start() {
    let fixture = Fixture::new();
    let refused = |tls: &Tls| {
        let options = Options { tls: Some(tls.clone()), ..options() };
        let Err(error) = Server::bind(fixture.contents(), options) else { panic!("it is refused") };
        error.to_string()
    };
    let (tls, _) = certify(&fixture.path(""));
    let missing = Tls { key: fixture.path("none.pem"), ..tls.clone() };
    assert!(refused(&missing).contains("the key") && refused(&missing).contains("none.pem"));
    let swapped = Tls { certificate: tls.key.clone(), key: tls.certificate.clone() };
    assert!(refused(&swapped).contains("it has no certificate in PEM"), "{}", refused(&swapped));
    let (other, _) = certify(&fixture.path("images"));
    let mixed = Tls { key: other.key, ..tls };
    assert!(refused(&mixed).contains("cannot be used"), "{}", refused(&mixed));
}
