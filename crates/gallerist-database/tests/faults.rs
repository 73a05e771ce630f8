//! A server that fails in every way: what is repeated, what is not, and what the caller is told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gallerist_database::{Address, Answer, Client, ConnectOptions, Error, Result};
use prost::Message;
use prost::bytes::Bytes;

/// Any message.
#[derive(Clone, PartialEq, Message)]
struct Note {
    #[prost(string, tag = "1")]
    text: String,
}

impl Answer for Note {}

/// What the server does with a call.
#[derive(Clone, Copy, Debug)]
enum Reply {
    /// Answers with the message "done".
    Done,
    /// A status of gRPC.
    Status(u32),
    /// A status of HTTP, as a proxy sends it.
    Http(u16),
    /// Announces 100 bytes, sends 3, and ends the answer.
    Half,
    /// Announces 100 bytes, sends 3, and closes the connection.
    Cut,
    /// Announces 300 MiB.
    Huge,
    /// A message that is none.
    Garbage,
}

/// A server that answers the first call with the first reply and so on; the last is the answer to all further calls.
struct Server {
    address: Address,
    calls: Arc<AtomicUsize>,
}

fn serve(replies: Vec<Reply>) -> Server {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("qdrant://{}/birds", listener.local_addr().unwrap()).parse().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            // One client with one connection at a time.
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
                while let Some(Ok((_, respond))) = connection.accept().await {
                    let number = counted.fetch_add(1, Ordering::SeqCst);
                    let reply = *replies.get(number).or(replies.last()).unwrap();
                    answer(respond, reply);
                    if matches!(reply, Reply::Cut) {
                        let _ = tokio::time::timeout(Duration::from_millis(50), connection.accept()).await;
                        break;
                    }
                }
            }
        });
    });
    Server { address, calls }
}

fn answer(mut respond: h2::server::SendResponse<Bytes>, reply: Reply) {
    let head =
        |status: u16| http::Response::builder().status(status).header("content-type", "application/grpc");
    let framed =
        |announced: u32, bytes: &[u8]| Bytes::from([&[0], &announced.to_be_bytes()[..], bytes].concat());
    let done = Note { text: "done".to_owned() }.encode_to_vec();
    let body = match reply {
        Reply::Status(code) => {
            let head = head(200).header("grpc-status", code).header("grpc-message", "why%20not");
            respond.send_response(head.body(()).unwrap(), true).unwrap();
            return;
        }
        Reply::Http(status) => {
            let head = http::Response::builder().status(status).body(()).unwrap();
            respond.send_response(head, true).unwrap();
            return;
        }
        Reply::Done => framed(done.len() as u32, &done),
        Reply::Half | Reply::Cut => framed(100, &done[..3]),
        Reply::Huge => framed(300 << 20, &done[..3]),
        Reply::Garbage => framed(3, &[0x0a, 0x7f, 0]),
    };
    let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
    stream.send_data(body, false).unwrap();
    if matches!(reply, Reply::Cut | Reply::Huge) {
        // The client must not wait for the rest.
        std::mem::forget(stream);
        return;
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    stream.send_trailers(trailers).unwrap();
}

/// A call of a server with these replies: its result, the number of calls, and what was told before each repetition.
fn call(replies: Vec<Reply>, patience: Duration) -> (Result<Note>, usize, Vec<String>) {
    let server = serve(replies);
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let options = ConnectOptions {
        timeout: Duration::from_secs(20),
        patience,
        on_wait: Some(Arc::new(move |why: &str| list.lock().unwrap().push(why.to_owned()))),
        ..ConnectOptions::default()
    };
    let client = Client::new(&server.address, options);
    let result = client.call("Points/Upsert", &Note::default(), "take items");
    let told = told.lock().unwrap().clone();
    (result, server.calls.load(Ordering::SeqCst), told)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn what_passes_is_repeated_until_it_has_passed() {
    let passing = [
        Reply::Http(429),
        Reply::Http(503),
        Reply::Status(14),
        Reply::Status(8),
        Reply::Half,
        Reply::Cut,
        Reply::Done,
    ];
    let (result, calls, told) = call(passing.to_vec(), LONG);
    assert_eq!(result.unwrap().text, "done");
    assert_eq!((calls, told.len()), (7, 6), "{told:?}");
    for (why, wanted) in
        told.iter().zip(["429", "503", "why not", "why not", "the answer is empty", "the connection broke"])
    {
        assert!(why.contains(wanted) && why.contains("trying again in"), "{why}");
    }
}

#[test]
fn patience_ends() {
    let started = Instant::now();
    let (result, calls, told) = call(vec![Reply::Http(503)], Duration::from_millis(400));
    assert!(matches!(result, Err(Error::Unreachable { .. })), "{result:?}");
    assert!(calls == told.len() + 1 && calls >= 2, "{calls} calls, {told:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_does_not_pass_is_not_repeated() {
    let once = |reply| {
        let (result, calls, told) = call(vec![reply, Reply::Done], LONG);
        assert_eq!((calls, told), (1, vec![]), "{reply:?}");
        result.unwrap_err()
    };
    for code in [3, 6, 9, 13] {
        let error = once(Reply::Status(code));
        assert!(matches!(&error, Error::Refused { reason, .. } if reason == "why not"), "{error:?}");
        assert!(error.to_string().contains("refused to take items"), "{error}");
    }
    let missing = once(Reply::Status(5));
    assert!(matches!(&missing, Error::Missing { .. }), "{missing:?}");
    assert!(missing.hint().unwrap().contains("index push FILE --gallery qdrant://"));
    for code in [7, 16] {
        assert_eq!(once(Reply::Status(code)).hint().unwrap(), "set QDRANT_API_KEY to a key of the server");
    }
    assert_eq!(once(Reply::Status(12)).hint().unwrap(), "a gRPC server answers there, but it is not Qdrant");
    let garbage = once(Reply::Garbage);
    assert!(matches!(&garbage, Error::Answer { .. }), "{garbage:?}");
}

#[test]
fn an_answer_that_is_announced_too_large_is_not_waited_for() {
    let started = Instant::now();
    let (result, calls, _) = call(vec![Reply::Huge, Reply::Done], LONG);
    let error = result.unwrap_err();
    assert!(error.to_string().contains("the answer is larger than 256 MiB"), "{error}");
    assert_eq!(calls, 1);
    assert!(started.elapsed() < Duration::from_secs(10), "before the end of the call's time");
}

#[test]
fn the_first_call_of_all_is_made_once() {
    let server = serve(vec![Reply::Http(503), Reply::Done]);
    let client = Client::new(&server.address, ConnectOptions::default());
    let greeted = client.greet("Qdrant/HealthCheck", &Note::default(), |note: &Note| &note.text);
    assert!(matches!(greeted, Err(Error::Unreachable { .. })), "{greeted:?}");
    assert_eq!(server.calls.load(Ordering::SeqCst), 1);
}
