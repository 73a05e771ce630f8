#!/usr/bin/env python3
"""Memory of a long training and of a large embedding: it must not depend on the count.

    bench/soak/train.py [--program target/release/gallerist] [--steps 20000] [--images 200000] [--out soak-train]

Trains a tiny network for so many steps, with a checkpoint and a validation at each tenth, and embeds a folder of so many files,
which are further names (hard links) of a few hundred pictures of 28 x 28. Memory is noted twice a second. OUT.json and OUT.svg are
written. The exit status is 1 if a command fails, or if the median of its memory in the last third of the time is more than 10 % +
4 MiB above that of the middle third. Only the standard library is needed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import chart
import pictures
from common import MIB, ROOT, memory, plateau

DIMENSIONS = 8
CLASSES, PER_CLASS = 16, 20


def watch(command, folder):
    """Seconds, resident and anonymous memory of a command."""
    begin, samples = time.monotonic(), []
    with open(folder / "output.log", "w") as log:
        process = subprocess.Popen([str(part) for part in command], cwd=folder, stdout=log, stderr=log)
        while process.poll() is None:
            try:
                own = memory(process.pid)
                samples.append({"seconds": round(time.monotonic() - begin, 1), **{name: own[name] for name in ("rss", "anonymous", "threads", "files", "cpu")}})
            except (OSError, KeyError, ValueError):
                pass
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{command}: status {process.returncode}\n{(folder / 'output.log').read_text()[-2000:]}")
    # A command that ends has given its memory back.
    return [sample for sample in samples if sample["rss"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/gallerist")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("soak-train"))
    parser.add_argument("--nice", type=int, default=19, help="priority of the commands; 19 is the lowest")
    options = parser.parse_args()
    program, out = options.program.resolve(), options.out.resolve()
    os.nice(options.nice)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for kind in range(CLASSES):
            (folder / f"photos/class{kind}").mkdir(parents=True)
            for number in range(PER_CLASS):
                (folder / f"photos/class{kind}/{number}.png").write_bytes(pictures.png(kind, number, 28))
        (folder / "run.toml").write_text(f"""
[train]
steps = {options.steps}
seed = 1
checkpoint_every = {max(1, options.steps // 10)}
[data]
train = ["photos"]
[validation]
every = {max(1, options.steps // 10)}
[image]
size = 12
channels = 1
[sampler]
kind = "classes_images"
classes_per_batch = 4
images_per_class = 2
[network]
kind = "conv_blocks"
channels = [4, 4]
dimensions = {DIMENSIONS}
[loss]
name = "rll"
""")
        # Each is a file of its own for the program: another name of one of the few.
        for number in range(options.images):
            kind, image = number % CLASSES, number // CLASSES
            own = folder / f"many/class{kind}"
            if image == 0:
                own.mkdir(parents=True)
            os.link(folder / f"photos/class{kind}/{image % PER_CLASS}.png", own / f"{image}.png")
        results, faults = {}, []
        commands = {
            "train": [program, "train", "run.toml", "--out", "run"],
            "embed": [program, "embed", "--run", "run", "--images", "many", "--out", "many.safetensors"],
        }
        for name, count, unit in (("train", options.steps, "steps"), ("embed", options.images, "images")):
            samples = watch(commands[name], folder)
            results[name] = {"count": count, "unit": unit, "samples": samples}
            seconds = samples[-1]["seconds"]
            tenths = [min(samples, key=lambda s: abs(s["seconds"] - seconds * share / 10)) for share in range(1, 11)]
            results[name]["resident at each tenth of the time, MiB"] = [round(sample["rss"] / MIB, 1) for sample in tenths]
            is_flat, middle, last = plateau([sample["rss"] for sample in samples])
            results[name]["plateau"] = {"middle third, MiB": round(middle / MIB, 1), "last third, MiB": round(last / MIB, 1), "is flat": is_flat}
            if not is_flat:
                faults.append(name)
            print(json.dumps({name: {key: value for key, value in results[name].items() if key != "samples"}, "seconds": seconds}), flush=True)
    out.with_suffix(".json").write_text(json.dumps(results, indent=1))
    write_chart(results, out.with_suffix(".svg"))
    return 1 if faults else 0


def write_chart(results, path):
    share = lambda name, seconds: 100 * seconds / results[name]["samples"][-1]["seconds"]
    line = lambda name, value: [(share(name, s["seconds"]), s[value] / MIB) for s in results[name]["samples"]]
    rows = [(f"{name}, {results[name]['count']:,} {results[name]['unit']}: memory, MiB", [(value, line(name, value)) for value in ("rss", "anonymous")]) for name in results]
    path.write_text(chart.panels("Memory of a long training and of a large embedding", "percent of the time", rows))


if __name__ == "__main__":
    sys.exit(main())
