"""Runs `gallerist loss` and another implementation on random batches and writes a table of the differences."""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file

# (classes, samples of each class, dimensions).
EVEN = [(6, [4] * 6, 16), (10, [2] * 10, 8), (12, [5] * 12, 64)]
UNEVEN = [(5, [2, 3, 4, 6, 5], 16), (8, [2, 2, 7, 3, 2, 4, 2, 3], 32)]
SQUARE = [(4, [4] * 4, 16), (6, [6] * 6, 32)]
PAIRS = [(6, [2] * 6, 16), (20, [2] * 20, 32)]


def batch(classes, sizes, dimensions, seed):
    """Rows around one centre per class, of lengths around 1.3."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), sizes)
    x = random.normal(size=(classes, dimensions))[labels] + 1.2 * random.normal(size=(len(labels), dimensions))
    return x * (1.3 / np.sqrt(2.4 * dimensions)), labels


class Learned:
    """The learned parameters of our loss. They are written when a peer asks for one: not every loss has some."""

    def __init__(self, write):
        self.write, self.values = write, None

    def __getitem__(self, name):
        if self.values is None:
            self.values = {key: torch.from_numpy(p).double() for key, p in self.write().items()}
        return self.values[name]


def ours(program, name, settings, x, labels, normalize, folder):
    """Value, gradient and learned parameters of our loss. `folder` is needed as long as the parameters."""
    path = lambda file: os.path.join(folder, file)
    np.save(path("x.npy"), x)
    np.save(path("y.npy"), labels.astype(np.int64))

    def run(*further):
        command = [program, "loss", "--loss", name, "--json", "--embeddings", path("x.npy"), "--labels", path("y.npy")]
        command += ["--normalize"] * normalize
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run([*command, *further], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")
        return json.loads(done.stdout)["value"]

    def parameters():
        run("--save-parameters", path("p.safetensors"))
        return load_file(path("p.safetensors"))

    value = run("--gradient", path("g.npy"))
    return value, np.load(path("g.npy")), Learned(parameters)


def theirs(peer, x, labels, parameters):
    """Value and gradient of a peer."""
    leaf = torch.from_numpy(x).clone().requires_grad_()
    value = peer(leaf, torch.from_numpy(labels), parameters)
    value.backward()
    return value.item(), leaf.grad.numpy()


def compare(cases, program, tolerance, write, mark):
    """Prints the table, and replaces the one between the marks of the file `write`; 1 if a case that should agree does
    not. A case: our loss, its settings, whether the rows are normalised, the peer's name, the peer, the batches,
    whether they agree."""
    lines = ["| loss | settings | peer | batches | value | gradient |", "| --- | --- | --- | ---: | ---: | ---: |"]
    failed = False
    for name, settings, normalize, what, peer, batches, agrees in cases:
        of_value, of_gradient = 0.0, 0.0
        for seed, (classes, sizes, dimensions) in enumerate(batches):
            x, labels = batch(classes, sizes, dimensions, seed)
            with tempfile.TemporaryDirectory() as folder:
                value, gradient, parameters = ours(program, name, settings, x, labels, normalize, folder)
                peer_value, peer_gradient = theirs(peer, x, labels, parameters)
            of_value = max(of_value, abs(value - peer_value) / max(abs(peer_value), 1e-12))
            difference = np.abs(gradient - peer_gradient).max()
            of_gradient = max(of_gradient, difference / max(np.abs(peer_gradient).max(), 1e-12))
        wrong = agrees and max(of_value, of_gradient) > tolerance
        failed |= wrong
        text = ", ".join(settings) or "–"
        differs = "" if agrees else " (another definition)"
        lines.append(f"| `{name}` | {text} | {what}{differs} | {len(batches)} | {of_value:.0e} | {of_gradient:.0e} |")
        print(name, text, what, f"{of_value:.1e} {of_gradient:.1e}", "DISAGREES" if wrong else "", file=sys.stderr, flush=True)

    table = "\n".join(lines) + "\n"
    print(table)
    if write:
        begin, end = f"<!-- table: {mark} -->\n", "<!-- end -->"
        text = open(write).read()
        before, rest = text.split(begin)
        with open(write, "w") as file:
            file.write(before + begin + "\n" + table + "\n" + end + rest.split(end, 1)[1])
    return int(failed)
