"""What the tests of the page share: servers, galleries, a page whose console must stay empty."""

import json
import re
import socket
import struct
import subprocess
import time
import unittest
import urllib.request
import zipfile
import zlib
from pathlib import Path

from playwright.sync_api import expect

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "data/omniglot/omniglot_images_evaluation.zip"
# Software rendering of WebGL, for machines without a graphics processor.
FLAGS = ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"]

# The arguments of the command line, the browser, and a folder for files; set by test.py.
options = None
chromium = None
work = None


class Server:
    """`gallerist serve` on a free port, with an address to call."""

    def __init__(self, *arguments, token=None):
        self.token = token
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([options.program, "serve", *map(str, arguments), "--port", str(port)])
        self.until(lambda gallery: True, 30)

    def get(self, path):
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=30) as answer:
            return json.load(answer)

    def until(self, ready, seconds):
        end = time.monotonic() + seconds
        while True:
            try:
                if ready(self.get("/api/v1/gallery")):
                    return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server ended with status {self.process.returncode}") from None
            if time.monotonic() > end:
                raise RuntimeError(f"the server was not ready within {seconds} s")
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def gallerist(*arguments):
    done = subprocess.run([options.program, *map(str, arguments)], check=True, capture_output=True, text=True)
    return done.stdout


def png(path, shade):
    """A grey square of 8 x 8."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes([shade]) * 8 for _ in range(8))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def embeddings(path, rows, labels, paths, cameras=None, **metadata):
    """A safetensors file of embeddings as another program would write it."""
    parts = {
        "embeddings": ("F32", [len(rows), len(rows[0])], b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)),
        "labels": ("U8", None, json.dumps(labels).encode()),
        "paths": ("U8", None, json.dumps(paths).encode()),
    }
    if cameras:
        parts["cameras"] = ("U8", None, json.dumps(cameras).encode())
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, shape, content) in parts.items():
        header[name] = {"dtype": kind, "shape": shape or [len(content)], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def small(name, label):
    """A server of six grey squares of one label, without a network."""
    folder = work / name
    folder.mkdir()
    names = [f"{i}.png" for i in range(6)]
    for i, file in enumerate(names):
        png(folder / file, 40 * i)
    embeddings(work / f"{name}.safetensors", [[1.0, 0.1 * i] for i in range(6)], [label] * 6, names)
    return Server("--gallery", work / f"{name}.safetensors", "--images", folder)


class PageTest(unittest.TestCase):
    """A page of its own for each test, which must leave no error in the console."""

    server = None
    size = {"width": 1360, "height": 860}
    settings = {}

    def setUp(self):
        self.context = chromium.new_context(viewport=self.size, accept_downloads=True, **self.settings)
        self.page = self.context.new_page()
        self.errors = []
        self.expected_errors = 0
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"a dialog opened: {dialog.message}"))

    def tearDown(self):
        self.context.close()
        self.assertEqual(len(self.errors), self.expected_errors, f"errors in the console: {sorted(set(self.errors))}")

    def open(self, hash=""):
        self.page.goto("about:blank")
        self.page.goto(f"{self.server.url}/{hash}")
        return self.page

    def shot(self, name):
        self.page.mouse.move(0, 0)
        self.page.wait_for_load_state("networkidle")
        self.page.screenshot(path=options.out / f"{name}.png")

    def names(self, elements):
        """What a screen reader calls the elements of a locator, all read at one moment: the page may replace them at any time."""
        return elements.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")

    def results(self, where="main"):
        """The names of the results in their order, as a screen reader has them, once there are any."""
        cells = self.page.locator(f"{where} .lists [role=gridcell]")
        expect(cells.first).to_have_attribute("aria-label", re.compile("rank 1,"))
        return [re.match(r"rank (\d+), (.*), distance ([\d.–]+)", name).groups() for name in self.names(cells)]

    def paths(self, where="main"):
        return [name.split(", ")[-1] for _, name, _ in self.results(where)]


class RunTest(PageTest):
    """The gallery of a run, with its network and another run's; the gallery stands for the training images, too."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        other = work / "other"
        cls.serve("--gallery", cls.embeddings, "--compare", other / "embeddings.safetensors", "--training", cls.embeddings)

    @classmethod
    def train(cls):
        cls.run_directory = work / "run"
        cls.embeddings = cls.run_directory / "embeddings.safetensors"
        for seed, folder in [(1, cls.run_directory), (2, work / "other")]:
            if not folder.exists():
                gallerist("train", ROOT / "configs/smoke.toml", "--set", f"train.seed={seed}", "--out", folder)

    @classmethod
    def serve(cls, *arguments):
        """A server with the network of the run, that has computed everything."""
        cls.server = Server("--run", cls.run_directory, *arguments)
        cls.server.until(lambda g: "computing" not in (g["map"], g["failures"]), 120)
        cls.items = cls.server.get("/api/v1/items?limit=500")["items"]
        cls.query = work / "query.png"
        if len(cls.items) > 45 and not cls.query.exists():
            with zipfile.ZipFile(IMAGES) as archive:
                cls.query.write_bytes(archive.read(cls.items[45]["path"]))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
