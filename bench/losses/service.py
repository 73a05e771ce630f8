"""Talks with the losses of this project: `cargo bench -p gallerist-loss --bench loss -- --serve`."""

import json
import os
import subprocess
import tempfile

import numpy as np

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


class Service:
    """The process that answers, and a folder for the files that go between."""

    def __init__(self, binary=None, threads=2):
        command = [binary] if binary else ["cargo", "bench", "-q", "-p", "gallerist-loss", "--bench", "loss", "--"]
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [*command, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def load(self, x, labels):
        """Makes a batch the one that is asked about."""
        self.x = np.ascontiguousarray(x, dtype=np.float32)
        self.x.tofile(self.path("x"))
        np.ascontiguousarray(labels, dtype=np.uint32).tofile(self.path("labels"))

    def ask(self, loss, repeat=1, gradient=False):
        """The reply as a dictionary; with `gradient`, the gradient as an array under that key."""
        request = {
            "loss": loss,
            "embeddings": self.path("x"),
            "labels": self.path("labels"),
            "dimensions": self.x.shape[1],
            "repeat": repeat,
            "gradient": self.path("gradient") if gradient else None,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "error" in reply:
            raise RuntimeError(f"{loss['name']}: {reply['error']}")
        if gradient:
            reply["gradient"] = np.fromfile(self.path("gradient"), dtype=np.float32).reshape(self.x.shape)
        return reply
