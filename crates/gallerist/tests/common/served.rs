//! The server as the tests start and ask it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A server that is killed when the test ends before it does.
pub(crate) struct Served {
    pub(crate) child: Child,
    address: String,
}

impl Served {
    /// Starts `gallerist` with these arguments.
    pub(crate) fn start(dir: &Path, line: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
        command.args(line.split_whitespace()).current_dir(dir);
        Self::of(command).expect("a server that starts")
    }

    /// Starts a command; `None` if it ends before it serves.
    pub(crate) fn of(mut command: Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://").map(str::to_owned);
        let mut served = Self { child, address: address.clone().unwrap_or_default() };
        if address.is_none() {
            served.child.wait().unwrap();
        }
        address.map(|_| served)
    }

    /// Status and body.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        self.try_ask(method, path, headers, body).expect("a server that answers")
    }

    /// Status and body; `None` if the server is gone.
    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let (host, length) = (&self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        stream.write_all(format!("{head}{headers}Content-Length: {length}\r\n\r\n").as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1)?.parse().ok()?;
        Some((status, answer[end + 4..].to_vec()))
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        let (status, body) = self.ask("GET", path, "", b"");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        body
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.get(path)).unwrap()
    }

    /// Tells it to end, and waits for it.
    #[cfg(unix)]
    pub(crate) fn stop(&mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
