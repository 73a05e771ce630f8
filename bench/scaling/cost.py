"""What galleries of 10^6, 10^8 and 10^9 images cost to embed and to search, from rates that were measured on two cores.

    python3 bench/scaling/cost.py [--cores 32] [--memory 128] [--price 1.5] [--queries 10000]

`--price` is that of one machine for an hour, in any currency; 1 gives machine hours. Prints a table in Markdown. Standard
library only.
"""

import argparse
import math

# Images a second on two cores that other programs also used, in batches of 32 x 224 x 224 (`inference` of examples/train_step).
EMBED = {"MobileNetV2": 93, "ResNet-50": 21, "ViT-S/16": 17}
# Multiplications and additions a second of exact search on two cores: 14,218 queries in 12,612 x 128
# (docs/benchmarks/retrieval.md).
EXACT = 367e9
# Seconds, bytes a row and queries a second of HNSW on two cores: 1,000,000 x 128 (docs/benchmarks/index.md).
GRAPH_SECONDS, GRAPH_ROWS, GRAPH_BYTES = 260, 1e6, 1304
DIMENSIONS = 128


def amount(value):
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=32, help="of a machine")
    parser.add_argument("--memory", type=float, default=128, help="of a machine, GiB")
    parser.add_argument("--price", type=float, default=1.0, help="of a machine for an hour")
    parser.add_argument("--queries", type=int, default=10_000)
    given = parser.parse_args()
    faster = given.cores / 2
    print("| images | work | machine hours | price | memory, GiB | machines for the memory |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for images in (1e6, 1e8, 1e9):
        rows = images * DIMENSIONS * 4 / 2**30
        works = [(f"embed, {network}", images / rate, None) for network, rate in EMBED.items()]
        works.append((f"exact search, {given.queries:,} queries", 2 * given.queries * images * DIMENSIONS / EXACT, rows))
        growth = math.log(images) / math.log(GRAPH_ROWS)
        graph = images * GRAPH_BYTES / 2**30
        works.append(("graph (HNSW)", images / GRAPH_ROWS * GRAPH_SECONDS * growth, graph))
        for work, seconds, memory in works:
            hours = seconds / faster / 3600
            machines = None if memory is None else math.ceil(memory / given.memory)
            cells = [f"10^{round(math.log10(images))}", work, amount(hours), amount(hours * given.price)]
            cells += ["", ""] if memory is None else [amount(memory), str(machines)]
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
