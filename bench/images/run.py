"""Images per second from JPEG files to normalised batches, compared with torchvision, alternating in one run.

    python bench/images/run.py make --archive cub200_2010_224px.zip --folder /tmp/photographs
    python bench/images/run.py compare --folder /tmp/photographs --program target/release/examples/images_bench

`make` needs Pillow, `compare` torch and torchvision; `--pillow-simd` is a Python interpreter with Pillow-SIMD instead of
Pillow, torch and torchvision. See docs/benchmarks/images.md.
"""

import argparse
import io
import os
import random
import resource
import statistics
import subprocess
import sys
import time
import zipfile

THREADS = 2
BATCH = 60
STORED, SIZE = 256, 227
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make(archive, folder, count, width, height):
    """Files of quality 90, 4:2:0: photographs of 224 x 224 pixels side by side, cut to tiles of 167 x 188."""
    from PIL import Image

    draw = random.Random(1)
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(archive) as source:
        names = sorted(n for n in source.namelist() if n.lower().endswith(".jpg"))
        for i in range(count):
            picture = Image.new("RGB", (width, height))
            for top in range(0, height, 188):
                for left in range(0, width, 167):
                    with source.open(draw.choice(names)) as file:
                        picture.paste(Image.open(io.BytesIO(file.read())), (left, top))
            picture.save(f"{folder}/{i:05}.jpg", quality=90, subsampling=2)


def draw_window(side):
    """The crop of the ranked list loss, journal version: (top, left, height, width)."""
    scale, ratio = random.uniform(0.5, 1), random.uniform(3 / 4, 4 / 3)
    width, height = int(side * scale), min(int(side * scale * ratio), side - 1)
    return random.randint(0, side - height), random.randint(0, side - width), height, width


def peers(folder):
    """By name: a DataLoader with as many worker processes as ours has threads."""
    import torch
    import torchvision
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional

    torch.set_num_threads(1)
    paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    class Crop(torch.nn.Module):
        def forward(self, image):
            return functional.resized_crop(image, *draw_window(STORED), [SIZE, SIZE], antialias=True)

    random_part = [v2.Resize((STORED, STORED), antialias=True), Crop(), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]

    def pillow(path):
        from PIL import Image

        with open(path, "rb") as file:
            return Image.open(file).convert("RGB")

    def decode_jpeg(path):
        return torchvision.io.decode_jpeg(torchvision.io.read_file(path), torchvision.io.ImageReadMode.RGB)

    class Files(torch.utils.data.Dataset):
        def __init__(self, read, transform):
            self.read, self.transform = read, transform

        def __len__(self):
            return len(paths)

        def __getitem__(self, i):
            return self.transform(self.read(paths[i])), i

    def loader(read, transform):
        return torch.utils.data.DataLoader(
            Files(read, v2.Compose(transform)),
            batch_size=BATCH,
            num_workers=THREADS,
            persistent_workers=True,
            prefetch_factor=2,
            worker_init_fn=lambda _: torch.set_num_threads(1),
        )

    import PIL

    return {
        f"torchvision, Pillow {PIL.__version__}": loader(pillow, [*random_part, v2.PILToTensor(), *last]),
        "torchvision, its own decoder": loader(decode_jpeg, [*random_part, *last]),
    }


def processor_seconds(pids):
    """User and system time of some processes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def one_pass(loader):
    """Wall time, and CPU time of this process and the workers, for a pass over all batches."""
    start = time.perf_counter()
    batches = iter(loader)
    pids = [os.getpid(), *(worker.pid for worker in batches._workers)]
    before = processor_seconds(pids)
    images = 0
    for batch, _ in batches:
        images += len(batch)
    assert images == len(loader.dataset)
    return time.perf_counter() - start, processor_seconds(pids) - before


def ours(program, folder):
    """The same for Gallerist; its CPU time includes opening the folder."""

    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = children()
    command = [program, folder, *map(str, (STORED, SIZE, THREADS, BATCH))]
    seconds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return seconds, children() - before


def print_pass(folder):
    """A pass with the Pillow of this interpreter, after one that starts the workers."""
    loader = next(loader for name, loader in peers(folder).items() if "Pillow" in name)
    one_pass(loader)
    print(*one_pass(loader))


def other_python(python, folder):
    """The same of another interpreter."""
    command = [python, __file__, "pass", "--folder", folder]
    seconds, processor = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(processor)


def compare(folder, program, pillow_simd, rounds):
    count = len(os.listdir(folder))
    contenders = {"gallerist": lambda: ours(program, folder)}
    for name, loader in peers(folder).items():
        contenders[name] = lambda loader=loader: one_pass(loader)
    if pillow_simd:
        version = "import importlib.metadata as m; print(m.version('pillow-simd'))"
        version = subprocess.run([pillow_simd, "-c", version], check=True, capture_output=True, text=True).stdout
        contenders[f"torchvision, Pillow-SIMD {version.strip()}"] = lambda: other_python(pillow_simd, folder)
    results = {name: [] for name in contenders}
    for number in range(-1, rounds):
        for name, run in contenders.items():
            result = run()
            # Round -1 starts the workers and brings the files into memory.
            if number >= 0:
                results[name].append(result)
            print(number, name, *(f"{count / v:.0f}" for v in result), file=sys.stderr, flush=True)
    print("| | images/s | minimum to maximum | images/s of CPU time |")
    print("| --- | ---: | ---: | ---: |")
    for name, passes in results.items():
        rates = [count / seconds for seconds, _ in passes]
        processor = statistics.median(count / seconds for _, seconds in passes)
        print(f"| {name} | {statistics.median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | {processor:,.0f} |")


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command", required=True)
command = commands.add_parser("make")
command.add_argument("--archive", required=True)
command.add_argument("--folder", required=True)
command.add_argument("--count", type=int, default=1000)
command.add_argument("--width", type=int, default=500)
command.add_argument("--height", type=int, default=375)
command = commands.add_parser("compare")
command.add_argument("--folder", required=True)
command.add_argument("--program", required=True)
command.add_argument("--pillow-simd", metavar="PYTHON")
command.add_argument("--rounds", type=int, default=5)
command = commands.add_parser("pass")
command.add_argument("--folder", required=True)
arguments = parser.parse_args()
if arguments.command == "make":
    make(arguments.archive, arguments.folder, arguments.count, arguments.width, arguments.height)
elif arguments.command == "pass":
    print_pass(arguments.folder)
else:
    compare(arguments.folder, arguments.program, arguments.pillow_simd, arguments.rounds)
