"""Time and retrieval of a network in int8, compared with f32, both by onnxruntime, and the time of Gallerist's.

    python bench/onnx/int8.py MODEL.onnx IMAGES.zip [--mean R G B] [--std R G B] [--threads 2] [--calibration 256]
        [--method entropy minmax percentile] [--queries 3043]
        [--save FOLDER] [--network JSON] [--binary PATH]

Needs onnx, onnxruntime, numpy and pillow. IMAGES.zip is CUB-200 (2010): its last 100 classes, every image against all
others, by cosine similarity. Weights have one scale per channel, activations one scale per tensor, from --calibration of
the same images. Prints Recall@1 and the median wall time of a pass, all sides in alternation. With --network, the same network as
in a run file, Gallerist's passes are timed, too, with random weights and images (`cargo build --release -p gallerist-train
--example train_step`); `gallerist model calibrate` and `evaluate` give its Recall@1.
"""

import argparse
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
import zipfile

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]

METHODS = {
    "entropy": CalibrationMethod.Entropy,
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
}


def images(path, mean, std):
    """Images `[count, 3, 224, 224]` and classes of the last 100 classes."""
    pixels, classes = [], []
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        for name in names:
            number = int(name.split("/")[-2].split(".")[0])
            if number <= 100:
                continue
            image = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            image = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.BILINEAR)
            values = (np.asarray(image, np.float32) / 255 - mean) / std
            pixels.append(values.transpose(2, 0, 1).astype(np.float32))
            classes.append(number)
    return np.stack(pixels), np.array(classes)


class Calibration(CalibrationDataReader):
    def __init__(self, name, batches):
        self.batches = iter([{name: batch} for batch in batches])

    def get_next(self):
        return next(self.batches, None)


def session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def passes(shape):
    """Passes one after the other: so many that a program is warm."""
    return 40 if shape[0] == 1 else 5


class Gallerist:
    """Passes of our own, by the example `train_step`; `processes` of the sizes of batches that were asked for."""

    def __init__(self, binary, network, products, threads, folder):
        self.command = [binary]
        weights = pathlib.Path(folder) / f"{products}.safetensors"
        self.request = {"network": network, "weights": str(weights), "kernels": True, "inference": True, "products": products}
        self.environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
        self.processes = {}

    def seconds(self, shape):
        if tuple(shape) not in self.processes:
            command = [*self.command, json.dumps({**self.request, "shape": list(shape)})]
            process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=self.environment)
            assert process.stdout.readline().strip() == "ready"
            self.processes[tuple(shape)] = process
        process = self.processes[tuple(shape)]
        process.stdin.write(f"{passes(shape)}\n")
        process.stdin.flush()
        return statistics.median(seconds for seconds, _ in json.loads(process.stdout.readline()))

    def close(self):
        for process in self.processes.values():
            process.stdin.close()
            process.wait()


class OnnxRuntime:
    def __init__(self, session, pixels):
        self.session = session
        self.pixels = pixels

    def seconds(self, shape):
        feed = {self.session.get_inputs()[0].name: self.pixels[: shape[0]]}
        found = []
        for _ in range(passes(shape)):
            start = time.perf_counter()
            self.session.run(None, feed)
            found.append(time.perf_counter() - start)
        return statistics.median(found)


def recall_at_1(side, pixels, classes):
    name = side.get_inputs()[0].name
    rows = [side.run(None, {name: pixels[i : i + 32]})[0] for i in range(0, len(pixels), 32)]
    rows = np.concatenate(rows)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = rows @ rows.T
    np.fill_diagonal(similarity, -2)
    return float((classes[similarity.argmax(1)] == classes).mean())


def times(sides, shape, rounds=8):
    """Median seconds of a pass of each side, in alternation."""
    found = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(side.seconds(shape))
    return {name: statistics.median(values) for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("images")
    parser.add_argument("--mean", nargs=3, type=float, default=[0.485, 0.456, 0.406])
    parser.add_argument("--std", nargs=3, type=float, default=[0.229, 0.224, 0.225])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--calibration", type=int, default=256)
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["minmax"])
    parser.add_argument("--queries", type=int, default=1 << 30)
    parser.add_argument("--save", type=pathlib.Path, help="folder for the models in int8")
    parser.add_argument("--network", type=json.loads, help='such as {"kind": "mobilenet_v2", "dimensions": 0}')
    parser.add_argument("--binary", default=str(ROOT / "target/release/examples/train_step"))
    arguments = parser.parse_args()
    pixels, classes = images(arguments.images, np.float32(arguments.mean), np.float32(arguments.std))
    some = np.random.default_rng(1).permutation(len(pixels))[: arguments.calibration]
    pixels, calibration = pixels[: arguments.queries], pixels[some]
    classes = classes[: arguments.queries]
    with tempfile.TemporaryDirectory() as folder:
        prepared = pathlib.Path(folder) / "prepared.onnx"
        quant_pre_process(arguments.model, str(prepared), skip_symbolic_shape=True)
        sides = {"f32": session(arguments.model, arguments.threads)}
        name = sides["f32"].get_inputs()[0].name
        for method in arguments.method:
            path = pathlib.Path(folder) / f"{method}.onnx"
            batches = [calibration[i : i + 16] for i in range(0, len(calibration), 16)]
            quantize_static(
                str(prepared),
                str(path),
                Calibration(name, batches),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=METHODS[method],
            )
            sides[f"int8, {method}"] = session(path, arguments.threads)
            if arguments.save:
                arguments.save.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, arguments.save)
        print("| | Recall@1 | batch 1, ms | batch 32, ms |\n| --- | ---: | ---: | ---: |")
        recall = {name: recall_at_1(side, pixels, classes) for name, side in sides.items()}
        timed = {name: OnnxRuntime(side, pixels) for name, side in sides.items()}
        if arguments.network:
            for products in ["f32", "int8"]:
                ours = Gallerist(arguments.binary, arguments.network, products, arguments.threads, folder)
                timed[f"Gallerist {products}"] = ours
        single, batch = [times(timed, [count, *pixels.shape[1:]]) for count in [1, 32]]
        for name, side in timed.items():
            found = f"{recall[name]:.4f}" if name in recall else ""
            print(f"| {name} | {found} | {1e3 * single[name]:.1f} | {1e3 * batch[name]:.0f} |")
            if isinstance(side, Gallerist):
                side.close()


if __name__ == "__main__":
    main()
