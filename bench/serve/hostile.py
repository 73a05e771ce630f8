#!/usr/bin/env python3
"""The times of a good client's uploads while other clients flood the server.

    bench/serve/hostile.py RUN IMAGE [--program target/release/gallerist] [--seconds 20] [--clients 4] [--connections 16]

RUN is a run directory with `embeddings.safetensors`, IMAGE is uploaded. The good client uploads ten images per second over
one connection; each hostile client uploads as fast as it is answered over its connections. Three cases: the good client alone,
with hostile clients, and with hostile clients and `--client-uploads`. Clients are told apart by `X-Forwarded-For`.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import threading
import time
from pathlib import Path

from shared import FORM, form, milliseconds, serving

GOOD = 10
LIMIT = 2 * GOOD


class Client:
    def __init__(self, port, address, body):
        self.port, self.body = port, body
        self.headers = {**FORM, "X-Forwarded-For": address}
        self.connection = None

    def upload(self):
        """The status; 0 without an answer."""
        try:
            self.connection = self.connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.connection.request("POST", "/api/v1/search/upload", self.body, self.headers)
            answer = self.connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            self.connection = None
            return 0


def flood(port, address, body, connections, end, counts):
    # The processor of a remote client is not the server's.
    os.nice(19)

    def one():
        client = Client(port, address, body)
        while time.monotonic() < end:
            status = client.upload()
            with counts.get_lock():
                counts[0 if status == 200 else 1 if status == 429 else 2] += 1
    threads = [threading.Thread(target=one) for _ in range(connections)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def case(options, name, clients, more):
    gallery = options.run / "embeddings.safetensors"
    with serving(options.program, gallery, "--trusted-proxy", "127.0.0.1", *more) as port:
        times, refused, counts = measured(options, port, clients)
    p50, p99 = [round(milliseconds(times, share), 1) for share in (0.5, 0.99)]
    print(json.dumps({"case": name, "answered": len(times), "refused": refused, "p50_ms": p50, "p99_ms": p99, "hostile_200_429_other": counts}))


def measured(options, port, clients):
    """The seconds of the good client's uploads, how many were refused, and the answers to the hostile clients."""
    body = form(options.image.read_bytes())
    good = Client(port, "10.0.0.1", body)
    assert good.upload() == 200
    counts = multiprocessing.Array("l", 3)
    begin = time.monotonic()
    end = begin + options.seconds + 1
    hostile = [multiprocessing.Process(target=flood, args=(port, f"10.0.1.{i}", body, options.connections, end, counts)) for i in range(clients)]
    [process.start() for process in hostile]
    time.sleep(1)
    times, refused = [], 0
    begin = time.monotonic()
    for number in range(int(options.seconds * GOOD)):
        time.sleep(max(0, begin + number / GOOD - time.monotonic()))
        start = time.monotonic()
        if good.upload() == 200:
            times.append(time.monotonic() - start)
        else:
            refused += 1
        if time.monotonic() > end:
            break
    [process.join() for process in hostile]
    return times, refused, list(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--program", default="target/release/gallerist")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    case(options, "alone", 0, [])
    case(options, "hostile clients", options.clients, [])
    case(options, "hostile clients, limited", options.clients, ["--client-uploads", str(LIMIT)])


if __name__ == "__main__":
    main()
