//! Names of objects with characters of every kind, in a small server of the protocol of S3 and of plain files.
//!
//! A client takes the address of its server from the environment, so each test runs again in a process of its own.
#![cfg(feature = "clients")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use gallerist_store::Store;
use percent_encoding::percent_decode_str;

const CHILD: &str = "GALLERIST_TEST_SERVER";

const NAMES: [&str; 26] = [
    "plain.png",
    "a b.png",
    "ü.png",
    "u\u{308}.png",
    "100%.png",
    "a#b.png",
    "x[1].png",
    "t~1.png",
    "q?.png",
    "st*ar.png",
    "pl+us.png",
    "am&p.png",
    "eq=.png",
    "br{a}.png",
    "pi|pe.png",
    "qu\"ote.png",
    "back\\slash.png",
    "ca^ret.png",
    "%41.png",
    "日本.png",
    "(1).png",
    "it's.png",
    "a%20b.png",
    "lt<gt>.png",
    "`.png",
    "s@:;,!$.png",
];

/// Names that no client takes.
const ODD: [&str; 4] = ["c2//y.png", "c2/./v.png", "c2/../w.png", "c2/a\u{1}.png"];

/// The header of a request with temporary credentials.
const SESSION_TOKEN: &str = "x-amz-security-token";

/// Variables that other programs read. The clients have settings of these names.
const OF_OTHERS: [(&str, &str); 6] = [
    ("TOKEN", "abc"),
    ("SESSION_TOKEN", "abc"),
    ("REGION", "nowhere"),
    ("ENDPOINT", "http://127.0.0.1:1"),
    ("ENDPOINT_URL", "http://127.0.0.1:1"),
    ("TIMEOUT", "30"),
];

/// The requests that the server has answered.
type Log = Arc<Mutex<Vec<String>>>;

fn escaped(name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    name.replace('"', "&quot;").replace('\u{1}', "&#x1;")
}

fn answer(stream: TcpStream, objects: &BTreeMap<String, Vec<u8>>, log: &Log) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let mut line = String::new();
        while reader.read_line(&mut line).ok()? > 2 {
            if line.to_ascii_lowercase().starts_with(SESSION_TOKEN) {
                log.lock().unwrap().push(line.trim().to_ascii_lowercase());
            }
            line.clear();
        }
        let (method, rest) = first.split_once(' ')?;
        let target = rest.split(' ').next()?;
        log.lock().unwrap().push(format!("{method} {target}"));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = percent_decode_str(path).decode_utf8().ok()?.into_owned();
        let (status, body) = match method {
            "PROPFIND" => ("501 Unsupported method", b"<html>no</html>".to_vec()),
            _ if query.contains("list-type=2") => {
                let prefix = query.split('&').find_map(|one| one.strip_prefix("prefix=")).unwrap_or_default();
                let prefix = percent_decode_str(prefix).decode_utf8().ok()?.into_owned();
                let one = |(name, bytes): (&String, &Vec<u8>)| {
                    let key = name.strip_prefix("/bucket/").filter(|key| key.starts_with(&prefix))?;
                    let (key, size) = (escaped(key), bytes.len());
                    let date = "2026-01-01T00:00:00.000Z";
                    Some(format!(
                        "<Contents><Key>{key}</Key><LastModified>{date}</LastModified><Size>{size}</Size></Contents>"
                    ))
                };
                let all: String = objects.iter().filter_map(one).collect();
                (
                    "200 OK",
                    format!("<ListBucketResult><Name>bucket</Name>{all}</ListBucketResult>").into_bytes(),
                )
            }
            _ => match objects.get(&path) {
                Some(bytes) => ("200 OK", bytes.clone()),
                None if path.starts_with("/bucket/") || path.starts_with("/web/") => {
                    ("404 Not Found", Vec::new())
                }
                None => (
                    "404 Not Found",
                    b"<Error><Code>NoSuchBucket</Code><Message>No.</Message></Error>".to_vec(),
                ),
            },
        };
        let mut stream = &stream;
        let (length, date) = (body.len(), "Thu, 01 Jan 2026 00:00:00 GMT");
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nLast-Modified: {date}\r\nETag: \"1\"\r\n\r\n"
        )
        .ok()?;
        stream.write_all(&body).ok()?;
    }
}

/// Runs a test again in a process with the credentials of a server of these objects; the address of the server in that process.
fn with_server(test: &str, names: Vec<String>) -> Option<String> {
    if let Ok(address) = std::env::var(CHILD) {
        return Some(address);
    }
    let objects: BTreeMap<String, Vec<u8>> =
        names.into_iter().map(|name| (name.clone(), name.into_bytes())).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (objects, log) = (Arc::new(objects), Log::default());
    let requests = log.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (objects, log) = (objects.clone(), log.clone());
            std::thread::spawn(move || answer(stream.unwrap(), &objects, &log));
        }
    });
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, &address)
        .env("AWS_ENDPOINT_URL", &address)
        .env("AWS_ACCESS_KEY_ID", "KEY")
        .env("AWS_SECRET_ACCESS_KEY", "SECRET")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ALLOW_HTTP", "true")
        .env("ALLOW_HTTP", "true")
        .envs(OF_OTHERS)
        .output()
        .unwrap();
    let requests = requests.lock().unwrap();
    assert!(done.status.success(), "{}\n{requests:#?}", String::from_utf8_lossy(&done.stderr));
    let lists = requests.iter().filter(|request| request.starts_with("PROPFIND")).count();
    assert!(lists <= 1, "a list is requested again: {requests:#?}");
    let tokens = requests.iter().filter(|request| request.starts_with(SESSION_TOKEN)).count();
    assert_eq!(tokens, 0, "a variable of another program is sent: {requests:#?}");
    None
}

#[test]
fn what_is_listed_is_read_and_what_no_client_takes_is_named() {
    let names = NAMES.iter().chain(&ODD).map(|name| format!("/bucket/50%off#/{name}")).collect();
    let test = "what_is_listed_is_read_and_what_no_client_takes_is_named";
    let Some(_) = with_server(test, names) else { return };
    let store = Store::open("s3://bucket/50%off#").unwrap();
    let listing = store.list("").unwrap();
    let mut wanted = NAMES.to_vec();
    wanted.sort_unstable();
    let found: Vec<&str> = listing.objects.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(found, wanted);
    for name in NAMES {
        let bytes = format!("/bucket/50%off#/{name}").into_bytes();
        assert_eq!(store.read(name, 1000).unwrap(), Some(bytes), "{name}");
        assert!(store.size(name).unwrap().is_some(), "{name}");
        // By its address, too.
        let address = store.location(name);
        let (above, name) = gallerist_store::split_address(&address).unwrap().unwrap();
        assert!(Store::open(above).unwrap().read(&name, 1000).unwrap().is_some(), "{address}");
    }
    assert_eq!(listing.unreadable, ["c2/../w.png", "c2/./v.png", "c2//y.png", "c2/a?.png"]);
    assert_eq!(store.read("../50%off#/plain.png", 1000).unwrap().unwrap(), b"/bucket/50%off#/plain.png");
    assert!(store.read("../../plain.png", 1000).unwrap_err().to_string().contains("leads out"));
    assert_eq!(store.read("gone.png", 1000).unwrap(), None);
    let error = Store::open("s3://none").unwrap().read("x.csv", 1000).unwrap_err();
    assert_eq!(error.to_string(), "cannot read `s3://none/x.csv`: there is no bucket `s3://none`");
}

#[test]
fn addresses_of_web_servers_are_decoded_once_and_a_server_without_lists_is_asked_once() {
    let names = NAMES.iter().map(|name| format!("/web/we ird#/{name}")).collect();
    let test = "addresses_of_web_servers_are_decoded_once_and_a_server_without_lists_is_asked_once";
    let Some(server) = with_server(test, names) else { return };
    let folder = format!("{server}/web/we%20ird%23");
    for name in NAMES {
        let address = Store::open(&folder).unwrap().location(name);
        let (above, found) = gallerist_store::split_address(&address).unwrap().unwrap();
        assert_eq!(found, name);
        let bytes = format!("/web/we ird#/{name}").into_bytes();
        assert_eq!(Store::open(above).unwrap().read(&found, 1000).unwrap(), Some(bytes), "{address}");
    }
    let encoded = format!("{folder}/%E6%97%A5%e6%9c%ac%2Epng");
    assert_eq!(gallerist_store::split_address(&encoded).unwrap().unwrap().1, "日本.png");
    let error = Store::open(&folder).unwrap().list("").unwrap_err();
    assert!(error.to_string().ends_with("the server does not list folders"), "{error}");
    assert!(error.hint().unwrap().contains("a manifest or an archive"));
}
