//! Searches by item over so many connections at once: `load ADDRESS CONNECTIONS SECONDS [UPLOAD]`.
//!
//! Prints searches per second, the median and the 99th percentile of the time to an answer, and the
//! errors, as one line of JSON. With an image it is uploaded instead. `bench/serve/run.py` runs it.
//!
//! `load make FILE ROWS DIMENSIONS` writes a gallery of random rows.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gallerist_retrieval::{EmbeddingSet, Matrix};
use serde_json::Value;

/// Results per search.
const K: usize = 20;

/// Items that are searched with, from all over the gallery.
const PAGES: usize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<Value, Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [make, file, rows, dimensions] = &args[..]
        && make == "make"
    {
        EmbeddingSet::from(random(rows.parse()?, dimensions.parse()?)?).save(file)?;
        return Ok(Value::from(file.as_str()));
    }
    let [address, connections, seconds, image @ ..] = &args[..] else {
        return Err("wanted ADDRESS CONNECTIONS SECONDS [UPLOAD]".into());
    };
    let (connections, seconds): (usize, f64) = (connections.parse()?, seconds.parse()?);
    let requests = match image {
        [] => by_item(address)?,
        [image, ..] => vec![upload(address, Path::new(image))?],
    };
    // Each begins once to fill the caches.
    for request in requests.iter().take(20) {
        Client::connect(address)?.ask(request)?;
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    let done: Vec<(Vec<Duration>, usize)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..connections)
            .map(|client| {
                let requests = &requests;
                scope.spawn(move || search_until(end, address, requests, client))
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no client panics")).collect()
    });
    let wall = begin.elapsed().as_secs_f64();
    let errors: usize = done.iter().map(|(_, errors)| errors).sum();
    let mut times: Vec<Duration> = done.into_iter().flat_map(|(times, _)| times).collect();
    times.sort_unstable();
    let percentile = |share: f64| {
        let at = (times.len() as f64 * share) as usize;
        times.get(at.min(times.len().saturating_sub(1))).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    Ok(serde_json::json!({
        "connections": connections,
        "searches": times.len(),
        "per_second": times.len() as f64 / wall,
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "errors": errors,
    }))
}

/// Values from -1 to 1, the same every time.
fn random(rows: usize, dimensions: usize) -> gallerist_retrieval::Result<Matrix> {
    let mut state = 1u64;
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    Matrix::new(rows, dimensions, (0..rows * dimensions).map(|_| next()).collect())
}

/// The times of the searches that were answered, and the number of the others.
fn search_until(end: Instant, address: &str, requests: &[Vec<u8>], client: usize) -> (Vec<Duration>, usize) {
    let (mut times, mut errors) = (Vec::new(), 0);
    let mut connection = None;
    // Clients go through the requests from different places.
    for at in (client * 7919..).map(|at| at % requests.len()) {
        let begin = Instant::now();
        if begin >= end {
            break;
        }
        let answered = match connection.take() {
            Some(connection) => Ok(connection),
            None => Client::connect(address),
        }
        .and_then(|mut client| client.ask(&requests[at]).map(|()| client));
        match answered {
            Ok(client) => {
                times.push(begin.elapsed());
                connection = Some(client);
            }
            Err(_) => errors += 1,
        }
    }
    (times, errors)
}

fn by_item(address: &str) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let total = get(address, "/api/v1/gallery")?["count"].as_u64().ok_or("no count")? as usize;
    let mut requests = Vec::new();
    for page in 0..PAGES {
        let items = get(address, &format!("/api/v1/items?offset={}&limit=500", page * total / PAGES))?;
        for item in items["items"].as_array().ok_or("no items")? {
            let id = item["id"].as_str().ok_or("no id")?;
            requests.push(request(address, "GET", &format!("/api/v1/items/{id}/similar?k={K}"), "", b""));
        }
    }
    Ok(requests)
}

fn upload(address: &str, image: &Path) -> io::Result<Vec<u8>> {
    let mut body =
        b"--limit\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n".to_vec();
    body.extend(std::fs::read(image)?);
    body.extend(
        format!("\r\n--limit\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\n{K}\r\n--limit--\r\n")
            .bytes(),
    );
    let headers = "Content-Type: multipart/form-data; boundary=limit\r\n";
    Ok(request(address, "POST", "/api/v1/search/upload", headers, &body))
}

fn request(address: &str, method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn get(address: &str, path: &str) -> Result<Value, Box<dyn std::error::Error>> {
    let mut client = Client::connect(address)?;
    let body = client.send(&request(address, "GET", path, "", b""))?;
    Ok(serde_json::from_slice(&body)?)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Searches; an answer without its results is an error.
    fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        let body = self.send(request)?;
        let found = body.windows(7).filter(|part| *part == b"\"rank\":").count();
        if found == K { Ok(()) } else { Err(io::Error::other(format!("{found} results"))) }
    }

    /// The body of the answer; a status other than 200 is an error.
    fn send(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.0.get_mut().write_all(request)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if line.split(' ').nth(1) != Some("200") {
            return Err(io::Error::other(line));
        }
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().map_err(io::Error::other)?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }
}
