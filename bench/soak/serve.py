#!/usr/bin/env python3
"""Two servers under mixed load for an hour: one that stays, and one that is killed and started again.

    bench/soak/serve.py [--program target/release/gallerist] [--minutes 60] [--out soak] [--folder DIR]

Both have two indices, tokens, an audit log and limits for each client. The load: searches by item, uploads, pages, pictures,
added and removed items, tags, selections; hostile uploads, malformed requests, floods above the limit, senders that are slow;
reloads by SIGHUP and by POST. The rates are fixed, about a third of a core in all.

Every ten seconds memory, open files, threads, CPU time and the times of good requests are noted. Afterwards OUT.json and OUT.svg
are written. The exit status is 1 if
- any answer was not among those that the documentation permits for its request,
- a change that was acknowledged is lost, or one that was refused is there,
- the audit log lacks a change,
- memory has no plateau: its median in the last third of the time is more than 10 % + 4 MiB above that of the middle third,
- the files that are open, without clients, are more at the end than at the start.

Only the standard library is needed.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import chart
import pictures
from common import AUTHORIZED, FORM, MIB, ROOT, Client, Server, form, memory, plateau, prepare

GALLERIES = ("birds", "shop")
INTERVAL = 10
UPLOADS_OF_A_CLIENT = 5


class Record:
    """What was answered."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts, self.faults = Counter(), []
        self.times = {}

    def fault(self, text):
        with self.lock:
            if len(self.faults) < 1000:
                self.faults.append(text)
                print(f"fault: {text}", file=sys.stderr, flush=True)

    def answer(self, server, kind, status, permitted, seconds, body, is_good):
        with self.lock:
            self.counts[f"{server} {kind} {status}"] += 1
            if is_good and status in range(200, 300):
                self.times.setdefault((server, kind), []).append(seconds)
        if status not in permitted:
            self.fault(f"{server}: {kind}: status {status}, {body[:300]!r}")

    def take_times(self):
        with self.lock:
            times, self.times = self.times, {}
        return times


class Load:
    """The clients of one server."""

    def __init__(self, server, record, seed, share):
        self.server, self.record, self.share = server, record, share
        self.over = threading.Event()
        self.threads, self.writers = [], []
        self.random = random.Random(seed)
        self.good = [pictures.png(kind, 1000 + number) for kind in range(6) for number in range(3)] + [pictures.jpeg(640, 427)]
        self.hostile = pictures.hostile()
        self.items = {name: self.list(name) for name in GALLERIES}

    def list(self, gallery, client=None):
        """All ids of a gallery by their paths."""
        client, found, offset = client or Client(self.server, "10.9.9.9"), {}, 0
        while True:
            status, body, _ = client.ask("GET", f"/api/v1/items?gallery={gallery}&limit=500&offset={offset}")
            if status != 200:
                raise RuntimeError(f"{self.server.name}: the items: status {status}, {body[:200]!r}")
            items = json.loads(body)["items"]
            found.update((item["path"], item["id"]) for item in items)
            offset += len(items)
            if len(items) < 500:
                client.close()
                return found

    def ask(self, client, kind, method, path, permitted, body=None, headers=None, good=True):
        """Status and body; status None if the server was restarted meanwhile."""
        life = self.server.life()
        status, data, seconds = client.ask(method, path, body, headers)
        if status == 0 and (life is None or self.server.life() != life):
            with self.record.lock:
                self.record.counts[f"{self.server.name} {kind} restarted"] += 1
            return None, data
        self.record.answer(self.server.name, kind, status, permitted, seconds, data, good)
        return status, data

    def every(self, seconds, work, *arguments):
        """Calls `work` at this interval; what was missed is not made up for."""
        own = random.Random(self.random.random())

        def go():
            next_at = time.monotonic() + own.random() * seconds
            while not self.over.wait(max(0, next_at - time.monotonic())):
                if self.server.life() is not None:
                    work(own, *arguments)
                next_at = max(next_at + seconds / self.share, time.monotonic())
        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        self.threads.append(thread)

    def start(self):
        for number in range(2):
            self.every(0.2, self.search, Client(self.server, f"10.0.0.{number}"))
        self.every(0.5, self.upload, Client(self.server, "10.0.1.0"))
        self.every(0.5, self.hostile_upload, Client(self.server, "10.0.2.0"))
        self.every(1, self.malformed, Client(self.server, "10.0.3.0"))
        self.every(2, self.page, Client(self.server, "10.0.4.0", keep=False))
        self.every(30, self.flood, Client(self.server, "10.0.5.0"))
        for number in range(3):
            self.every(5, self.slow, ["headers", "body", "silence"][number])
        for number, gallery in enumerate(GALLERIES * 2):
            writer = Writer(self, f"writer{number}", gallery)
            self.writers.append(writer)
            self.every(2, writer.change, Client(self.server, f"10.0.6.{number}"))

    def stop(self):
        self.over.set()
        [thread.join(timeout=120) for thread in self.threads]

    def search(self, own, client):
        gallery = own.choice(GALLERIES)
        item = own.choice(list(self.items[gallery].values()))
        k = own.choice([1, 10, 50, 200])
        status, body = self.ask(client, "search", "GET", f"/api/v1/items/{item}/similar?gallery={gallery}&k={k}", {200})
        if status == 200:
            found = json.loads(body)["results"]
            distances = [result["distance"] for result in found]
            if len(found) < min(k, 100) or distances != sorted(distances) or len({r["id"] for r in found}) != len(found):
                self.record.fault(f"{self.server.name}: a ranked list of {len(found)} of {k} results: {distances[:5]}")

    def upload(self, own, client):
        path = f"/api/v1/search/upload?gallery={own.choice(GALLERIES)}"
        self.ask(client, "upload", "POST", path, {200}, form(own.choice(self.good), k=10), FORM)

    def hostile_upload(self, own, client):
        name, image, permitted = own.choice(self.hostile)
        if "permitted" in name or "scans" in name:
            # These take a tenth of a second of CPU time each.
            name, image, permitted = own.choice(self.hostile)
        if own.random() < 0.2:
            body, kind = form(image, path=f"hostile/{own.random()}"), "hostile item"
            headers = {**FORM, **AUTHORIZED}
            # What can be decoded would be added.
            if 200 not in permitted:
                self.ask(client, f"{kind}: {name}", "POST", "/api/v1/items", permitted | {503}, body, headers, False)
            return
        self.ask(client, f"hostile upload: {name}", "POST", "/api/v1/search/upload", permitted, form(image), FORM, False)

    def malformed(self, own, client):
        text = {"Content-Type": "application/json"}
        item = next(iter(self.items[GALLERIES[0]].values()))
        cases = [
            ("no item", "GET", "/api/v1/items/1/similar", {404}, None, None),
            ("no id", "GET", "/api/v1/items/-1/similar", {400}, None, None),
            ("no gallery", "GET", f"/api/v1/items/{item}?gallery=none", {404}, None, None),
            ("outside", "GET", "/images/../../../etc/passwd", {400, 404}, None, None),
            ("k of a million", "GET", f"/api/v1/items/{item}/similar?k=1000000", {400}, None, None),
            ("deep json", "POST", "/api/v1/search", {400, 422}, "[" * 100_000, text),
            ("short vector", "POST", "/api/v1/search", {400, 422}, '{"vectors": [[1.0]]}', text),
            ("wrong token", "DELETE", f"/api/v1/items/{item}", {401}, None, {"Authorization": "Bearer wrong"}),
            ("no token", "POST", "/api/v1/reload", {401}, None, None),
            ("other site", "GET", "/api/v1/gallery", {403}, None, {"Sec-Fetch-Site": "cross-site"}),
            ("other host", "GET", "/api/v1/gallery", {421}, None, {"Host": "example.com"}),
            ("form cut", "POST", "/api/v1/search/upload", {400}, form(b"x")[:-30], FORM),
            ("no form", "POST", "/api/v1/search/upload", {400}, b"x", FORM),
            ("strange field", "POST", "/api/v1/search/upload", {400}, form(None, colour="red"), FORM),
            ("long name of a tag", "POST", "/api/v1/saved/tags/" + "a" * 300, {400}, '{"add": ["1"]}', {**text, **AUTHORIZED}),
            ("method", "PUT", "/api/v1/items", {405}, None, None),
            ("large header", "GET", "/api/v1/gallery", {431, 0}, None, {"X-Large": "a" * 70_000}),
            # The connection may be closed before the client has sent it all.
            ("large body", "POST", "/api/v1/search/upload", {413, 0}, bytes(21 * MIB), FORM),
        ]
        kind, method, path, permitted, body, headers = own.choice(cases)
        if kind == "large body" and own.random() < 0.8:
            return
        self.ask(client, f"malformed: {kind}", method, path, permitted, body, headers, False)
        if 0 in permitted:
            client.close()

    def page(self, own, client):
        gallery = own.choice(GALLERIES)
        item = own.choice(list(self.items[gallery].values()))
        paths = ["/", "/api", "/openapi.json", "/health", "/ready", "/metrics", "/api/v1/gallery", "/api/v1/saved", f"/images/{item}"]
        paths += [f"/thumbnails/{item}", f"/api/v1/items/{item}", "/api/v1/items?limit=60", "/api/v1/map", "/api/v1/failures?limit=20"]
        path = own.choice(paths)
        query = f"{'&' if '?' in path else '?'}gallery={gallery}"
        status, body = self.ask(client, "page", "GET", path + query, {200})
        # What a page holds on to is the files that it names.
        if status == 200 and path == "/metrics" and b"gallerist_requests" not in body:
            self.record.fault(f"{self.server.name}: metrics: {body[:100]!r}")

    def flood(self, own, client):
        """More uploads than a client may send: some are answered, the others refused, and their connection is closed."""
        image = form(self.good[0])
        for _ in range(8 * UPLOADS_OF_A_CLIENT):
            if self.ask(client, "flood", "POST", "/api/v1/search/upload", {200, 429, 0}, image, FORM, False)[0] is None:
                return

    def slow(self, own, what):
        """A connection that sends a byte now and then, until it is closed or ten minutes are over."""
        start = {
            "headers": b"GET /api/v1/gallery HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
            "body": b"POST /api/v1/search/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
            b"X-Forwarded-For: 10.0.7.1\r\nContent-Type: multipart/form-data; boundary=limit\r\n\r\n",
            "silence": b"",
        }[what]
        begin, life = time.monotonic(), self.server.life()
        got = b""
        try:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=2) as connection:
                connection.sendall(start)
                while not self.over.is_set() and time.monotonic() - begin < 600:
                    try:
                        if what != "silence":
                            connection.sendall(b"a")
                        part = connection.recv(4096)
                        got += part
                        if not part:
                            break
                    except TimeoutError:
                        continue
        except OSError:
            pass
        if self.over.is_set() or life is None or self.server.life() != life:
            return
        status = int(got.split()[1]) if got.startswith(b"HTTP") else 0
        seconds = time.monotonic() - begin
        self.record.answer(self.server.name, f"slow {what}", status, {0, 408}, seconds, got, False)
        if not 50 < seconds < 150:
            self.record.fault(f"{self.server.name}: slow {what}: closed after {seconds:.0f} s")


class Writer:
    """One client that changes a gallery, and knows what must be there."""

    def __init__(self, load, name, gallery):
        self.load, self.name, self.gallery = load, name, gallery
        # Held during a change: after a restart, no change is under way.
        self.lock = threading.Lock()
        # Of each path its id and whether it is there; None: the server was killed before its answer.
        self.items, self.tags, self.added, self.removed = {}, {}, Counter(), Counter()
        self.number = 0

    def change(self, own, client):
        with self.lock:
            there = [path for path, (_, is_there) in self.items.items() if is_there]
            what = own.choices(["add", "remove", "tag", "selection"], [4, 4 if len(there) > 10 else 1, 2, 1])[0]
            if what == "add":
                self.add(own, client)
            elif what == "remove" and there:
                self.remove(own.choice(there), client)
            elif what in ("tag", "selection"):
                self.tag(own, client, f"{what}s")

    def ask(self, client, kind, method, path, permitted, body=None, headers=None):
        # While a gallery is opened again, changes are refused.
        path += f"?gallery={self.gallery}"
        return self.load.ask(client, kind, method, path, permitted | {503}, body, {**AUTHORIZED, **(headers or {})})

    def add(self, own, client):
        self.number += 1
        path = f"{self.name}/{self.number}.png"
        image = pictures.png(own.randrange(12), 2000 + self.number % 50, 32)
        status, body = self.ask(client, "add", "POST", "/api/v1/items", {201}, form(image, path=path, label=self.name, source="soak"), FORM)
        if status is None:
            self.items[path] = (None, None)
        elif status == 201:
            item = json.loads(body)["id"]
            self.items[path] = (item, True)
            self.added[item] += 1
            self.expect(client, item, 200)

    def remove(self, path, client):
        item, _ = self.items[path]
        status, _ = self.ask(client, "remove", "DELETE", f"/api/v1/items/{item}", {204})
        if status is None:
            self.items[path] = (item, None)
        elif status == 204:
            self.items[path] = (item, False)
            self.removed[item] += 1
            self.expect(client, item, 404)

    def expect(self, client, item, wanted):
        self.load.ask(client, f"look after a change, {wanted}", "GET", f"/api/v1/items/{item}?gallery={self.gallery}", {wanted})

    def tag(self, own, client, kind):
        name = f"{self.name}-{own.randrange(4)}"
        known = self.tags.setdefault((kind, name), {})
        ids = own.sample(sorted(self.load.items[self.gallery].values()), 5)
        # A list that does not exist is made by a change that removes nothing.
        add, remove = (ids[:3], ids[3:]) if True in known.values() else (ids, [])
        body = json.dumps({"add": add, "remove": remove})
        headers = {"Content-Type": "application/json"}
        status, _ = self.ask(client, kind, "POST", f"/api/v1/saved/{kind}/{name}", {200}, body, headers)
        if status in (200, None):
            # A change is there as a whole or not at all: until the next look, each id may be either.
            for item in ids:
                known[item] = None if status is None else item in add

    def check(self, client):
        """Compares what is there with what was acknowledged; then that is known."""
        fault = lambda text: self.load.record.fault(f"{self.load.server.name}, {self.gallery}, {self.name}: {text}")
        found = self.load.list(self.gallery, client)
        for path, item in self.load.items[self.gallery].items():
            if found.get(path) != item:
                fault(f"`{path}` was never removed and is lost")
        for path in found:
            if path.startswith(f"{self.name}/") and path not in self.items:
                fault(f"`{path}` was never added, and is there")
        for path, (item, is_there) in self.items.items():
            if is_there is not None and (path in found) != is_there:
                fault(f"`{path}`: {'an acknowledged item is lost' if is_there else 'a removed or refused item is there'}")
            self.items[path] = (found.get(path, item), path in found)
        for (kind, name), known in self.tags.items():
            status, body, _ = client.ask("GET", f"/api/v1/saved/{kind}/{name}?gallery={self.gallery}")
            ids = set(json.loads(body)["ids"]) if status == 200 else set()
            if status not in (200, 404):
                fault(f"{kind} {name}: status {status}")
            for item, is_there in known.items():
                if is_there is not None and (item in ids) != is_there:
                    fault(f"{kind} {name}: {item} {'is lost' if is_there else 'is there'}")
                known[item] = item in ids


class Samples:
    def __init__(self, servers, record):
        self.servers, self.record, self.all, self.begin = servers, record, [], time.monotonic()
        self.before = {}

    def take(self):
        times, sample = self.record.take_times(), {"seconds": round(time.monotonic() - self.begin, 1)}
        sample["load average"] = os.getloadavg()[0]
        for server in self.servers:
            if server.life() is None:
                continue
            try:
                own = memory(server.process.pid)
            except OSError:
                continue
            before = self.before.get(server.name)
            self.before[server.name] = (server.process.pid, own["cpu"], time.monotonic())
            cpu = own.pop("cpu")
            if before and before[0] == server.process.pid:
                own["cpu share"] = round((cpu - before[1]) / (time.monotonic() - before[2]), 3)
            for kind in ("search", "upload", "add", "page"):
                found = sorted(times.get((server.name, kind), []))
                if found:
                    own[kind] = {"count": len(found), "p50": round(1000 * found[len(found) // 2], 2), "p99": round(1000 * found[min(len(found) - 1, int(0.99 * len(found)))], 2)}
            sample[server.name] = own
        self.all.append(sample)


def restart(server, load, number):
    """Kills or ends the server in the middle of its work, starts it and compares what it has."""
    status = server.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
    if number % 2 == 0 and status != 0:
        load.record.fault(f"{server.name}: SIGTERM ended it with the status {status}")
    server.start()
    check(server, load)


def check(server, load):
    client = Client(server, "10.9.9.9")
    for writer in load.writers:
        writer.lock.acquire()
    try:
        for writer in load.writers:
            writer.check(client)
    finally:
        client.close()
        for writer in load.writers:
            writer.lock.release()


def check_audit(server, load):
    """Every acknowledged change is in the log."""
    logged = Counter()
    for line in (server.folder / "audit.jsonl").read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            # A line that was cut when the server was killed.
            continue
        logged[entry.get("change"), entry.get("item")] += 1
    for writer in load.writers:
        for change, made in (("add", writer.added), ("remove", writer.removed)):
            for item, count in made.items():
                if logged[change, item] < count:
                    load.record.fault(f"{server.name}: the audit log lacks {change} {item}")
    return sum(logged.values())


def idle(server):
    """Memory and files when no client is connected."""
    time.sleep(15)
    return memory(server.process.pid)


def drive(options, folder):
    record, servers, loads = Record(), [], []
    for number, name in enumerate(("stays", "restarted")):
        own = folder / name
        own.mkdir()
        arguments = ["--writable", "--audit", "audit.jsonl", "--trusted-proxy", "127.0.0.1", "--client-requests", 400]
        arguments += ["--client-uploads", UPLOADS_OF_A_CLIENT, "--thumbnails", own / "thumbnails"]
        for gallery, kind in zip(GALLERIES, ("hnsw", "exact")):
            shutil.copy(folder / f"{kind}.index", own / f"{gallery}.index")
            arguments += ["--gallery", f"{gallery}={own / gallery}.index"]
        server = Server(name, options.program, own, arguments, dict(pair.split("=", 1) for pair in options.set))
        server.start()
        servers.append(server)
        loads.append(Load(server, record, number, (1, 0.5)[number]))
    before = idle(servers[0])
    [load.start() for load in loads]
    samples = Samples(servers, record)
    end = samples.begin + 60 * options.minutes
    reloads, restarts = 0, 0
    next_restart, next_reload = samples.begin + options.restart_every, samples.begin + 20
    admin = [Client(server, "10.0.8.0", keep=False) for server in servers]
    while time.monotonic() < end:
        time.sleep(max(0, samples.begin + INTERVAL * (len(samples.all) + 1) - time.monotonic()))
        samples.take()
        now = time.monotonic()
        for server, code in ((server, server.process.poll()) for server in servers):
            if code is not None:
                record.fault(f"{server.name}: the server ended with the status {code}")
                return record, samples, loads, servers, before, None, reloads, restarts
        if now >= next_reload:
            next_reload = now + 30
            reloads += 1
            for server, load, client in zip(servers, loads, admin):
                if reloads % 2:
                    server.process.send_signal(signal.SIGHUP)
                else:
                    query = "?all=true" if reloads % 4 == 0 else ""
                    load.ask(client, "reload", "POST", f"/api/v1/reload{query}", {200}, None, AUTHORIZED)
        if now >= next_restart:
            next_restart = now + options.restart_every
            restart(servers[1], loads[1], restarts)
            restarts += 1
        if options.partial:
            write(options, record, samples, None)
    [load.stop() for load in loads]
    [check(server, load) for server, load in zip(servers, loads)]
    return record, samples, loads, servers, before, idle(servers[0]), reloads, restarts


def write(options, record, samples, summary):
    out = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with record.lock:
        counts = dict(sorted(record.counts.items()))
    out.with_suffix(".json").write_text(json.dumps({"summary": summary, "answers": counts, "faults": record.faults, "samples": samples.all}, indent=1))
    line = lambda server, value: [(s["seconds"] / 60, value(s[server])) for s in samples.all if server in s and value(s[server]) is not None]
    of = lambda *path: lambda own: own.get(path[0]) if len(path) == 1 else own.get(path[0], {}).get(path[1])
    mib = lambda name: lambda own: own[name] / MIB
    rows = [
        ("memory of the server that stays, MiB", [("resident", line("stays", mib("rss"))), ("anonymous", line("stays", mib("anonymous"))), ("PSS", line("stays", mib("pss")))]),
        ("memory of the server that is restarted, MiB", [("resident", line("restarted", mib("rss")))]),
        ("open files", [("stays", line("stays", of("files"))), ("restarted", line("restarted", of("files")))]),
        ("threads", [("stays", line("stays", of("threads"))), ("restarted", line("restarted", of("threads")))]),
        ("p99 of 10 s, ms, server that stays", [("search", line("stays", of("search", "p99"))), ("upload", line("stays", of("upload", "p99"))), ("add", line("stays", of("add", "p99")))]),
    ]
    if all(points for _, lines in rows for _, points in lines):
        out.with_suffix(".svg").write_text(chart.panels("serve under mixed load", "minutes", rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/gallerist")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--restart-every", type=float, default=150, help="seconds")
    parser.add_argument("--out", type=Path, default=Path("soak-serve"))
    parser.add_argument("--folder", type=Path, help="of the galleries; a temporary one that is removed unless given")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment variables of the servers")
    parser.add_argument("--partial", action="store_true", help="write the files at every sample")
    options = parser.parse_args()
    options.program, options.out = options.program.resolve(), options.out.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "exact.index").exists():
            prepare(options.program, folder)
        record, samples, loads, servers, before, after, reloads, restarts = drive(options, folder)
        logged = [check_audit(server, load) for server, load in zip(servers, loads)]
        for server in servers:
            if server.process.poll() is None and server.stop() != 0:
                record.fault(f"{server.name}: SIGTERM did not end it with the status 0")
        notes = [line for server in servers for line in (server.folder / f"{server.name}.log").read_text().splitlines() if "panicked" in line]
        [record.fault(note) for note in notes]
    stays = [sample["stays"] for sample in samples.all if "stays" in sample]
    flat = {}
    for name in ("rss", "anonymous", "pss"):
        is_flat, middle, last = plateau([own[name] for own in stays])
        flat[name] = {"middle third, MiB": round(middle / MIB, 1), "last third, MiB": round(last / MIB, 1)}
        if not is_flat:
            record.fault(f"memory has no plateau: {name} {flat[name]}")
    if after and after["files"] > before["files"]:
        record.fault(f"files: {before['files']} before the load, {after['files']} after it")
    statuses = Counter()
    for key, count in record.counts.items():
        statuses[key.rsplit(" ", 1)[1]] += count
    all_times = lambda kind, at: sorted(own[kind][at] for own in stays if kind in own)
    middle = lambda values: values[len(values) // 2] if values else None
    summary = {
        "minutes": round(samples.all[-1]["seconds"] / 60, 1),
        "answers": sum(record.counts.values()),
        "statuses": dict(sorted(statuses.items())),
        "faults": len(record.faults),
        "restarts": restarts,
        "reloads": reloads,
        "changes acknowledged": sum(sum(writer.added.values()) + sum(writer.removed.values()) for load in loads for writer in load.writers),
        "entries in the audit logs": logged,
        "memory": flat,
        "idle before and after": {name: [before[name], after and after[name]] for name in ("rss", "anonymous", "files", "threads")},
        "cpu share, mean": {s.name: round(sum(x[s.name].get("cpu share", 0) for x in samples.all if s.name in x) / len(samples.all), 3) for s in servers},
        "client cpu share, mean": round(sum(os.times()[:2]) / samples.all[-1]["seconds"], 3),
        "median of p50 and p99, ms": {kind: [middle(all_times(kind, "p50")), middle(all_times(kind, "p99"))] for kind in ("search", "upload", "add", "page")},
    }
    write(options, record, samples, summary)
    print(json.dumps(summary, indent=1))
    return 1 if record.faults else 0


if __name__ == "__main__":
    sys.exit(main())
