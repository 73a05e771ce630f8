"""Training steps of a network in PyTorch, for run.py: NETWORK SHAPE PRECISION STEPS DEVICE.

Loss: mean square of the embeddings; SGD with momentum, as in examples/gpu_check.rs. TF32 products are allowed on CUDA; bf16
uses autocast. The device is synchronized after each step. Layouts: NCHW and channels last.
"""

import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "networks"), str(ROOT / "bench" / "train_step")]


def main():
    name, shape, precision, steps, device = sys.argv[1:]
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
    for layout in ["NCHW", "channels last"]:
        torch.manual_seed(1)
        make = {
            "resnet50": lambda: networks.ResNet(50, "average", 0, 128),
            "bn_inception": lambda: networks.BnInception(128, bias=False),
        }
        network = make[name]().to(device).train()
        images = torch.rand(shape) * 2 - 1
        if layout == "channels last":
            network, images = network.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        seconds, losses = [], []
        for _ in range(int(steps)):
            start = time.perf_counter()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
                outputs = network(images.to(device))
            outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            loss = sum(output.float().square().mean() for output in outputs)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        program = f"PyTorch {torch.__version__.split('+')[0]}, {layout}"
        print(json.dumps({"program": program, "seconds": seconds, "losses": losses}), flush=True)
        del network, optimizer
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
