#!/usr/bin/env python3
"""Load test of uploads: searches by image at 1, 4, 16 and 64 connections.

    bench/serve/uploads.py GALLERY IMAGE... [--seconds 10] [--rounds 3] [--binary PATH ...]

GALLERY is a file of embeddings with a run, each IMAGE a file that is uploaded, in turn. With several programs their
servers run one after the other in every round, and the median of the rounds is printed. Client and server share the
machine. Nothing but the standard library is needed.
"""

import argparse
import http.client
import statistics
import threading
import time

from shared import FORM, form, milliseconds, serving

CONNECTIONS = [1, 4, 16, 64]


def load(port, bodies, connections, seconds):
    """Answers per second, errors, and the seconds of all answers."""
    end = time.monotonic() + seconds
    times, errors = [], []

    def client(number):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        count = number
        while time.monotonic() < end:
            start = time.monotonic()
            connection.request("POST", "/api/v1/search/upload", bodies[count % len(bodies)], FORM)
            answer = connection.getresponse()
            answer.read()
            (times if answer.status == 200 else errors).append(time.monotonic() - start)
            count += connections

    start = time.monotonic()
    threads = [threading.Thread(target=client, args=[number]) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(times) / (time.monotonic() - start), len(errors), times


def serve(binary, gallery, bodies, seconds):
    """Figures for each number of connections: requests per second, p50, p99 (ms), errors."""
    with serving(binary, gallery) as port:
        load(port, bodies, 2, 1)
        found = []
        for connections in CONNECTIONS:
            rate, errors, times = load(port, bodies, connections, seconds)
            found.append((rate, milliseconds(times, 0.5), milliseconds(times, 0.99), errors))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", nargs="+", default=["target/release/gallerist"])
    args = parser.parse_args()
    bodies = [form(open(image, "rb").read()) for image in args.images]
    rounds = [[serve(binary, args.gallery, bodies, args.seconds) for binary in args.binary] for _ in range(args.rounds)]
    print("| program | connections | uploads/s | p50, ms | p99, ms | errors |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for number, connections in enumerate(CONNECTIONS):
        for which, binary in enumerate(args.binary):
            figures = zip(*(found[which][number] for found in rounds))
            rate, p50, p99, errors = (statistics.median(values) for values in figures)
            print(f"| {binary} | {connections} | {rate:.0f} | {p50:.1f} | {p99:.1f} | {errors:.0f} |")


if __name__ == "__main__":
    main()
