"""Writes fixtures/networks/*.json: what PyTorch's networks give, in f64, for weights by formula.py.

    pip install torch torchvision timm efficientnet_pytorch
    python bench/networks/golden.py

Each file names every tensor with its shape; `evaluation` and `training` are the outputs of every head with
running and with batch statistics; `gradient_norms` are the norms of the gradients, in training, of the sum
of outputs times the tensor "cotangent". Batch norm over few values magnifies rounding: `off` and
`gradients_off` say how far the results move, relative to the largest output and to each norm, when all
tensors move by a part in a million, at most in three trials. torchvision's and
timm's networks are taken as they are, with the head
exchanged; BN-Inception is written here from its layer table.
"""

import copy
import json
import pathlib

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import models, ops

import formula

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "networks"


class GeM(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.full((1,), 3.0))

    def forward(self, x):
        return x.clamp(min=1e-6).pow(self.p).mean((2, 3)).pow(1 / self.p)


class ResNet(nn.Module):
    """torchvision's residual network up to the last maps, then a pool and a head."""

    def __init__(self, depth, pool, hidden, dimensions, hidden_norm=False, layer_norm=False):
        super().__init__()
        body = getattr(models, f"resnet{depth}")(weights=None)
        features = body.fc.in_features
        for name, child in body.named_children():
            if name not in ("avgpool", "fc"):
                self.add_module(name, child)
        self.kind = pool
        if hidden or pool == "gem":
            self.head = nn.Module()
        if pool == "gem":
            self.head.pool = GeM()
        if layer_norm:
            self.head.layer_norm = nn.LayerNorm(features)
        if hidden:
            self.head.hidden = nn.Linear(features, hidden)
            if hidden_norm:
                self.head.norm = nn.BatchNorm1d(hidden)
            self.head.embedding = nn.Linear(hidden, dimensions)
        elif dimensions:
            # `head.pool` beside `head.weight`: the layer's own names.
            linear = nn.Linear(features, dimensions)
            if pool == "gem":
                self.head.weight, self.head.bias = linear.weight, linear.bias
            else:
                self.head = linear

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        if self.kind == "gem":
            x = self.head.pool(x)
        else:
            x = x.mean((2, 3)) if self.kind == "average" else x.amax((2, 3))
        if hasattr(self.head, "layer_norm"):
            x = self.head.layer_norm(x)
        if hasattr(self.head, "hidden"):
            x = self.head.hidden(x)
            if hasattr(self.head, "norm"):
                x = F.relu(self.head.norm(x))
            return [self.head.embedding(x)]
        return [F.linear(x, self.head.weight, self.head.bias)]


class MobileNetV2(nn.Module):
    def __init__(self, dimensions):
        super().__init__()
        self.features = models.mobilenet_v2(weights=None).features
        self.head = nn.Linear(1280, dimensions)

    def forward(self, x):
        return [self.head(self.features(x).mean((2, 3)))]


class EfficientNet(nn.Module):
    """timm's network of this family (also Lite and MobileNetV2) up to the last maps, then a mean and a head."""

    def __init__(self, name, dimensions, inputs=1280):
        import timm

        super().__init__()
        for part, child in timm.create_model(name, num_classes=0, global_pool="").named_children():
            self.add_module(part, child)
        self.head = nn.Linear(inputs, dimensions)

    def forward(self, x):
        x = self.blocks(self.bn1(self.conv_stem(x)))
        return [self.head(self.bn2(self.conv_head(x)).mean((2, 3)))]


class Torchvision(nn.Module):
    """torchvision's `features`, with all blocks, then a mean and a head."""

    def __init__(self, name, inputs, dimensions):
        super().__init__()
        self.features = getattr(models, name)(weights=None).features
        for part in self.features.modules():
            if isinstance(part, ops.StochasticDepth):
                part.p = 0.0
        self.head = nn.Linear(inputs, dimensions)

    def forward(self, x):
        return [self.head(self.features(x).mean((2, 3)))]


class TimmMobileNetV3(nn.Module):
    """timm's network up to the last maps, then a mean and a head."""

    def __init__(self, name, inputs, dimensions):
        import timm

        super().__init__()
        for part, child in timm.create_model(name, num_classes=0, global_pool="").named_children():
            if part not in ("conv_head", "norm_head", "act2"):
                self.add_module(part, child)
        self.head = nn.Linear(inputs, dimensions)

    def forward(self, x):
        return [self.head(self.blocks(self.bn1(self.conv_stem(x))).mean((2, 3)))]


class EfficientNetPyTorch(nn.Module):
    """EfficientNet-PyTorch's network up to the last maps, then a mean and a head."""

    def __init__(self, name, inputs, dimensions):
        from efficientnet_pytorch import EfficientNet

        super().__init__()
        body = EfficientNet.from_name(name, image_size=None, drop_connect_rate=0.0)
        body.set_swish(memory_efficient=False)
        self.body = [body]
        for part, child in body.named_children():
            if part in ("_conv_stem", "_bn0", "_blocks", "_conv_head", "_bn1"):
                self.add_module(part, child)
        self.head = nn.Linear(inputs, dimensions)

    def forward(self, x):
        # `deepcopy` copies `body` with the parts that it shares with this module.
        return [self.head(self.body[0].extract_features(x).mean((2, 3)))]

    def train(self, mode=True):
        self.body[0].train(mode)
        return super().train(mode)


class GoogLeNet(nn.Module):
    def __init__(self, dimensions):
        super().__init__()
        body = models.googlenet(weights=None, aux_logits=False, init_weights=False)
        for name, child in body.named_children():
            if name not in ("avgpool", "dropout", "fc"):
                self.add_module(name, child)
        self.head = nn.Linear(1024, dimensions)

    def forward(self, x):
        for name, child in self.named_children():
            if name != "head":
                x = child(x)
        return [self.head(x.mean((2, 3)))]


# The table: block, 1x1, (reduce, out), (reduce, a, b), pool; stride 2 where there is no projection.
INCEPTION = [
    ("3a", 64, (64, 64), (64, 96, 96), ("avg", 32)),
    ("3b", 64, (64, 96), (64, 96, 96), ("avg", 64)),
    ("3c", None, (128, 160), (64, 96, 96), ("max", None)),
    ("4a", 224, (64, 96), (96, 128, 128), ("avg", 128)),
    ("4b", 192, (96, 128), (96, 128, 128), ("avg", 128)),
    ("4c", 160, (128, 160), (128, 160, 160), ("avg", 96)),
    ("4d", 96, (128, 192), (160, 192, 192), ("avg", 96)),
    ("4e", None, (128, 192), (192, 256, 256), ("max", None)),
    ("5a", 352, (192, 320), (160, 224, 224), ("avg", 128)),
    ("5b", 352, (192, 320), (192, 224, 224), ("max", 128)),
]
INCEPTION_OUT = {"3a": 256, "3b": 320, "3c": 576, "4a": 576, "4b": 576, "4c": 576, "4d": 576, "4e": 1024,
                 "5a": 1024, "5b": 1024}


class BnInception(nn.Module):
    """With heads L, M and H; `bias` as in the weights in circulation."""

    def __init__(self, dimensions, bias):
        super().__init__()
        self.bias = bias
        self.conv("conv1_7x7_s2", 3, 64, 7, 2)
        self.conv("conv2_3x3_reduce", 64, 64, 1)
        self.conv("conv2_3x3", 64, 192, 3)
        channels = 192
        for name, one, (r, three), (s, a, b), (_, projection) in INCEPTION:
            stride = 1 if projection else 2
            path = f"inception_{name}_"
            if one:
                self.conv(path + "1x1", channels, one, 1)
            self.conv(path + "3x3_reduce", channels, r, 1)
            self.conv(path + "3x3", r, three, 3, stride)
            self.conv(path + "double_3x3_reduce", channels, s, 1)
            self.conv(path + "double_3x3_1", s, a, 3)
            self.conv(path + "double_3x3_2", a, b, 3, stride)
            if projection:
                self.conv(path + "pool_proj", channels, projection, 1)
            channels = (one or 0) + three + b + (projection or channels)
            assert channels == INCEPTION_OUT[name]
        self.auxiliary, self.head = nn.Module(), nn.Module()
        for name, inputs, area in (("L", 576, 16), ("M", 1024, 4)):
            part = nn.Module()
            part.conv = nn.Conv2d(inputs, 128, 1, bias=False)
            part.conv_bn = nn.BatchNorm2d(128)
            part.fc = nn.Linear(128 * area, 1024, bias=False)
            part.fc_bn = nn.BatchNorm1d(1024)
            self.auxiliary.add_module(name, part)
        for name in "LMH":
            self.head.add_module(name, nn.Linear(1024, dimensions, bias=False))

    def conv(self, name, inputs, outputs, size, stride=1):
        self.add_module(name, nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=self.bias))
        self.add_module(name + "_bn", nn.BatchNorm2d(outputs))

    def unit(self, name, x):
        return F.relu(getattr(self, name + "_bn")(getattr(self, name)(x)))

    def aux(self, name, x):
        part = getattr(self.auxiliary, name)
        x = F.avg_pool2d(x, 5, 3, ceil_mode=True)
        x = F.relu(part.conv_bn(part.conv(x)))
        return getattr(self.head, name)(F.relu(part.fc_bn(part.fc(x.flatten(1)))))

    def forward(self, x):
        def down(x):
            return F.max_pool2d(x, 3, 2, ceil_mode=True)

        x = down(self.unit("conv1_7x7_s2", x))
        x = down(self.unit("conv2_3x3", self.unit("conv2_3x3_reduce", x)))
        outputs = {}
        for name, one, _, _, (kind, projection) in INCEPTION:
            def unit(part, x):
                return self.unit(f"inception_{name}_{part}", x)

            parts = [unit("1x1", x)] if one else []
            parts.append(unit("3x3", unit("3x3_reduce", x)))
            parts.append(unit("double_3x3_2", unit("double_3x3_1", unit("double_3x3_reduce", x))))
            if not projection:
                parts.append(down(x))
            elif kind == "avg":
                parts.append(unit("pool_proj", F.avg_pool2d(x, 3, 1, 1, ceil_mode=True)))
            else:
                parts.append(unit("pool_proj", F.max_pool2d(x, 3, 1, 1, ceil_mode=True)))
            x = torch.cat(parts, 1)
            if name == "3c":
                outputs["L"] = self.aux("L", x)
            if name == "4e":
                outputs["M"] = self.aux("M", x)
        outputs["H"] = self.head.H(x.mean((2, 3)))
        return [outputs[name] for name in "LMH"]


def filled(network):
    """The network in f64 with its tensors by the formula; their names and shapes."""
    network = network.double()
    shapes = {}
    for name, value in network.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            shapes[name] = list(value.shape)
            value.copy_(torch.from_numpy(formula.tensor(name, value.shape)))
    return network, shapes


def moved(network, by, seed):
    """A copy whose tensors are all moved by a part of `by`, at random."""
    other = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(seed)
    for value in other.state_dict().values():
        if value.is_floating_point():
            value.mul_(1 + by * torch.randn(value.shape, generator=generator, dtype=torch.float64))
    return other


def rounded(values):
    return [float(f"{v:.9g}") for v in values.flatten().tolist()]


def train(network, x):
    """Outputs with batch statistics, and the norm of every gradient."""
    outputs = network.train()(x)
    loss = 0
    for y in outputs:
        cotangent = 2 * formula.unit("cotangent", y.numel()).reshape(y.shape) - 1
        loss = loss + (y * torch.from_numpy(cotangent).to(y.dtype)).sum()
    loss.backward()
    norms = {name: p.grad.double().norm().item() for name, p in network.named_parameters()}
    return [y.detach().double() for y in outputs], norms


def write(name, network, shape, training=True):
    network, tensors = filled(network)
    x = torch.from_numpy(2 * formula.unit("input", torch.Size(shape).numel()).reshape(shape) - 1)
    with torch.no_grad():
        evaluation = network.eval()(x)
    golden = {"tensors": tensors, "input": shape, "evaluation": [rounded(y) for y in evaluation]}
    if training:
        outputs, norms = train(copy.deepcopy(network), x)
        golden["training"] = [rounded(y) for y in outputs]
        golden["gradient_norms"] = {n: float(f"{v:.9g}") for n, v in norms.items()}
        off, norms_off = [], []
        largest = max(norms.values())
        for seed in range(3):
            found, moved_norms = train(moved(network, 1e-6, seed), x)
            off += [((a - b).abs().max() / a.abs().max()).item() for a, b in zip(outputs, found)]
            norms_off += [abs(moved_norms[n] - v) / v for n, v in norms.items() if v > 1e-6 * largest]
        golden["off"] = float(f"{max(off):.2g}")
        golden["gradients_off"] = float(f"{max(norms_off):.2g}")
    path = FIXTURES / f"{name}.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes, outputs {[list(y.shape) for y in evaluation]}, off by "
          f"{golden.get('off')}, gradients by {golden.get('gradients_off')}")


if __name__ == "__main__":
    torch.manual_seed(0)
    FIXTURES.mkdir(exist_ok=True)
    write("resnet18", ResNet(18, "average", 0, 32), [4, 3, 64, 48])
    write("resnet34-gem", ResNet(34, "gem", 0, 16), [3, 3, 64, 64])
    write("resnet18-gem-norm", ResNet(18, "gem", 0, 16, layer_norm=True), [3, 3, 64, 64])
    write("resnet50-srt", ResNet(50, "max", 1024, 128), [4, 3, 96, 64])
    write("resnet50-trinet", ResNet(50, "max", 64, 32, hidden_norm=True), [4, 3, 97, 65])
    write("mobilenet_v2", MobileNetV2(32), [4, 3, 64, 64])
    write("mobilenet_v2-timm", EfficientNet("mobilenetv2_100", 16), [4, 3, 64, 75])
    write("efficientnet_lite0-tf", EfficientNet("tf_efficientnet_lite0", 32), [4, 3, 75, 64])
    write("efficientnet_lite2", EfficientNet("efficientnet_lite2", 16), [3, 3, 64, 75])
    write("mobilenet_v3-large", Torchvision("mobilenet_v3_large", 960, 16), [4, 3, 64, 75])
    write("mobilenet_v3-small", Torchvision("mobilenet_v3_small", 576, 16), [4, 3, 75, 64])
    write("mobilenet_v3-timm", TimmMobileNetV3("mobilenetv3_large_100", 960, 16), [4, 3, 64, 64])
    write("mobilenet_v3-tf", TimmMobileNetV3("tf_mobilenetv3_small_100", 576, 16), [4, 3, 75, 64])
    write("efficientnet_b0", Torchvision("efficientnet_b0", 1280, 16), [4, 3, 64, 75])
    write("efficientnet_b2-timm", EfficientNet("efficientnet_b2", 8, 1408), [3, 3, 75, 64])
    write("efficientnet_b1-tf", EfficientNet("tf_efficientnet_b1", 8), [3, 3, 64, 75])
    write("efficientnet_b0-pytorch", EfficientNetPyTorch("efficientnet-b0", 1280, 8), [4, 3, 75, 64])
    write("googlenet", GoogLeNet(32), [4, 3, 107, 123])
    write("bn_inception", BnInception(32, bias=False), [3, 3, 227, 227])
    write("bn_inception-biases", BnInception(16, bias=True), [2, 3, 227, 227], training=False)
