//! A Milvus server for tests: started on free ports, killed with all its processes, and removed with its data.
//!
//! `GALLERIST_MILVUS_SERVER` names its command (`milvus-server` by default, from `pip install
//! milvus==2.3.5 'marshmallow<4'`). Without a server the tests are skipped with a message on
//! stderr; with `GALLERIST_REQUIRE_MILVUS=1` they fail.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::server;

const COMMAND: &str = "GALLERIST_MILVUS_SERVER";
const REQUIRED: &str = "GALLERIST_REQUIRE_MILVUS";
/// The server starts in 10 s on an idle machine; 4 s of it are unpacking.
const START_LIMIT: Duration = Duration::from_secs(180);
/// The server chooses one port itself; a server that starts at the same time may take it first.
const ATTEMPTS: usize = 3;

/// Options for the ports of the server: the first for clients, the others for its components.
const PORT_OPTIONS: [&str; 10] = [
    "--proxy-port",
    "--etcd-port",
    "--proxy-internal-port",
    "--root-coord-port",
    "--query-coord-port",
    "--query-node-port",
    "--index-coord-port",
    "--index-node-port",
    "--data-coord-port",
    "--data-node-port",
];

/// A server and the folder with its data. Dropping it kills the server and removes the folder.
pub struct Server {
    command: String,
    folder: TempDir,
    /// Ports for [`PORT_OPTIONS`].
    ports: [u16; PORT_OPTIONS.len()],
    /// The peer port of etcd.
    peer: u16,
    /// The port of the health check.
    metrics: u16,
    /// Whether the launcher has unpacked programs and configuration into the folder.
    unpacked: bool,
    /// The shell that leads the server's process group.
    leader: Option<Child>,
}

/// The shared server of the tests of one program, or `None` if Milvus is not installed.
///
/// # Panics
/// If it does not start, and if it is not installed and `GALLERIST_REQUIRE_MILVUS` is set.
pub fn shared() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    server::shared(&SHARED, start)
}

/// A separate server, or `None` if Milvus is not installed.
///
/// # Panics
/// As [`shared`].
pub fn start() -> Option<Server> {
    let command = std::env::var(COMMAND).unwrap_or_else(|_| "milvus-server".to_owned());
    let is_there = server::is_there(Command::new(&command).arg("--help"), REQUIRED, |problem| {
        format!("no Milvus server: `{command}` does not run ({problem}); name its command in {COMMAND}")
    });
    if !is_there {
        return None;
    }
    let [peer, metrics, ports @ ..] = free_ports::<{ PORT_OPTIONS.len() + 2 }>();
    let folder = tempfile::Builder::new().prefix("gallerist-milvus-").tempdir().expect("a temporary folder");
    let mut server = Server { command, folder, ports, peer, metrics, unpacked: false, leader: None };
    server.restart();
    Some(server)
}

/// Free ports.
fn free_ports<const N: usize>() -> [u16; N] {
    // All listeners are kept open until the end, so the ports differ.
    let listeners = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("a bound socket").port())
}

impl Server {
    /// The port for clients, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The address of a collection.
    pub fn address(&self, collection: &str) -> String {
        format!("milvus://127.0.0.1:{}/{collection}", self.port())
    }

    /// Kills the server and all its processes with SIGKILL. The data are kept.
    pub fn kill(&mut self) {
        let Some(mut leader) = self.leader.take() else { return };
        let processes = group(leader.id());
        let _ = Command::new("sh").args(["-c", "kill -KILL \"-$0\"", &leader.id().to_string()]).status();
        let _ = leader.wait();
        for process in processes {
            // Milvus always writes this folder, independent of its data folder.
            let _ = fs::remove_file(format!("/tmp/milvus/server_id_{}", process.id));
        }
        let _ = fs::remove_dir("/tmp/milvus");
    }

    /// Starts the server again with the same data and port.
    ///
    /// # Panics
    /// If it does not answer in time.
    pub fn restart(&mut self) {
        let started = (0..ATTEMPTS).any(|_| {
            self.kill();
            self.leader = Some(self.launch());
            self.wait_until_it_answers()
        });
        assert!(started, "the server did not start: {}", self.log());
        self.unpacked = true;
    }

    fn launch(&self) -> Child {
        let folder = self.folder.path();
        let [client, peer] = [self.ports[1], self.peer].map(|port| format!("http://127.0.0.1:{port}"));
        let etcd = format!(
            "name: default\ndata-dir: {}\nlisten-client-urls: {client}\nadvertise-client-urls: {client}\n\
             listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\ninitial-cluster: default={peer}\n",
            folder.join("etcd").display()
        );
        fs::write(folder.join("etcd.yaml"), etcd).expect("the folder can be written");
        let log = |name| fs::File::create(folder.join(name)).expect("the folder can be written");
        // The shell kills the process group when its standard input is closed, that is, whenever this program
        // ends.
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\" <&- & cat; kill -KILL 0", "sh"]);
        if self.unpacked {
            // The launcher would choose other ports while connections of the killed server are closing.
            shell.arg(folder.join("bin/milvus")).args(["run", "standalone"]).current_dir(folder);
            shell.env("DEPLOY_MODE", "STANDALONE").env("METRICS_PORT", self.metrics.to_string());
            shell.env("LD_LIBRARY_PATH", folder.join("bin")).env("MILVUS_RUN_DIR", folder.join("run"));
        } else {
            shell.args([&self.command, "--data"]).arg(folder);
            for (option, port) in PORT_OPTIONS.iter().zip(&self.ports) {
                shell.args([*option, &port.to_string()]);
            }
        }
        shell.env("ETCD_CONFIG_PATH", folder.join("etcd.yaml")).process_group(0);
        shell.stdin(Stdio::piped()).stdout(log("stdout.log")).stderr(log("stderr.log"));
        shell.spawn().expect("a shell")
    }

    /// Returns false if the server exits, or does not answer in time.
    fn wait_until_it_answers(&self) -> bool {
        let deadline = Instant::now() + START_LIMIT;
        let leader = self.leader.as_ref().expect("it was launched").id();
        while Instant::now() < deadline {
            if self.answers() {
                return true;
            }
            // The launcher keeps running after the server has exited.
            if group(leader).iter().any(|process| process.name == "milvus" && process.ended) {
                return false;
            }
            sleep(Duration::from_millis(200));
        }
        false
    }

    /// The last lines on standard error of the launcher and of the server.
    fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let text = read("logs/milvus-stderr.log") + &read("stderr.log");
        text.lines().rev().take(5).collect::<Vec<_>>().join(" / ")
    }

    /// Whether the server answers a request for its collections over HTTP.
    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port()))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"GET /v1/vector/collections HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("\"code\":200"))
    }
}

struct Process {
    id: u32,
    name: String,
    /// A process that has exited and was not waited for (zombie).
    ended: bool,
}

/// The processes of a process group.
fn group(leader: u32) -> Vec<Process> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let read = |id: u32| {
        // `pid (name) state parent group`; the name may contain any characters.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let mut fields = rest.split_whitespace();
        let ended = fields.next()? == "Z";
        (fields.nth(1)?.parse() == Ok(leader)).then_some(Process { id, name, ended })
    };
    ids.filter_map(read).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
