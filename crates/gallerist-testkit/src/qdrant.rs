//! A server that speaks Qdrant's protocol, for tests: started on a free port, killed and removed with its data.
//!
//! It is `qdrant/server.py`, which answers the messages of Qdrant's client with Qdrant's engine. No package of a registry has
//! the server itself. `GALLERIST_QDRANT_PYTHON` names a Python interpreter with `qdrant-client` 1.20 and `qdrant-edge-py` 0.9
//! (`python3` by default). Without them the tests are skipped with a message on stderr; with `GALLERIST_REQUIRE_QDRANT=1`
//! they fail.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;

use crate::server;

const PYTHON: &str = "GALLERIST_QDRANT_PYTHON";
const REQUIRED: &str = "GALLERIST_REQUIRE_QDRANT";

/// A server and the folder with its data. Dropping it kills the server and removes the folder.
pub struct Server {
    folder: TempDir,
    port: u16,
    key: Option<&'static str>,
    process: Option<Child>,
}

/// The shared server of the tests of one program, or `None` if its packages are not installed.
///
/// # Panics
/// If it does not start, and if its packages are not installed and `GALLERIST_REQUIRE_QDRANT` is set.
pub fn shared() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    server::shared(&SHARED, || start(None))
}

/// A separate server, which wants `key` if there is one; or `None` if its packages are not installed.
///
/// # Panics
/// As [`shared`].
pub fn start(key: Option<&'static str>) -> Option<Server> {
    let mut probe = python();
    probe.args(["-c", "import qdrant_client.grpc, qdrant_edge"]);
    let is_there = server::is_there(&mut probe, REQUIRED, |problem| {
        format!("no engine of Qdrant ({problem}); name a Python interpreter that has it in {PYTHON}")
    });
    if !is_there {
        return None;
    }
    let folder = tempfile::Builder::new().prefix("gallerist-qdrant-").tempdir().expect("a temporary folder");
    let mut server = Server { folder, port: 0, key, process: None };
    server.restart();
    Some(server)
}

fn python() -> Command {
    Command::new(std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned()))
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("qdrant").join(name)
}

impl Server {
    /// The port for clients, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a collection.
    pub fn address(&self, collection: &str) -> String {
        format!("qdrant://127.0.0.1:{}/{collection}", self.port)
    }

    /// Kills the server with SIGKILL. The data are kept.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Starts the server again with the same data and port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = python();
        command.arg(script("server.py")).arg("--data").arg(self.folder.path());
        command.args(["--port", &self.port.to_string()]);
        command.args(self.key.iter().flat_map(|key| ["--api-key", key]));
        // It ends when its standard input is closed, that is, whenever this program ends.
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was tested");
        let mut line = String::new();
        let _ = BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line);
        self.port = line.trim().parse().expect("the server prints its port");
        self.process = Some(process);
    }

    /// Runs `qdrant/client.py`, the real client, on a collection of this server.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn client(&self, collection: &str) -> Output {
        let mut command = python();
        command.arg(script("client.py")).arg(self.port.to_string()).arg(collection);
        command.output().expect("it was tested")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
