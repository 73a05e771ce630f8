"""Exports every network to ONNX and compares onnxruntime's embeddings with PyTorch's golden outputs.

    pip install numpy onnx onnxruntime safetensors
    python bench/networks/onnx_check.py [--binary target/release/gallerist]

For each file of fixtures/networks: weights by formula.py go into a safetensors file, `weights import` makes a
model of it, `weights export` writes it as ONNX and as safetensors; onnxruntime's output must agree with PyTorch's to
1e-4 of the largest value, raw and with rows of length 1, and the safetensors with what went in.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

import formula

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = {
    "resnet18": "kind = 'resnet'\ndepth = 18\ndimensions = 32",
    "resnet18-gem-norm": "kind = 'resnet'\ndepth = 18\npool = 'gem'\nlayer_norm = true\ndimensions = 16",
    "resnet34-gem": "kind = 'resnet'\ndepth = 34\npool = 'gem'\ndimensions = 16",
    "resnet50-srt": "kind = 'resnet'\npool = 'max'\nhidden = 1024\ndimensions = 128",
    "resnet50-trinet": "kind = 'resnet'\npool = 'max'\nhidden = 64\nhidden_norm = true\ndimensions = 32",
    "mobilenet_v2": "kind = 'mobilenet_v2'\ndimensions = 32",
    "mobilenet_v2-timm": "kind = 'mobilenet_v2'\nlayout = 'timm'\ndimensions = 16",
    "mobilenet_v3-large": "kind = 'mobilenet_v3'\ndimensions = 16",
    "mobilenet_v3-tf": "kind = 'mobilenet_v3'\nsize = 'small'\nlayout = 'timm_tf'\ndimensions = 16",
    "efficientnet_lite0-tf": "kind = 'efficientnet_lite'\nlayout = 'timm_tf'\ndimensions = 32",
    "efficientnet_b0": "kind = 'efficientnet'\ndimensions = 16",
    "efficientnet_b0-pytorch": "kind = 'efficientnet'\nlayout = 'efficientnet_pytorch'\ndimensions = 8",
    "googlenet": "kind = 'googlenet'\ndimensions = 32",
    "bn_inception": "kind = 'bn_inception'\nheads = ['L', 'M', 'H']\ndimensions = 32",
    "bn_inception-biases": "kind = 'bn_inception'\nheads = ['L', 'M', 'H']\ndimensions = 16",
    # The other keys of vision transformers are those of the weights.
    "vit-98": "kind = 'vit'\nattention_heads = 2\ndimensions = 8",
    "vit-32": "kind = 'vit'\nattention_heads = 2\noutput = 'mean'\ndimensions = 8",
    "vit-dinov2": "kind = 'vit'\nattention_heads = 2\noutput = 'class_and_mean'\ndimensions = 8",
    "vit-dinov3": "kind = 'vit'\nattention_heads = 2\ndimensions = 8",
    "vit-clip": "kind = 'vit'\nattention_heads = 2\nactivation = 'quick_gelu'\ndimensions = 8",
    "vit-siglip-gradients": "kind = 'vit'\nattention_heads = 2\nactivation = 'gelu_tanh'\ndimensions = 8",
}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def off(found, wanted):
    return np.abs(found - wanted).max() / np.abs(wanted).max()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=ROOT / "target/release/gallerist")
    binary = parser.parse_args().binary
    worst = 0
    for name, network in NETWORKS.items():
        golden = json.loads((ROOT / "fixtures/networks" / f"{name}.json").read_text())
        tensors = {k: formula.tensor(k, s).astype(np.float32) for k, s in golden["tensors"].items()}
        n, _, height, width = golden["input"]
        x = (2 * formula.unit("input", int(np.prod(golden["input"]))) - 1).reshape(golden["input"]).astype(np.float32)
        heads = [np.array(rows).reshape(n, -1) for rows in golden["evaluation"]]
        wanted = {"--normalize=no": np.concatenate(heads, 1), None: unit(np.concatenate(heads, 1))}
        if len(heads) > 1:
            wanted["--combine=normalize-then-concat"] = unit(np.concatenate([unit(h) for h in heads], 1))
            wanted["--head=M,L"] = unit(np.concatenate([heads[1], heads[0]], 1))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            save_file(tensors, folder / "given.safetensors")
            (folder / "run.toml").write_text(f"[image]\nsize = [{height}, {width}]\n[network]\n{network}\n")

            def gallerist(*arguments):
                subprocess.run([binary, "weights", *map(str, arguments)], check=True, capture_output=True)

            gallerist("import", folder / "given.safetensors", "--config", folder / "run.toml", "--out", folder / "run")
            results = []
            for option, rows in wanted.items():
                file = folder / "model.onnx"
                gallerist("export", "--run", folder / "run", "--out", file, *([option] if option else []))
                onnx.checker.check_model(onnx.load(file), full_check=True)
                session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
                results.append(off(session.run(["embedding"], {"images": x})[0], rows))
                one = session.run(["embedding"], {"images": x[:1]})[0]
                results.append(off(one, rows[:1]))
            gallerist("export", "--run", folder / "run", "--out", folder / "model.safetensors")
            back = load_file(folder / "model.safetensors")
            same = [k for k, v in back.items() if np.array_equal(v, tensors[k])]
            folded = sum(k.endswith(".bias") for k in tensors.keys() - back.keys())
            assert len(back) - len(same) == folded and len(back) + folded == len(tensors), name
        print(f"{name}: off by {max(results):.1e} at most ({len(results)} outputs); {len(same)} tensors as they were")
        worst = max(worst, *results)
    assert worst < 1e-4, worst


if __name__ == "__main__":
    main()
