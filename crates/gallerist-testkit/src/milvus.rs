//! A real Milvus server for tests: started on free ports, killed with everything it started, and
//! cleaned up after.
//!
//! `GALLERIST_MILVUS_SERVER` names its command (`milvus-server` by default, from `pip install
//! milvus==2.3.5 'marshmallow<4'`). Where there is none the tests pass without having looked, and a
//! line on stderr says so; with `GALLERIST_REQUIRE_MILVUS=1` they fail.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const COMMAND: &str = "GALLERIST_MILVUS_SERVER";
const REQUIRED: &str = "GALLERIST_REQUIRE_MILVUS";
/// It starts in 10 s on a quiet machine, of which 4 s are for unpacking.
const START_LIMIT: Duration = Duration::from_secs(180);
/// One of its ports is chosen by itself, and may be taken by another that starts at the same time.
const ATTEMPTS: usize = 3;

/// The options that say where a server listens: the first for clients, the others for its parts.
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

/// A server and the folder with its data. Dropping it kills the one and removes the other.
pub struct Server {
    command: String,
    folder: TempDir,
    /// For [`PORT_OPTIONS`].
    ports: [u16; PORT_OPTIONS.len()],
    /// Where etcd listens for other etcds.
    peer: u16,
    /// Where it tells how it is.
    metrics: u16,
    /// Its launcher has laid out programs and configuration in the folder.
    unpacked: bool,
    /// The shell that leads the server's process group.
    leader: Option<Child>,
}

/// The server that the tests of one program share, or `None` where there is none.
///
/// # Panics
/// When it does not start, and when there is none and `GALLERIST_REQUIRE_MILVUS` is set.
pub fn shared() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(start()?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// A server of one's own, or `None` where there is none.
///
/// # Panics
/// As [`shared`].
pub fn start() -> Option<Server> {
    let command = std::env::var(COMMAND).unwrap_or_else(|_| "milvus-server".to_owned());
    let there = Command::new(&command).arg("--help").output();
    if !there.as_ref().is_ok_and(|output| output.status.success()) {
        let problem = match there {
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let text = format!(
            "no Milvus server: `{command}` does not run ({}); name its command in {COMMAND}",
            problem.trim().lines().last().unwrap_or("no output")
        );
        assert!(std::env::var_os(REQUIRED).is_none_or(|value| value != "1"), "{text}");
        // Not `eprintln!`, which a passing test keeps to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: {text}");
        return None;
    }
    let [peer, metrics, ports @ ..] = free_ports::<{ PORT_OPTIONS.len() + 2 }>();
    let folder = tempfile::Builder::new().prefix("gallerist-milvus-").tempdir().expect("a temporary folder");
    let mut server = Server { command, folder, ports, peer, metrics, unpacked: false, leader: None };
    server.restart();
    Some(server)
}

/// Ports that nobody listened at a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    // All are held until all are known, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("a bound socket").port())
}

impl Server {
    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The address of a collection.
    pub fn address(&self, collection: &str) -> String {
        format!("milvus://127.0.0.1:{}/{collection}", self.port())
    }

    /// Kills the server and all its processes with SIGKILL. Its data stay.
    pub fn kill(&mut self) {
        let Some(mut leader) = self.leader.take() else { return };
        let processes = group(leader.id());
        let _ = Command::new("sh").args(["-c", "kill -KILL \"-$0\"", &leader.id().to_string()]).status();
        let _ = leader.wait();
        for process in processes {
            // Every Milvus leaves this behind, wherever its data are.
            let _ = fs::remove_file(format!("/tmp/milvus/server_id_{}", process.id));
        }
        let _ = fs::remove_dir("/tmp/milvus");
    }

    /// Starts it, on the same data and the same port as before.
    ///
    /// # Panics
    /// When it does not answer in time.
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
        // The shell ends the whole group when this program ends, however it ends: then its standard
        // input is closed.
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\" <&- & cat; kill -KILL 0", "sh"]);
        if self.unpacked {
            // The launcher would move to other ports while connections of the killed server fade away.
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

    /// False when it ends before, or does not answer in time.
    fn wait_until_it_answers(&self) -> bool {
        let deadline = Instant::now() + START_LIMIT;
        let leader = self.leader.as_ref().expect("it was launched").id();
        while Instant::now() < deadline {
            if self.answers() {
                return true;
            }
            // Its launcher goes on waiting when the server itself has ended.
            if group(leader).iter().any(|process| process.name == "milvus" && process.ended) {
                return false;
            }
            sleep(Duration::from_millis(200));
        }
        false
    }

    /// The end of what it wrote to its standard error, under its launcher and by itself.
    fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let text = read("logs/milvus-stderr.log") + &read("stderr.log");
        text.lines().rev().take(5).collect::<Vec<_>>().join(" / ")
    }

    /// Whether it lists its collections over HTTP.
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
    /// Ended, and nobody has asked for its exit code yet.
    ended: bool,
}

/// The processes of a group.
fn group(leader: u32) -> Vec<Process> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let read = |id: u32| {
        // `pid (name) state parent group`, where the name may hold anything.
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
