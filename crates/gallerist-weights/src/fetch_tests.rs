//! Tests with a local server that can misbehave.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::*;

/// A server for as many connections as there are answers; it gives back the `Range` of each request.
struct Server {
    url: String,
    requests: JoinHandle<Vec<Option<String>>>,
}

type Answer = Box<dyn FnOnce(&mut dyn Write) + Send>;

fn serve(answers: Vec<Answer>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/models/w.pth", listener.local_addr().unwrap());
    let requests = std::thread::spawn(move || {
        let answer = |answer: Answer| {
            let (mut stream, _) = listener.accept().unwrap();
            let range = read_request(&mut stream);
            answer(&mut stream);
            range
        };
        answers.into_iter().map(answer).collect()
    });
    Server { url, requests }
}

fn read_request(stream: &mut impl Read) -> Option<String> {
    let lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let range = |line: &String| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("range").then(|| value.to_string())
    };
    lines.iter().find_map(range)
}

/// An answer with these headers, of whose body only so many bytes are sent.
fn answer(status: &str, headers: &str, body: &[u8]) -> Answer {
    let head = format!("HTTP/1.1 {status}\r\n{headers}\r\n");
    let body = body.to_vec();
    Box::new(move |stream| {
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        stream.flush().unwrap();
    })
}

fn whole(body: &[u8], sent: usize) -> Answer {
    answer("200 OK", &format!("Content-Length: {}\r\n", body.len()), &body[..sent])
}

fn rest(body: &[u8], from: usize) -> Answer {
    let n = body.len();
    let headers = format!("Content-Length: {}\r\nContent-Range: bytes {from}-{}/{n}\r\n", n - from, n - 1);
    answer("206 Partial Content", &headers, &body[from..])
}

fn data() -> Vec<u8> {
    (0..100_000u32).flat_map(|i| i.to_le_bytes()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    gallerist_util::hex::sha256(bytes)
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }
    fn out(&self) -> PathBuf {
        self.folder.path().join("w.pth")
    }
    fn part(&self) -> PathBuf {
        self.folder.path().join("w.pth.part")
    }
    fn fetch(&self, url: &str, sha256: &str) -> Result<Fetched> {
        fetch(url, sha256, self.folder.path(), &mut |_, _| {})
    }
}

#[test]
fn a_file_comes_whole_and_is_not_fetched_again() {
    let (place, data) = (Place::new(), data());
    let server = serve(vec![whole(&data, data.len())]);
    let mut seen = Vec::new();
    let fetched =
        fetch(&server.url, &sha256(&data)[..8], place.folder.path(), &mut |done, all| seen.push((done, all)));
    let fetched = fetched.unwrap();
    assert_eq!(fs::read(place.out()).unwrap(), data);
    assert_eq!(fetched.sha256, sha256(&data));
    assert_eq!((fetched.bytes, fetched.kept), (data.len() as u64, 0));
    assert_eq!(seen.last(), Some(&(data.len() as u64, Some(data.len() as u64))));
    assert_eq!(server.requests.join().unwrap(), [None]);
    assert!(!place.part().exists());
    // Nobody listens any more.
    assert_eq!(place.fetch(&server.url, &sha256(&data)).unwrap().kept, data.len() as u64);
}

#[test]
fn a_broken_transfer_is_taken_up_where_it_stopped() {
    let (place, data) = (Place::new(), data());
    let server = serve(vec![whole(&data, 70_000), rest(&data, 70_000)]);
    place.fetch(&server.url, &sha256(&data)).unwrap();
    assert_eq!(fs::read(place.out()).unwrap(), data);
    assert_eq!(server.requests.join().unwrap(), [None, Some("bytes=70000-".into())]);
}

#[test]
fn a_later_call_goes_on_with_what_an_earlier_one_left() {
    let (place, data) = (Place::new(), data());
    fs::write(place.part(), &data[..1234]).unwrap();
    let server = serve(vec![rest(&data, 1234)]);
    assert_eq!(place.fetch(&server.url, &sha256(&data)).unwrap().kept, 1234);
    assert_eq!(fs::read(place.out()).unwrap(), data);
    assert_eq!(server.requests.join().unwrap(), [Some("bytes=1234-".into())]);
}

#[test]
fn what_is_left_is_whole_where_the_server_has_nothing_behind_it() {
    let (place, data) = (Place::new(), data());
    fs::write(place.part(), &data).unwrap();
    let server = serve(vec![answer("416 Range Not Satisfiable", "Content-Length: 0\r\n", &[])]);
    place.fetch(&server.url, &sha256(&data)).unwrap();
    assert_eq!(fs::read(place.out()).unwrap(), data);
}

#[test]
fn a_server_that_cannot_resume_sends_the_file_from_its_beginning() {
    let (place, data) = (Place::new(), data());
    fs::write(place.part(), b"something else").unwrap();
    let server = serve(vec![whole(&data, data.len())]);
    place.fetch(&server.url, &sha256(&data)).unwrap();
    assert_eq!(fs::read(place.out()).unwrap(), data);
}

#[test]
fn the_rest_of_another_file_is_thrown_away_and_the_file_fetched_anew() {
    let (place, data) = (Place::new(), data());
    fs::write(place.part(), [7; 50]).unwrap();
    let server = serve(vec![rest(&data, 50), whole(&data, data.len())]);
    assert_eq!(place.fetch(&server.url, &sha256(&data)).unwrap().kept, 0);
    assert_eq!(fs::read(place.out()).unwrap(), data);
    assert_eq!(server.requests.join().unwrap(), [Some("bytes=50-".into()), None]);
}

#[test]
fn a_wrong_checksum_is_refused_with_both_and_leaves_nothing() {
    let (place, data) = (Place::new(), data());
    let server = serve(vec![whole(&data, data.len())]);
    let error = place.fetch(&server.url, "0123456789abcdef").unwrap_err();
    assert!(error.to_string().contains(&sha256(&data)) && error.to_string().contains("0123456789abcdef"));
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0);
}

#[test]
fn another_file_in_its_place_is_not_overwritten() {
    let place = Place::new();
    fs::write(place.out(), b"mine").unwrap();
    let error = place.fetch("http://127.0.0.1:1/w.pth", "0123456789abcdef").unwrap_err();
    assert!(error.to_string().contains("is there and its SHA-256"), "{error}");
    assert_eq!(fs::read(place.out()).unwrap(), b"mine");
}

#[test]
fn chunks_and_redirections_are_followed() {
    let (place, data) = (Place::new(), data());
    let mut chunked = Vec::new();
    for part in data.chunks(33_333) {
        chunked.extend(format!("{:x};name=value\r\n", part.len()).bytes());
        chunked.extend(part);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    let server = serve(vec![
        answer("302 Found", "Location: /elsewhere/w.pth\r\nContent-Length: 0\r\n", &[]),
        answer("200 OK", "Transfer-Encoding: chunked\r\n", &chunked),
    ]);
    place.fetch(&server.url, &sha256(&data)).unwrap();
    assert_eq!(fs::read(place.out()).unwrap(), data);
}

#[test]
fn a_server_that_always_breaks_off_is_given_up_and_what_came_is_kept() {
    let (place, data) = (Place::new(), data());
    let broken = || answer("503 Service Unavailable", "Content-Length: 0\r\n", &[]);
    let server = serve(vec![whole(&data, 999), broken(), broken(), broken()]);
    let error = place.fetch(&server.url, &sha256(&data)).unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
    assert!(error.hint().unwrap().contains("is kept"));
    assert_eq!(fs::read(place.part()).unwrap(), &data[..999]);
}

#[test]
fn what_is_not_there_is_not_tried_again() {
    let place = Place::new();
    let server = serve(vec![answer("404 Not Found", "Content-Length: 0\r\n", &[])]);
    let error = place.fetch(&server.url, "0123456789abcdef").unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
    assert_eq!(server.requests.join().unwrap().len(), 1);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_without_a_checksum_or_address_is_not_fetched() {
    let place = Place::new();
    for (url, sum) in
        [("http://127.0.0.1:1/w", "1234567"), ("http://127.0.0.1:1/w", "xyzxyzxyz"), ("w.pth", "12345678")]
    {
        assert!(matches!(place.fetch(url, sum), Err(Error::Fetch { .. })));
    }
}

/// The address of a server that gives this answer to every encrypted request.
fn serve_encrypted(answer: Vec<u8>) -> String {
    let chain = vec![rustls::pki_types::CertificateDer::from(include_bytes!("testdata/server.der").to_vec())];
    let key = rustls::pki_types::PrivateKeyDer::try_from(include_bytes!("testdata/server.key.der").to_vec())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/w.pth", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream: TcpStream = stream.unwrap();
            let connection = rustls::ServerConnection::new(Arc::new(config.clone())).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut request = [0; 4096];
            if stream.read(&mut request).is_ok() {
                let _ = stream.write_all(&answer);
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    url
}

fn own_root() -> RootCerts {
    let root = ureq::tls::Certificate::from_der(include_bytes!("testdata/root.der"));
    RootCerts::Specific(Arc::new(vec![root.to_owned()]))
}

#[test]
fn an_encrypted_transfer_needs_a_trusted_certificate() {
    let (place, data) = (Place::new(), data());
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", data.len()).into_bytes();
    answer.extend(&data);
    let url = serve_encrypted(answer);
    let transfer = |roots| Transfer::new(&url, &sha256(&data), &place.out(), roots).unwrap();
    let error = transfer(RootCerts::WebPki).run(&mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    transfer(own_root()).run(&mut |_, _| {}).unwrap();
    assert_eq!(fs::read(place.out()).unwrap(), data);
}

#[test]
fn a_redirection_never_gives_up_encryption() {
    let (place, data) = (Place::new(), data());
    let plain = serve(vec![]);
    let head = format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", plain.url);
    let url = serve_encrypted(head.into_bytes());
    let transfer = Transfer::new(&url, &sha256(&data), &place.out(), own_root()).unwrap();
    let error = transfer.run(&mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("https only"), "{error}");
    assert!(!place.out().exists());
}
