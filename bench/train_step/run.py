"""Times training steps of complete networks, compared with PyTorch, alternating in one run; or forward passes only.

    python bench/train_step/run.py [CASE ...] [--freeze none statistics all] [--steps 3] [--rounds 5]
        [--inference 1 32] [--threads 2] [--weights FILE] [--binary PATH] [--without-peer] [--without-pytorch]
        [--pin] [--engine] [--direct] [--bf16] [--memory] [--markdown FILE]

Without a CASE all are run. Needs torch, torchvision, timm, safetensors and numpy; --inference, which takes the sizes of
the batches, measures onnxruntime, too, on the ONNX file that Gallerist writes, and with --without-pytorch needs only
onnxruntime and numpy. All sides start from the same weights, see the same images (numbers) and take the same steps: the
mean square of the embeddings, SGD with momentum; with --inference, a step is a forward pass, without the mean square. With
--bf16 the sides are measured with products in bf16, too. In every round each side takes a few steps; the first round
warms up.

It prints for each side the median wall time of a step in ms and, in brackets, the mean CPU time of all threads in ms;
Gallerist's wall time as a part of each peer's (the median over the rounds of the quotient of both medians of a round, and
in brackets the quotient of the times that a tenth of all steps stay below); and the largest relative difference of the
losses of the first three steps.

--pin gives every thread of Gallerist and onnxruntime a processor of its own: some systems let two threads share one for tens
of milliseconds although another is idle, which halves the speed of short passes. It needs --without-pytorch.

With --memory each side takes --steps steps in a separate process. It prints the peak resident memory in MB, and the memory
before the network is created: Python and its libraries.

MobileNetV2 starts from --weights (MXNet's), as in fine-tuning; without --weights, from random weights.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "networks"))


def cases():
    """Name: network as in a run file, the same in PyTorch (a function, which imports it), shape of the images."""

    def torch(name, *arguments):
        def make():
            import networks

            return getattr(networks, name)(*arguments)

        return make

    def mobilenet(shape):
        config = {"kind": "mobilenet_v2", "layout": "mxnet", "dimensions": 0}
        return config, torch("MobileNetV2MxNet"), shape

    def resnet(depth):
        config = {"kind": "resnet", "depth": depth, "dimensions": 128}
        return config, torch("ResNet", depth, "average", 0, 128), [8, 3, 224, 224]

    return {
        "mobilenet-16x224": mobilenet([16, 3, 224, 224]),
        "mobilenet-66x128": mobilenet([66, 3, 128, 128]),
        "mobilenet-66x224": mobilenet([66, 3, 224, 224]),
        "efficientnet_lite0": (
            {"kind": "efficientnet_lite", "layout": "timm_tf", "dimensions": 128},
            torch("EfficientNet", "tf_efficientnet_lite0", 128),
            [16, 3, 224, 224],
        ),
        "efficientnet_b0": (
            {"kind": "efficientnet", "layout": "timm_tf", "dimensions": 128},
            torch("EfficientNet", "tf_efficientnet_b0", 128),
            [16, 3, 224, 224],
        ),
        "mobilenet_v3": (
            {"kind": "mobilenet_v3", "dimensions": 128},
            torch("Torchvision", "mobilenet_v3_large", 960, 128),
            [16, 3, 224, 224],
        ),
        "small": ({"kind": "conv_blocks", "dimensions": 128}, torch("ConvBlocks"), [180, 1, 28, 28]),
        "resnet18": resnet(18),
        "resnet50": resnet(50),
        "bn_inception": (
            {"kind": "bn_inception", "dimensions": 128, "heads": ["L", "M", "H"]},
            torch("BnInception", 128, False),
            [16, 3, 227, 227],
        ),
        "vit-s16": ({"kind": "vit", "dimensions": 128}, torch("VisionTransformer"), [16, 3, 224, 224]),
    }


def threads_of(process):
    return {int(thread) for thread in os.listdir(f"/proc/{process}/task")}


def pin(threads, processors):
    """Gives each thread a processor of its own."""
    assert len(threads) == len(processors), (threads, processors)
    for thread, processor in zip(sorted(threads), processors):
        os.sched_setaffinity(thread, {processor})


class Ours:
    def __init__(self, command, config, shape, weights, threads, kernels, products, inference, onnx, processors):
        request = {"network": config, "shape": shape, "weights": weights, "kernels": kernels, "products": products}
        request = json.dumps(dict(request, inference=inference, onnx=onnx))
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
        self.process = subprocess.Popen(
            [*command, request], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        assert self.process.stdout.readline() == "ready\n"
        if processors:
            pin(threads_of(self.process.pid) - {self.process.pid}, processors)

    def processor_time(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class InProcess:
    """A side that computes in this process, a `step` at a time. `loss` is that of what a step gives."""

    def processor_time(self):
        return time.process_time()

    def steps(self, count):
        steps = []
        for _ in range(count):
            start = time.perf_counter()
            result = self.step()
            steps.append((time.perf_counter() - start, self.loss(result)))
        return steps

    def close(self):
        pass


class PyTorch(InProcess):
    def __init__(self, network, weights, shape, freeze, channels_last, bf16, inference):
        import numpy as np
        import torch
        from safetensors.torch import load_file

        self.torch = torch
        missing, unexpected = network.load_state_dict(load_file(weights), strict=False)
        assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing), (missing, unexpected)
        self.bf16, self.inference = bf16, inference
        network.train(not inference)
        for module in network.modules():
            if freeze != "none" and isinstance(module, torch.nn.BatchNorm2d):
                module.eval().requires_grad_(freeze == "statistics")
        self.images = torch.from_numpy(images(shape))
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.network = network.to(memory_format=layout)
        self.images = self.images.to(memory_format=layout)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=0.01, momentum=0.9)

    def forward(self):
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.bf16):
            return self.network(self.images)

    def mean_square(self, outputs):
        return sum(output.float().square().mean() for output in outputs)

    def step(self):
        if self.inference:
            with self.torch.inference_mode():
                return self.forward()
        self.optimizer.zero_grad()
        loss = self.mean_square(self.forward())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def loss(self, result):
        return self.mean_square(result).item() if self.inference else result


class OnnxRuntime(InProcess):
    def __init__(self, path, shape, threads, heads, processors):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        others = threads_of(os.getpid()) - {os.getpid()}
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        if processors:
            pin(threads_of(os.getpid()) - others, processors)
        self.images, self.heads = images(shape), heads

    def step(self):
        return self.session.run(None, {self.session.get_inputs()[0].name: self.images})

    def loss(self, outputs):
        # All heads come as one row; they are of equal length.
        return self.heads * float((outputs[0] ** 2).mean())


def images(shape):
    import numpy as np

    return np.sin(np.arange(np.prod(shape), dtype=np.float64)).astype(np.float32).reshape(shape)


def peak_memory(make, steps):
    """Most resident bytes of a process that makes a side and takes some steps, and those before."""

    def resident(process, line):
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        return int(status.partition(f"{line}:")[2].split()[0]) * 1024

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = resident("self", "VmRSS")
        side = make()
        side.steps(steps)
        process = getattr(side, "process", None)
        found = [resident(process.pid, "VmHWM"), 0] if process else [resident("self", "VmHWM"), before]
        os.write(write, json.dumps(found).encode())
        side.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as result:
        found = json.loads(result.read())
    os.waitpid(child, 0)
    return found


def measure(sides, steps, rounds):
    """Per side: seconds of all steps by round, mean processor seconds, losses."""
    seconds, processor, losses = [{name: [] for name in sides} for _ in range(3)]
    order = list(sides)
    for turn in range(rounds + 1):
        # The threads of the side before wait for work in a loop for some time. No side always follows the same one.
        random.shuffle(order)
        for name in order:
            side = sides[name]
            time.sleep(0.1)
            before = side.processor_time()
            taken = side.steps(steps)
            losses[name] += [loss for _, loss in taken]
            if turn > 0:
                processor[name].append((side.processor_time() - before) / steps)
                seconds[name].append([time for time, _ in taken])
    return {name: (seconds[name], statistics.mean(processor[name]), losses[name]) for name in sides}


def quotient(ours, theirs):
    """Of the seconds of all steps by round: median over the rounds, and of what a tenth of the steps stay below."""

    def tenth(rounds):
        steps = sorted(second for steps in rounds for second in steps)
        return steps[len(steps) // 10]

    medians = [statistics.median(a) / statistics.median(b) for a, b in zip(ours, theirs)]
    return f"{statistics.median(medians):.2f} ({tenth(ours) / tenth(theirs):.2f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", nargs="*")
    parser.add_argument("--freeze", nargs="+", default=["none"], choices=["none", "statistics", "all"])
    parser.add_argument("--inference", nargs="+", type=int, default=[], help="forward passes alone, of these batches")
    parser.add_argument("--steps", type=int, default=3, help="steps of a side in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", help="MXNet's weights of MobileNetV2")
    parser.add_argument("--binary", help="the example as built; default: cargo run")
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--without-pytorch", action="store_true", help="of the peers, measure onnxruntime alone")
    parser.add_argument("--pin", action="store_true", help="give each thread a processor; needs --without-pytorch")
    parser.add_argument("--engine", action="store_true", help="measure the engine without our kernels, too")
    parser.add_argument("--direct", action="store_true", help="measure Gallerist without Winograd's algorithm, too")
    parser.add_argument("--bf16", action="store_true", help="measure products in bf16, too")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")
    parser.add_argument("--markdown", help="file to append the table to")
    options = parser.parse_args()
    if options.pin and not (options.without_pytorch or options.without_peer):
        parser.error("--pin needs --without-pytorch")
    allowed = os.sched_getaffinity(0)
    processors = sorted(allowed)[: options.threads] if options.pin else []
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    known = cases()
    command = ["cargo", "run", "-q", "--release", "-p", "gallerist-train", "--example", "train_step", "--"]
    command = [str(pathlib.Path(options.binary).resolve())] if options.binary else command

    sides_of_table = ["Gallerist"] + ["Gallerist, direct"] * options.direct
    without_pytorch = options.without_peer or options.without_pytorch
    sides_of_table += [] if without_pytorch else ["PyTorch", "PyTorch, channels last"]
    sides_of_table += ["onnxruntime"] if options.inference and not options.without_peer else []
    sides_of_table += ["Burn without the kernels"] if options.engine else []
    if options.bf16:
        without = ("onnxruntime", "Gallerist, direct")
        sides_of_table += [f"{side}, bf16" for side in sides_of_table if side not in without]
    kind = "batch" if options.inference else "frozen"
    first, *others = sides_of_table
    headings = ["network", kind, *sides_of_table]
    headings += [] if options.memory else [*(f"{first} / {other}" for other in others), "losses differ by"]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    print("\n".join(lines))
    for name in options.case or known:
        config, make, shape = known[name]
        for variant in options.inference or options.freeze:
            freeze = "none" if options.inference else variant
            if options.inference:
                shape = [variant, *shape[1:]]
            with tempfile.TemporaryDirectory() as folder:
                weights, onnx = os.path.join(folder, "weights.safetensors"), os.path.join(folder, "model.onnx")
                config = dict(config, freeze_batch_norm=freeze)
                if options.weights and config["kind"] == "mobilenet_v2":
                    config["weights"] = os.path.abspath(options.weights)
                inference = bool(options.inference)

                def made(side):
                    bf16 = side.endswith("bf16")
                    if side.startswith("PyTorch"):
                        last = "channels last" in side
                        return PyTorch(make(), weights, shape, freeze, last, bf16, inference)
                    if side == "onnxruntime":
                        return OnnxRuntime(onnx, shape, options.threads, len(config.get("heads", [0])), processors)
                    kernels, file = side.startswith("Gallerist"), onnx if inference else None
                    products = "bf16" if bf16 else "f32-direct" if side.endswith("direct") else "f32"
                    computed = (kernels, products, inference)
                    return Ours(command, config, shape, weights, options.threads, *computed, file, processors)

                if options.memory:
                    peaks = [peak_memory(lambda side=side: made(side), options.steps) for side in sides_of_table]
                    cells = [f"{peak / 1e6:.0f} ({before / 1e6:.0f})" for peak, before in peaks]
                    lines.append(f"| {name} | {variant} | " + " | ".join(cells) + " |")
                    print(lines[-1], flush=True)
                    continue
                os.sched_setaffinity(0, allowed)
                sides = {side: made(side) for side in sides_of_table}
                figures = measure(sides, options.steps, options.rounds)
                for side in sides.values():
                    side.close()
            losses = [figure[2][:3] for figure in figures.values()]
            off = max(abs(a - b) / abs(b) for other in losses for a, b in zip(losses[0], other))
            digits = 1 if inference else 0
            medians = [statistics.median(sum(rounds, [])) for rounds, _, _ in figures.values()]
            times = [
                f"{1e3 * median:.{digits}f} ({1e3 * processor:.{digits}f})"
                for median, (_, processor, _) in zip(medians, figures.values())
            ]
            quotients = [quotient(figures[first][0], figures[other][0]) for other in others]
            lines.append(f"| {name} | {variant} | " + " | ".join([*times, *quotients, f"{off:.1e}"]) + " |")
            print(lines[-1], flush=True)
    if options.markdown:
        with open(options.markdown, "a") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
