//! The server: calls of its API with any address and JSON, forms with uploads, bytes that need not be HTTP, and the file of
//! tags and selections next to its gallery. A whole server runs in the process, with a small index, tags and images, and is reached through the loopback device.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use gallerist_data::Image;
use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::index::{ExactIndex, Index, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_serve::{Contents, Embedder, Gallery, Images, Options, Server, TextVector};

use crate::cost::{Limit, measured};
use crate::goals::reached;
use crate::scratch;

const TOKEN: &str = "secret";

/// The index that the server shows.
const GALLERY: &str = "gallery.index";

/// The border between the parts of a form.
const BORDER: &str = "X";

/// A gallery may show three images in 16 tokens of JSON; an upload may have the pixels of the largest image, which is decoded
/// as [`Limit::PICTURE`] says.
const REQUEST: Limit =
    Limit { memory: 64 << 20, time: Duration::from_millis(500), memory_of_byte: 400, ..Limit::TEXT };

/// The most bytes that an uploaded picture may decode to.
const LARGEST_PICTURE: u64 = 256 << 20;

/// Sees the mean grey and the size.
struct Grey;

impl Embedder for Grey {
    fn dimensions(&self) -> usize {
        2
    }

    fn fingerprint(&self) -> &str {
        "grey"
    }

    fn embed(&self, image: &Image) -> Result<Vec<f32>, String> {
        let sum: f64 = image.pixels().iter().map(|&value| f64::from(value)).sum();
        Ok(vec![(sum / image.pixels().len() as f64) as f32, 1.0 + image.width() as f32])
    }

    fn has_text(&self) -> bool {
        true
    }

    fn embed_text(&self, text: &str) -> Result<TextVector, String> {
        Ok(TextVector { vector: vec![text.len() as f32, 1.0], cut_to: None })
    }
}

fn contents() -> Contents {
    let rows = 6;
    let images = scratch::path("images");
    std::fs::create_dir_all(&images).expect("a folder");
    for i in 0..rows {
        scratch::file(&format!("images/{i}.bmp"), &scratch::picture(40 * i as u8));
    }
    let values = (0..rows).flat_map(|i| [40.0 * i as f32, 4.0]).collect();
    let columns = vec![
        Column::infer("price", ["1.5", "", "-3", "7", "1e3", "0"]).expect("a column"),
        Column::infer("tags", ["a|b", "", "c", "a", "b", "c|a"]).expect("a column"),
    ];
    let list = |text: &dyn Fn(usize) -> String| Some((0..rows).map(text).collect());
    let set = EmbeddingSet {
        labels: list(&|i| ["a", "b|c", "d"][i % 3].to_owned()),
        paths: list(&|i| format!("{i}.bmp")),
        cameras: list(&|i| (i % 2).to_string()),
        columns: Columns::new(columns).expect("columns"),
        model: Some("grey".to_owned()),
        ..Matrix::new(rows, 2, values).expect("a matrix").into()
    };
    let path = scratch::path(GALLERY);
    let mut index = ExactIndex::new(2, Metric::Cosine).expect("an index");
    index.upsert(&Items::from_set(set).expect("items")).expect("added");
    index.save(&path).expect("written");
    Contents {
        images: Some(Images::open(&images, 1 << 20, None).expect("images")),
        embedder: Some(Arc::new(Grey)),
        ..Gallery::open(&path, true).expect("an index").into()
    }
}

/// The address of the server, which runs until the process ends.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let tokens = vec![TOKEN.parse().expect("a token")];
        let mut options = Options { tokens, threads: 1, upload_bytes: 1 << 20, ..Options::default() };
        options.address.set_port(0);
        let server = Server::bind(contents(), options).expect("a free port");
        let address = server.address().expect("an address");
        std::thread::spawn(move || server.run());
        // The analysis is computed in the background.
        for call in ["map", "failures", "confusions", "duplicates"] {
            while exchange(address, request("GET", &format!("/api/v1/{call}"), "", &[]).as_slice(), true)
                .windows(11)
                .any(|window| window == b"\"computing\"")
            {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        address
    })
}

fn request(method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n");
    request += &format!("Authorization: Bearer {TOKEN}\r\n");
    if !content_type.is_empty() {
        request += &format!("Content-Type: {content_type}\r\n");
    }
    request += &format!("Content-Length: {}\r\n\r\n", body.len());
    [request.as_bytes(), body].concat()
}

/// Sends bytes and returns the answer.
fn exchange(address: SocketAddr, bytes: &[u8], answers: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    // A server that refuses need not read all of it.
    let _ = stream.write_all(bytes);
    if !answers {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // It has not read everything when it closes.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("no answer: {error}"),
    }
    answer
}

/// Sends bytes and compares what the answer cost with the limit for an input of `length` bytes and `units`.
fn ask(bytes: &[u8], length: usize, units: u64, answers: bool) -> Vec<u8> {
    // The measurement needs a process in which nothing else runs.
    static ONE: Mutex<()> = Mutex::new(());
    let address = address();
    let _guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (answer, spent) = measured(|| exchange(address, bytes, answers));
    spent.check(Limit { ns_of_unit: 500, memory_of_unit: 6, ..REQUEST }, length, units);
    answer
}

/// Status and body of an answer, which must be there.
fn parsed(answer: &[u8]) -> (u16, &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer of HTTP: {:.200}", text));
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("the end of the headers");
    (status, &answer[end + 4..])
}

/// Checks an answer and returns its status.
fn check(answer: &[u8]) -> u16 {
    let (status, body) = parsed(answer);
    let text = String::from_utf8_lossy(body);
    // 501: this server cannot reload; 503: too much at once.
    assert!(status < 500 || matches!(status, 501 | 503), "status {status}: {text:.500}");
    let headers = String::from_utf8_lossy(&answer[..answer.len() - body.len()]).to_lowercase();
    if headers.contains("content-type: application/json") && !headers.contains("transfer-encoding") {
        let value: Result<serde_json::Value, _> = serde_json::from_slice(body);
        assert!(value.is_ok(), "the answer is not JSON: {text:.500}");
    }
    status
}

/// A line with method and address, and the JSON after it.
pub(super) fn api(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let body = bytes.get(end + 1..).unwrap_or(&[]);
    let Ok(line) = std::str::from_utf8(&bytes[..end]) else { return };
    let Some((method, path)) = line.split_once(' ') else { return };
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !matches!(method, "GET" | "POST" | "DELETE") || !is_path || path.contains('#') {
        return;
    }
    let request = request(method, path, "application/json", body);
    let status = check(&ask(&request, request.len(), 0, true));
    reached(if status < 300 { "done" } else { "refused" });
}

/// A form: the first byte chooses between a search and a new item.
pub(super) fn multipart(bytes: &[u8]) {
    let Some((&first, body)) = bytes.split_first() else { return };
    let path = if first & 1 == 0 { "/api/v1/search/upload" } else { "/api/v1/items" };
    let content_type = format!("multipart/form-data; boundary={BORDER}");
    let request = request("POST", path, &content_type, body);
    if check(&ask(&request, request.len(), LARGEST_PICTURE, true)) < 300 {
        reached(if first & 1 == 0 { "search" } else { "item" });
    }
}

/// Bytes on a connection, which the client ends. The server must answer the next request.
pub(super) fn http(bytes: &[u8]) {
    let answer = ask(bytes, bytes.len(), LARGEST_PICTURE, false);
    match answer.get(9..12) {
        Some(b"200") => reached("done"),
        Some(b"400") => reached("refused"),
        _ => {}
    }
    let (status, _) = parsed(&exchange(address(), &request("GET", "/health", "", &[]), true)).to_owned();
    assert_eq!(status, 200, "the server is no longer healthy");
}

/// The file of tags and selections. A change reads it: a file that is accepted has the change afterwards, any other stays as it
/// is.
pub(super) fn tags(bytes: &[u8]) {
    let address = address();
    let path = scratch::file(&format!("{GALLERY}.tags.json"), bytes);
    let change = request("POST", "/api/v1/saved/tags/fuzz", "application/json", br#"{"add":["1"]}"#);
    let answer = ask(&change, bytes.len(), 0, true);
    if parsed(&answer).0 == 200 {
        reached("changed");
        check(&answer);
        let again = exchange(address, &change, true);
        let (status, list) = parsed(&again);
        assert_eq!(status, 200, "a file that was written is read: {}", String::from_utf8_lossy(list));
    } else {
        reached("refused");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("the file of tags and selections cannot be read"), "{text:.500}");
        assert_eq!(std::fs::read(&path).expect("the file"), bytes, "a file that is refused changes");
    }
    std::fs::remove_file(&path).expect("the file is removed");
}
