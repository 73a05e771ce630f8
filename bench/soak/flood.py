#!/usr/bin/env python3
"""Memory of a server under a flood of hostile uploads.

    bench/soak/flood.py [--program target/release/gallerist] [--uploads 100000] [--folder DIR] [--set NAME=VALUE] [--gdb]

Uploads pictures of an attacker as fast as the server answers, over 64 connections, and notes its memory. `--set` gives
environment variables to the server, for example MALLOC_ARENA_MAX=1. With `--gdb` the C library is asked afterwards how much of
the memory is in use (malloc_stats), and to give back what is not (malloc_trim). Only the standard library is needed.
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import chart
import pictures
from common import FORM, MIB, ROOT, Client, Server, form, memory, prepare

CONNECTIONS, PROCESSES = 64, 2


class At:
    """A server of another process."""

    def __init__(self, port):
        self.port = port

    def life(self):
        return 0


def flood(port, number, uploads, sent, statuses):
    os.nice(10)
    bodies = [(form(image), 1 if "permitted" in name else 10) for name, image, _ in pictures.hostile()]
    bodies = [body for body, weight in bodies for _ in range(weight)]

    def one(seed):
        own, client = random.Random(seed), Client(At(port), f"10.1.{number}.{seed % 200}")
        while True:
            with sent.get_lock():
                if sent.value >= uploads:
                    return
                sent.value += 1
            status, _, _ = client.ask("POST", "/api/v1/search/upload", own.choice(bodies), FORM)
            with statuses.get_lock():
                statuses[min(status // 100, 5)] += 1
    threads = [threading.Thread(target=one, args=(1000 * number + seed,)) for seed in range(CONNECTIONS // PROCESSES)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def ask_gdb(server):
    """System bytes and bytes in use of all arenas, and the resident memory after what is free was given back."""
    call = lambda what: subprocess.run(["gdb", "-p", str(server.process.pid), "-batch", "-ex", f"call {what}"], capture_output=True, text=True)
    call("(void)malloc_stats()")
    text = (server.folder / f"{server.name}.log").read_text()
    total = text[text.rindex("Total") :]
    found = [int(number) for number in re.findall(r"(?:system|in use) bytes +=\s+(\d+)", total)]
    arenas = len(re.findall(r"^Arena ", text, re.M))
    call("(int)malloc_trim(0)")
    return {"arenas": arenas, "system, MiB": round(found[0] / MIB, 1), "in use, MiB": round(found[1] / MIB, 1), "resident after malloc_trim, MiB": round(memory(server.process.pid)["rss"] / MIB, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/gallerist")
    parser.add_argument("--uploads", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="of a prepared gallery; made if it does not exist")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--gdb", action="store_true")
    parser.add_argument("--out", type=Path, help="an SVG of the memory by uploads")
    options = parser.parse_args()
    options.program = options.program.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary) / "flood").resolve()
        if not folder.exists():
            folder.mkdir(parents=True)
            prepare(options.program, folder)
        arguments = ["--gallery", folder / "hnsw.index", "--trusted-proxy", "127.0.0.1", "--analysis-limit", 0]
        (folder / "flooded.log").unlink(missing_ok=True)
        server = Server("flooded", options.program, folder, arguments, dict(pair.split("=", 1) for pair in options.set))
        server.start()
        sent, statuses = multiprocessing.Value("l", 0), multiprocessing.Array("l", 6)
        clients = [multiprocessing.Process(target=flood, args=(server.port, n, options.uploads, sent, statuses)) for n in range(PROCESSES)]
        begin, points = time.monotonic(), []
        own = memory(server.process.pid)
        print(json.dumps({"uploads": 0, "resident": round(own["rss"] / MIB, 1), "anonymous": round(own["anonymous"] / MIB, 1)}), flush=True)
        [client.start() for client in clients]
        while any(client.is_alive() for client in clients):
            time.sleep(1)
            own = memory(server.process.pid)
            points.append((sent.value, own["rss"] / MIB))
        seconds = time.monotonic() - begin
        for share in range(1, 11):
            at = min(points, key=lambda point: abs(point[0] - share * options.uploads / 10))
            print(json.dumps({"uploads": at[0], "resident": round(at[1], 1)}))
        time.sleep(15)
        own = memory(server.process.pid)
        summary = {"set": options.set, "uploads": sent.value, "seconds": round(seconds, 1), "answers 2xx, 4xx, 5xx, none": [statuses[2], statuses[4], statuses[5], statuses[0]],
                   "resident after, idle, MiB": round(own["rss"] / MIB, 1), "anonymous, MiB": round(own["anonymous"] / MIB, 1), "peak, MiB": round(own["peak"] / MIB, 1), "cpu, s": own["cpu"], "threads": own["threads"]}
        if options.gdb:
            summary.update(ask_gdb(server))
        print(json.dumps(summary))
        server.stop()
        if options.out:
            options.out.write_text(chart.panels("serve under a flood of hostile uploads", "uploads", [("resident memory, MiB", [("", points)])]))


if __name__ == "__main__":
    main()
