"""Checks and times a device; started by bench/gpu.sh, described in bench/gpu/README.md.

Needs Python only. PyTorch, if installed, is timed in the same run; Pillow creates the images of the complete run.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


PARTS = ["losses", "networks", "precision", "steps", "large-batch", "run"]


class Memory:
    """Peak memory reported by nvidia-smi while a block runs; None if nvidia-smi is not available."""

    def __enter__(self):
        self.peak, self.before, self.ended = None, None, threading.Event()
        self.before = self.ask()
        if self.before is not None:
            self.thread = threading.Thread(target=self.watch)
            self.thread.start()
        return self

    @staticmethod
    def ask():
        if shutil.which("nvidia-smi") is None:
            return None
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        found = subprocess.run(command, capture_output=True, text=True)
        lines = found.stdout.split()
        return max(map(int, lines)) if found.returncode == 0 and lines else None

    def watch(self):
        while not self.ended.wait(0.1):
            self.peak = max(self.peak or 0, self.ask() or 0)

    def __exit__(self, *_):
        self.ended.set()
        if self.before is not None:
            self.thread.join()

    def mib(self):
        return None if self.peak is None else self.peak - self.before


class Report:
    """Lines of Markdown, printed and kept."""

    def __init__(self, path):
        self.path, self.lines, self.notes = path, [], 0

    def say(self, line=""):
        print(line, flush=True)
        self.lines.append(line)
        self.path.write_text("\n".join(self.lines) + "\n")

    def table(self, *heads):
        self.say()
        self.row(*heads)
        self.row(*["---"] * len(heads))

    def row(self, *cells):
        self.say("| " + " | ".join(shown(cell) for cell in cells) + " |")

    def look(self, condition):
        self.notes += bool(condition)
        return "**look**" if condition else ""


def shown(cell):
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.1e}" if 0 < abs(cell) < 0.01 else f"{cell:.4g}"
    return str(cell)


class Failed(Exception):
    pass


def run(command, environment=None, limit=None, cwd=ROOT):
    """The lines of JSON that a program prints, its peak of memory on the host in MiB, its seconds."""
    start = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, **(environment or {})},
    )
    watch = threading.Timer(limit, process.kill) if limit else None
    if watch:
        watch.start()
    errors = []
    drain = threading.Thread(target=lambda: errors.append(process.stderr.read()))
    drain.start()
    out = process.stdout.read()
    drain.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if watch:
        watch.cancel()
    if process.returncode != 0:
        text = "".join(errors).strip().splitlines()
        raise Failed(f"exit code {process.returncode}: " + " / ".join(text[-4:]))
    lines = [json.loads(line) for line in out.splitlines() if line.startswith(("{", "["))]
    return lines, usage.ru_maxrss / 1024, time.monotonic() - start


def section(report, title, work):
    """A part whose failure is written down and does not stop the others."""
    report.say(f"\n## {title}")
    try:
        work()
    except Failed as failure:
        report.look(True)
        report.say(f"\n**failed**: {failure}")


def check_losses(report, check, limit):
    lines, _, _ = run([*check, "losses"])
    report.table("loss", "value off", "gradient off", "")
    for line in lines:
        value, gradient = line["value_off"], line["gradient_off"]
        report.row(line["loss"], value, gradient, report.look(not max(value, gradient) <= limit))


def check_networks(report, check, command):
    """Compares the networks side by side: most of the time the CPU computes the reference."""
    names = [line["network"] for line in run([*check, "names"])[0]]
    threads = {"RAYON_NUM_THREADS": str(max(1, os.cpu_count() // len(names)))}
    with concurrent.futures.ThreadPoolExecutor(min(len(names), os.cpu_count())) as pool:
        found = list(pool.map(lambda name: run([*check, command, name], threads)[0], names))
    lines = [line for lines in found for line in lines]
    heads = ["network", "batch norm", "numbers", "outputs off", "gradient off", "worst parameter's", "seconds, compiling included"]
    report.table(*heads, "")
    for line in lines:
        if line.get("there") is False:
            report.row(f"no {line['numbers']} on this device", *[None] * 6, "")
            continue
        pairs = [f"{shown(pair['off'])} ({shown(pair['bound'])})" for pair in (line[key] for key in ("outputs", "gradient", "worst"))]
        report.row(line["network"], line["batch_norm"], line["numbers"], *pairs, line["seconds"], report.look(not line["within"]))


def median_step(seconds):
    return 1000 * statistics.median(seconds[len(seconds) // 2 :])


def smaller(device):
    """The numbers of 16 bits that a device has."""
    return "f16" if device.startswith("wgpu") else "bf16"


def time_steps(report, check, device, cases, steps, compile):
    """Returns the engine's kernels of every case."""
    measured = []
    report.table("network, batch", "numbers", "program", "ms a step", "images/s", "first step, s", "GPU memory, MiB", "last loss")
    for name, (config, peer, shape) in cases.items():
        for precision in ["f32", smaller(device)]:
            batch = f"{name}, {' x '.join(map(str, shape))}"
            if not (precision == "bf16" and device == "cpu"):
                with Memory() as memory:
                    command = [*check, "step", json.dumps(config), ",".join(map(str, shape)), precision, steps]
                    try:
                        lines, _, _ = run(command)
                    except Failed as failure:
                        report.look(True)
                        report.row(batch, precision, "Gallerist", f"failed: {failure}", None, None, None, None)
                        lines = None
                if lines:
                    seconds = lines[0]["seconds"]
                    ms = median_step(seconds)
                    report.row(batch, precision, "Gallerist", ms, 1000 * shape[0] / ms, seconds[0], memory.mib(), lines[0]["losses"][-1])
                    if lines[0]["kernels"]:
                        measured.append((batch, precision, lines[0]["kernels"]))
            if precision == "f16":
                continue
            with Memory() as memory:
                command = [sys.executable, "bench/gpu/peer.py", peer, ",".join(map(str, shape)), precision, steps]
                try:
                    where = "cpu" if device in ("cpu", "wgpu") else "cuda"
                    lines, _, _ = run([*command, where, *(["compiled"] if compile else [])])
                except Failed as failure:
                    report.row(batch, precision, "PyTorch", f"failed: {failure}", None, None, None, None)
                    continue
            for line in lines:
                if "skipped" in line:
                    program = line.get("program", "PyTorch")
                    report.row(batch, precision, program, f"not timed: {line['skipped']}", None, None, None, None)
                    continue
                ms = median_step(line["seconds"])
                report.row(batch, precision, line["program"], ms, 1000 * shape[0] / ms, line["seconds"][0], memory.mib(), line["losses"][-1])
    return measured


def engine_kernels(report, measured):
    """What the engine's kernels take of a step; those of cuDNN, cuBLAS and our own are not in its measurement."""
    if not measured:
        report.say("\nThe CPU has a profile of its own: `gallerist train --profile`.")
        return
    for batch, precision, found in measured:
        total = sum(kernel["ms"] for kernel in found["kernels"])
        report.say(
            f"\n{batch}, {precision}: {total:.1f} ms of the engine's kernels, in a step of {found['span_ms']:.1f} ms while "
            "they are measured."
        )
        report.table("kernel", "ms a step", "runs a step")
        for kernel in found["kernels"][:15]:
            report.row(f"`{kernel['kernel']}`", kernel["ms"], kernel["runs"])


def loss_steps(report, check, rows, dimensions):
    report.say(f"\nForward and backward of a batch of {rows} x {dimensions}.")
    report.table("loss", "seconds", "GPU memory, MiB", "host memory, MiB")
    for loss in ["rll", "nra", "srt", "ice"]:
        with Memory() as memory:
            lines, host, _ = run([*check, "loss-step", loss, rows, dimensions])
        report.row(loss, min(lines[0]["seconds"]), memory.mib(), host)


PICTURES = """
import random, sys
from PIL import Image
folder, classes, each, width, height = sys.argv[1], *map(int, sys.argv[2:])
import os
draw = random.Random(1)
for label in range(classes):
    os.makedirs(f"{folder}/{label:03}")
    for number in range(each):
        small = Image.frombytes("RGB", (16, 12), bytes(draw.randrange(256) for _ in range(16 * 12 * 3)))
        small.resize((width, height), Image.BICUBIC).save(f"{folder}/{label:03}/{number}.jpg", quality=90)
"""


def whole_run(report, gallerist, device, small):
    """A run of the program on JPEG files: decoding, augmentation, network, loss, optimiser."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        sizes = [6, 4, 120, 90] if small else [60, 12, 500, 375]
        made = subprocess.run([sys.executable, "-c", PICTURES, folder / "images", *map(str, sizes)], capture_output=True, text=True)
        if made.returncode != 0:
            report.say("\nNot timed: Pillow is not installed here, and there are no pictures.")
            return
        network, size, classes, steps = ("conv_blocks", 32, 4, 6) if small else ("resnet", 227, 45, 60)
        text = f"""
[train]
steps = {steps}
checkpoint_every = 0
[data]
train = ["{folder / 'images'}"]
cache_mib = 0
[validation]
fraction = 0
[image]
size = {size}
[augment]
flip = 0.5
[sampler]
kind = "classes_images"
classes_per_batch = {classes}
images_per_class = 4
[network]
kind = "{network}"
{'depth = 50' if network == 'resnet' else ''}
[optimizer]
learning_rate = 0.001
"""
        (folder / "run.toml").write_text(text)
        report.table("numbers", "images/s", "waited for images, %", "to the first step, s", "GPU memory, MiB", "last loss")
        for precision in ["f32"] if device == "cpu" else ["f32", smaller(device)]:
            out = folder / f"run-{precision}"
            with Memory() as memory:
                command = [gallerist, "train", folder / "run.toml", "--device", device, "--out", out]
                _, _, wall = run([*command, "--set", f"train.precision={precision}"])
            steps_log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
            steps_log = [line for line in steps_log if line["event"] == "step"]
            tail = steps_log[len(steps_log) // 2 :]
            seconds = sum(line["seconds"] for line in tail)
            waited = 100 * sum(line["waited"] for line in tail) / seconds
            first = wall - sum(line["seconds"] for line in steps_log[1:])
            report.row(precision, 4 * classes * len(tail) / seconds, waited, first, memory.mib(), steps_log[-1]["loss"])
        report.say("\nTo the first step: all the time of the program but the later steps (start, kernels compiled, checkpoint, report).")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gallerist", required=True)
    parser.add_argument("--gpu-check", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small batches and few steps, to try the scripts")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--compile", action="store_true", help="PyTorch's compiled networks, too")
    parser.add_argument("--only", help="parts, divided by commas: " + ", ".join(PARTS))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu.md"))
    args = parser.parse_args()
    gallerist, program = (pathlib.Path(path).resolve() for path in (args.gallerist, args.gpu_check))
    check = [program, args.device]
    report = Report(args.out.resolve())
    report.say("# A device checked and timed")
    try:
        lines, _, seconds = run([*check, "device"])
    except Failed as failure:
        sys.exit(f"{args.device} does not answer: {failure}")
    report.say(f"\n`{lines[0]['device']}`, answered after {seconds:.1f} s; {os.cpu_count()} cores on the host.")
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        report.say("\n" + subprocess.run(query, capture_output=True, text=True).stdout.strip())
    report.say("\n“Off” is the difference from the CPU: for losses the largest difference over the largest value, for networks the norm of the difference over the norm.")
    report.say("In brackets: what it may be (README.md); – where any bound would say nothing.")

    # Products on the device may be rounded to TF32, 2^-11.
    limit = 3e-2 if args.device.startswith("cuda") else 1e-3
    wanted = args.only.split(",") if args.only else PARTS
    if unknown := set(wanted) - set(PARTS):
        sys.exit(f"no part {', '.join(unknown)}; the parts: {', '.join(PARTS)}")

    def part(name, title, work):
        if name in wanted:
            section(report, title, work)

    part("losses", "Losses compared with the CPU", lambda: check_losses(report, check, limit))
    part("networks", "Networks compared with the CPU", lambda: check_networks(report, check, "networks"))
    part("precision", "Mixed precision compared with f32 on the CPU", lambda: check_networks(report, check, "precision"))

    steps = args.steps or (4 if args.small else 30)
    inception = {"kind": "bn_inception", "dimensions": 128, "heads": ["L", "M", "H"]}
    cases = {
        "ResNet-50": ({"kind": "resnet", "depth": 50, "dimensions": 128}, "resnet50", [180, 3, 227, 227]),
        "BN-Inception": (inception, "bn_inception", [180, 3, 227, 227]),
        "ViT-S/16": ({"kind": "vit", "dimensions": 128}, "vit_s16", [128, 3, 224, 224]),
    }
    if args.small:
        cases = {name: (config, peer, [2, *shape[1:]]) for name, (config, peer, shape) in cases.items()}
    measured = []
    part("steps", "Training steps", lambda: measured.extend(time_steps(report, check, args.device, cases, steps, args.compile)))
    part("steps", "Kernels of the engine", lambda: engine_kernels(report, measured))
    rows = 512 if args.small else 32768
    part("large-batch", "Losses of a large batch", lambda: loss_steps(report, check, rows, 128))
    part("run", "A whole run", lambda: whole_run(report, gallerist, args.device, args.small))
    report.say(f"\n{report.notes} to look at." if report.notes else "\nNothing to look at.")
    sys.exit(1 if report.notes else 0)


if __name__ == "__main__":
    main()
