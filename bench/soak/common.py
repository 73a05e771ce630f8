"""What the soak tests share: a run to work with, a server as a process, the memory of a process."""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "serve"))

import pictures
from shared import FORM, form, free_port  # noqa: F401

TOKEN = "soak"
MIB = 1 << 20


def run(program, *arguments, cwd=None):
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def prepare(program, folder, classes=12, images=25):
    """Pictures of some classes, a small network, and two indices of the pictures."""
    for kind in range(classes):
        own = folder / "photos" / f"class{kind}"
        own.mkdir(parents=True)
        for number in range(images):
            (own / f"{number}.png").write_bytes(pictures.png(kind, number))
    smoke = ROOT / "configs" / "smoke.toml"
    run(program, "train", smoke, "--out", folder / "run", "--set", "train.steps=20", "--set", "report.map=false")
    run(program, "embed", "--run", folder / "run", "--images", folder / "photos", "--out", folder / "photos.safetensors")
    for kind in ("hnsw", "exact"):
        run(program, "index", "build", folder / "photos.safetensors", "--out", folder / f"{kind}.index", "--kind", kind)


def memory(pid):
    """Bytes, files and threads of a process, and its CPU time in seconds."""
    own = Path(f"/proc/{pid}")
    fields = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines())
    rollup = dict(line.split(":", 1) for line in (own / "smaps_rollup").read_text().splitlines()[1:])
    kib = lambda text: int(text.split()[0]) << 10
    times = (own / "stat").read_text().rsplit(")", 1)[1].split()
    return {
        "rss": kib(fields["VmRSS"]),
        "peak": kib(fields["VmHWM"]),
        "anonymous": kib(fields["RssAnon"]),
        "pss": kib(rollup["Pss"]),
        "threads": int(fields["Threads"]),
        "files": len(os.listdir(own / "fd")),
        "cpu": (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
    }


class Server:
    """A server that can be killed and started again at the same port."""

    def __init__(self, name, program, folder, arguments, environment=None):
        self.name, self.folder, self.port = name, folder, free_port()
        self.command = [str(program), "serve", "--port", str(self.port), *map(str, arguments)]
        self.environment = {**os.environ, "GALLERIST_TOKEN": TOKEN, **(environment or {})}
        self.process, self.is_up, self.lives = None, False, 0
        # A restart ends requests without an answer: those that began before, or while it lasts, are not faults.
        self.lock = threading.Lock()

    def start(self):
        self.notes = open(self.folder / f"{self.name}.log", "a")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.notes, text=True, cwd=self.folder, env=self.environment)
        if not self.process.stdout.readline():
            raise SystemExit(f"the server `{self.name}` did not start: {(self.folder / f'{self.name}.log').read_text()}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        with self.lock:
            self.is_up = True

    def end(self, sign):
        """The exit status."""
        with self.lock:
            self.is_up = False
            self.lives += 1
        self.process.send_signal(sign)
        status = self.process.wait(timeout=60)
        self.notes.close()
        return status

    def stop(self):
        return self.end(signal.SIGTERM)

    def life(self):
        with self.lock:
            return self.lives if self.is_up else None


AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


class Client:
    """One address, one connection; `keep` it from one request to the next."""

    def __init__(self, server, address, keep=True):
        self.server, self.address, self.keep, self.connection, self.life = server, address, keep, None, None

    def ask(self, method, path, body=None, headers=None):
        """Status, body and seconds; status 0 if there was no answer."""
        headers = {"X-Forwarded-For": self.address, **(headers or {})}
        begin = time.monotonic()
        if self.life != self.server.life():
            # A connection of the server before a restart.
            self.close()
        try:
            fresh, self.life = self.connection is None, self.server.life()
            self.connection = self.connection or http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=100)
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            data = answer.read()
            if not self.keep or answer.will_close:
                self.close()
            return answer.status, data, time.monotonic() - begin
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not fresh and isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)) and method == "GET":
                # The server may close a connection between two requests.
                return self.ask(method, path, body, headers)
            return 0, repr(error).encode(), time.monotonic() - begin

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def plateau(values, share=0.1, slack=4 * MIB):
    """Whether the median of the last third is at most `share` and `slack` above that of the middle third; both medians."""
    third = len(values) // 3
    median = lambda part: sorted(part)[len(part) // 2]
    middle, last = median(values[third : 2 * third]), median(values[2 * third :])
    return last <= middle * (1 + share) + slack, middle, last
