"""The time of a training step on many ranks, from what was measured on few.

    cargo build --release -p gallerist-train --features mpi --example ranks_bench
    for n in 1 2 4; do
        mpirun -n $n --oversubscribe --bind-to none target/release/examples/ranks_bench
    done >measured.jsonl
    python3 bench/scaling/model.py measured.jsonl [--latency 30e-6] [--bandwidth 1.1e9] [--speed 8]

Prints two tables in Markdown: the measured exchanges beside those of the model, and the parts of a step. Standard library
only.
"""

import argparse
import json
import math

# Parameters, layers of batch norm, dimensions of the embedding; seconds an image for forward, backward and update with two
# threads (bench/train_step/README.md).
NETWORKS = {
    "BN-Inception": (10.3e6, 69, 512, 0.871 / 16),
    "ResNet-50": (23.6e6, 53, 512, 0.957 / 8),
    "ViT-S/16": (21.7e6, 0, 384, 1.947 / 16),
}
BATCHES = [180, 1024, 4096, 16384]
RANKS = [1, 4, 16, 64]
# The seconds of NETWORKS were measured with so many threads.
THREADS = 2
# `BUCKET` of gallerist-collective, in bytes.
BUCKET = 4 << 20
# Queries from which the ranks divide the lists: those of more than one block.
DIVIDED = 2880
# Bytes of a query's value that the ranks exchange.
VALUE = 64


class Machine:
    """Rates of a rank and its link: seconds a byte of a rank's own work, latency, bytes a second."""

    def __init__(self, gather, reduce, latency, bandwidth):
        self.own_gather, self.own_reduce = gather, reduce
        self.latency, self.bandwidth = latency, bandwidth

    def gather(self, size, ranks, sharing=1):
        """Seconds of an all_gather whose result has `size` bytes, on cores that `sharing` ranks share."""
        if ranks == 1:
            return 0.0
        wire = size * (ranks - 1) / ranks / self.bandwidth if self.bandwidth else 0.0
        return size * self.own_gather * sharing + math.ceil(math.log2(ranks)) * self.latency + wire

    def reduce(self, size, ranks, sharing=1):
        """Seconds of an all_reduce of `size` bytes: every rank sums a part, and the parts are gathered."""
        if ranks == 1:
            return 0.0
        messages = math.ceil(size / BUCKET) * (ranks - 1 + math.ceil(math.log2(ranks)))
        wire = 2 * size * (ranks - 1) / ranks / self.bandwidth if self.bandwidth else 0.0
        return size * self.own_reduce * sharing + messages * self.latency + wire


def read(path):
    rows = {}
    for line in open(path):
        row = json.loads(line)
        rows[row["operation"], row["ranks"], row["size"], row["dimensions"]] = row["least"]
    return rows


def check(rows):
    """The machine of the measurements, and the table of all exchanges.

    Ranks of one machine exchange by copying, which is their own work. An all_gather of 16 MiB and an all_reduce of
    256 MiB by two ranks give the rates; the other rows show how far they hold.
    """
    smallest, middle, largest = 1 << 10, 1 << 22, 1 << 26
    gather = rows["all_gather", 2, middle, 0] / (middle * 4)
    reduce = rows["all_reduce", 2, largest, 0] / (largest * 4)
    machine = Machine(gather, reduce, rows["all_gather", 2, smallest, 0], None)
    print("| ranks | exchange | bytes | measured, ms | model, ms |\n| ---: | --- | ---: | ---: | ---: |")
    for (operation, ranks, values, _), seconds in sorted(rows.items()):
        if not operation.startswith("all_") or ranks == 1 or values < 1 << 16:
            continue
        model = machine.gather if operation == "all_gather" else machine.reduce
        found = model(values * 4, ranks, sharing=max(1, ranks / 2))
        print(f"| {ranks} | `{operation}` | {values * 4:,} | {seconds * 1e3:.2f} | {found * 1e3:.2f} |")
    return machine


def of_pair(rows, dimensions):
    """Seconds that one thread takes for a pair of the loss, interpolated between the measured dimensions."""
    (low, at_low), (high, at_high) = [
        (d, rows["loss, divided", 2, n, d] * 2 / n**2) for n, d in ((4096, 128), (4096, 512))
    ]
    return at_low + (at_high - at_low) * (dimensions - low) / (high - low)


def step(name, batch, ranks, machine, rows, speed):
    """The parts of a step in seconds."""
    parameters, norms, dimensions, image = NETWORKS[name]
    divided = ranks if batch > DIVIDED else 1
    loss = of_pair(rows, dimensions) / THREADS * batch**2 / divided / speed
    if divided > 1:
        loss += machine.gather(batch * VALUE, ranks) + machine.reduce(batch * dimensions * 4, ranks)
    return {
        "network": image * batch / ranks / speed,
        "batch norm": 2 * norms * machine.gather(ranks * 8 * 1024, ranks),
        "embeddings": machine.gather(batch * dimensions * 4, ranks),
        "loss": loss,
        "gradients": machine.reduce(parameters * 4, ranks),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", help="output of ranks_bench for 1, 2 and 4 ranks")
    parser.add_argument("--latency", type=float, default=30e-6, help="seconds a message takes")
    parser.add_argument("--bandwidth", type=float, default=1.1e9, help="bytes a second of a rank's link")
    parser.add_argument("--speed", type=float, default=8, help="a rank's machine against the one measured on")
    arguments = parser.parse_args()
    rows = read(arguments.measured)
    here = check(rows)
    machine = Machine(here.own_gather, here.own_reduce, arguments.latency, arguments.bandwidth)
    parts = ["network", "batch norm", "embeddings", "loss", "gradients"]
    # The gradients are exchanged during the backward pass, two thirds of a network's time.
    seconds = lambda found: sum(found.values()) - min(found["gradients"], found["network"] * 2 / 3)
    print("\n| network | batch | ranks | " + " | ".join(parts) + " | step | of linear |")
    print("| --- |" + " ---: |" * (len(parts) + 4))
    for name in NETWORKS:
        for batch in BATCHES:
            alone = None
            for ranks in RANKS:
                found = step(name, batch, ranks, machine, rows, arguments.speed)
                total = seconds(found)
                alone = alone or total
                cells = " | ".join(f"{found[part]:.3f}" for part in parts)
                share = 100 * alone / total / ranks
                print(f"| {name} | {batch:,} | {ranks} | {cells} | {total:.2f} | {share:.0f} % |")


if __name__ == "__main__":
    main()
