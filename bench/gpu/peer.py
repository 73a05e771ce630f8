"""Training steps of a network in PyTorch, for run.py: NETWORK SHAPE PRECISION STEPS DEVICE [compiled].

Loss: mean square of the embeddings; SGD with momentum, as in examples/gpu_check.rs. TF32 products are allowed on CUDA; bf16
uses autocast. The device is synchronized after each step. Rows: NCHW and channels last of convolutional networks; with
`compiled` also the faster of both by `torch.compile`, whose first step includes the compilation.
"""

import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "networks"), str(ROOT / "bench" / "train_step")]


def main():
    name, shape, precision, steps, device, *compiled = sys.argv[1:]
    try:
        import torch

        import networks
    except ImportError as error:
        print(json.dumps({"skipped": str(error)}))
        return
    if device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"skipped": "this PyTorch has no CUDA"}))
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    shape = [int(side) for side in shape.split(",")]
    make = {
        "resnet50": lambda: networks.ResNet(50, "average", 0, 128),
        "bn_inception": lambda: networks.BnInception(128, bias=False),
        "vit_s16": lambda: networks.VisionTransformer(side=shape[-1]),
    }[name]

    def fresh():
        torch.manual_seed(1)
        return make()

    layouts = ["NCHW"] if name == "vit_s16" else ["NCHW", "channels last"]
    version = torch.__version__.split("+")[0]
    medians = {}
    for layout in layouts:
        seconds, losses = train(torch, fresh(), shape, precision, int(steps), device, layout, compiled=False)
        medians[layout] = statistics.median(seconds[len(seconds) // 2 :])
        print(json.dumps({"program": f"PyTorch {version}, {layout}", "seconds": seconds, "losses": losses}), flush=True)
    if not compiled:
        return
    layout = min(medians, key=medians.get)
    program = f"PyTorch {version}, {layout}, compiled"
    try:
        seconds, losses = train(torch, fresh(), shape, precision, int(steps), device, layout, compiled=True)
    except Exception as error:  # no compiler, no Triton
        print(json.dumps({"program": program, "skipped": str(error).strip().split("\n")[0]}))
        return
    print(json.dumps({"program": program, "seconds": seconds, "losses": losses}))


def train(torch, network, shape, precision, steps, device, layout, compiled):
    """The seconds and losses of all steps."""
    network = network.to(device).train()
    images = torch.rand(shape) * 2 - 1
    if layout == "channels last":
        network, images = network.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    forward = torch.compile(network) if compiled else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    seconds, losses = [], []
    for _ in range(steps):
        start = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            outputs = forward(images.to(device))
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        loss = sum(output.float().square().mean() for output in outputs)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    del network, forward, optimizer
    if device == "cuda":
        torch.cuda.empty_cache()
    return seconds, losses


if __name__ == "__main__":
    main()
