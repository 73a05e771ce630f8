#!/usr/bin/env python3
"""Load test of the server: searches by item at 1, 16 and 128 connections.

    cargo build --release -p gallerist-serve --examples
    target/release/examples/load make million.npy 1000000 128
    bench/serve/run.py GALLERY... [--seconds 10] > table.md

Client and server share the machine. Nothing but the standard library is needed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request

from shared import free_port

CONNECTIONS = [1, 16, 128]


def ask(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        return json.load(answer)


def peak_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery", nargs="+")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--target", default=os.environ.get("CARGO_TARGET_DIR", "target"))
    args = parser.parse_args()
    examples = os.path.join(args.target, "release", "examples")
    print(f"load average before: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    print("| items x dimensions | kind | connections | searches/s | p50, ms | p99, ms | errors | peak, MiB |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for gallery in args.gallery:
        port = free_port()
        address = f"127.0.0.1:{port}"
        # Without the background analysis, which would run during the searches.
        environment = {**os.environ, "GALLERIST_ANALYSIS": "0"}
        server = subprocess.Popen([os.path.join(examples, "serve"), gallery, "", str(port)], env=environment)
        try:
            while True:
                try:
                    about = ask(address, "/api/v1/gallery")
                    break
                except OSError:
                    if server.poll() is not None:
                        sys.exit("the server did not start")
                    time.sleep(0.2)
            while ask(address, "/api/v1/map")["state"] == "computing":
                time.sleep(0.5)
            for connections in CONNECTIONS:
                command = [os.path.join(examples, "load"), address, str(connections), str(args.seconds)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                print(
                    f"| {about['count']:,} x {about['dimensions']} | {about['kind']} | {connections} "
                    f"| {found['per_second']:,.0f} | {found['p50_ms']:.2f} | {found['p99_ms']:.2f} "
                    f"| {found['errors']} | {peak_mib(server.pid):,.0f} |",
                    flush=True,
                )
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
