"""Writes small ONNX models and what onnxruntime computes with them: the fixtures of the crate gallerist-onnx.

    python bench/onnx/fixtures.py crates/gallerist-onnx/fixtures

Needs onnx, onnxruntime and NumPy. Images are `sin(0.37 i)` for the i-th number.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

folder = pathlib.Path(sys.argv[1])
random = np.random.default_rng(5)


def weights(name, *shape):
    return numpy_helper.from_array(random.normal(scale=0.3, size=shape).astype(np.float32), name)


def model(nodes, inputs, outputs, initializers, **options):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="fixtures.py", **options)
    made.ir_version = 8
    return made


def images(*shape):
    return helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)


def output(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


conv = helper.make_node("Conv", ["images", "w", "b"], ["maps"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3])
relu = helper.make_node("Relu", ["maps"], ["active"])
pool = helper.make_node("GlobalAveragePool", ["active"], ["pooled"])
flat = helper.make_node("Flatten", ["pooled"], ["features"])
layer = [weights("w", 5, 3, 3, 3), weights("b", 5)]



def resize(x, name, scales, **settings):
    """Cubic resizing of `x` by `scales` to one row per image."""
    return [helper.make_node("Resize", [x, "", scales], [name + "_maps"], mode="cubic", **settings),
            helper.make_node("Flatten", [name + "_maps"], [name])]


# Cubic resizing: of positions to the size of the maps, as vision transformers do it, and of the maps in all ways.
cubic = [helper.make_node("Shape", ["maps"], ["shape"]), helper.make_node("Slice", ["shape", "two", "four"], ["sides"]),
         helper.make_node("Concat", ["one_five", "sides"], ["sizes"], axis=0),
         helper.make_node("Resize", ["positions", "", "", "sizes"], ["moved"], mode="cubic", coordinate_transformation_mode="pytorch_half_pixel"),
         helper.make_node("Add", ["maps", "moved"], ["placed"]), helper.make_node("Flatten", ["placed"], ["features"]),
         *resize("maps", "half_pixel", "scales"), *resize("maps", "corners", "scales", coordinate_transformation_mode="align_corners"),
         *resize("maps", "asymmetric", "scales", coordinate_transformation_mode="asymmetric"),
         *resize("maps", "outside", "scales", exclude_outside=1, cubic_coeff_a=-0.5),
         *resize("maps", "pytorch", "flat", coordinate_transformation_mode="pytorch_half_pixel"),
         *resize("half_pixel_maps", "twice", "flat")]
numbers = {"two": np.array([2]), "four": np.array([4]), "one_five": np.array([1, 5]),
           "scales": np.array([1, 1, 1.7, 0.6], np.float32), "flat": np.array([1, 1, 0.25, 2.5], np.float32)}
cubic_outputs = ["features", "half_pixel", "corners", "asymmetric", "outside", "pytorch", "twice"]

made = {
    # Rows, any number of images of any size; the maps as a second output.
    "rows": model([conv, relu, pool, flat], [images("batch", 3, "height", "width")],
                  [output("features", "batch", 5), output("active", "batch", 5, "h", "w")], layer),
    # Exported for two images of 8 x 6.
    "two": model([conv, relu, pool, flat], [images(2, 3, 8, 6)], [output("features", 2, 5)], layer),
    # Channels last, as models from TensorFlow have them.
    "last": model([helper.make_node("Transpose", ["images"], ["first"], perm=[0, 3, 1, 2]),
                   helper.make_node("Conv", ["first", "w", "b"], ["maps"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]), relu, pool, flat],
                  [images("batch", 8, 6, 3)], [output("features", "batch", 5)], layer),
    # Channels last in images and maps; the same maps with channels first, and pooled to one position.
    "last_maps": model([helper.make_node("Transpose", ["images"], ["turned"], perm=[0, 3, 1, 2]),
                        helper.make_node("Conv", ["turned", "w", "b"], ["maps"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]), relu, pool, flat,
                        helper.make_node("Transpose", ["active"], ["last"], perm=[0, 2, 3, 1]),
                        helper.make_node("ReduceMean", ["last"], ["one"], axes=[1, 2], keepdims=1)],
                       [images("batch", 24, 20, 3)], [output("features", "batch", 5), output("active", "batch", 5, "h", "w"),
                                                      output("last", "batch", "h", "w", 5), output("one", "batch", 1, 1, 5)], layer),
    # Exported for one image, though its input says any number: one row for all images, and rows that depend on the other images.
    "folded": model([helper.make_node("Reshape", ["images", "one_row"], ["features"])],
                    [images("batch", 3, 8, 6)], [output("features", 1, "length")], [numpy_helper.from_array(np.array([1, -1]), "one_row")]),
    "mixed": model([helper.make_node("ReduceMean", ["images"], ["mean"], axes=[0], keepdims=1), helper.make_node("Add", ["images", "mean"], ["moved"]),
                    helper.make_node("Flatten", ["moved"], ["features"])],
                   [images("batch", 3, 8, 6)], [output("features", "batch", 144)], []),
    # Tokens [n, 4, 12].
    "tokens": model([helper.make_node("Reshape", ["images", "shape"], ["patches"]),
                     helper.make_node("MatMul", ["patches", "m"], ["mixed"]),
                     helper.make_node("Softmax", ["mixed"], ["last_hidden_state"], axis=-1)],
                    [images("batch", 3, 4, 4)], [output("last_hidden_state", "batch", 4, 7)],
                    [numpy_helper.from_array(np.array([-1, 4, 12]), "shape"), weights("m", 12, 7)]),
    # An operator that no engine knows, and one of another domain.
    "unknown": model([conv, helper.make_node("Gargle", ["maps"], ["x"]), helper.make_node("Gargle", ["x"], ["y"]),
                      helper.make_node("Hum", ["y"], ["features"], domain="example.org")],
                     [images("batch", 3, 8, 6)], [output("features", "batch", 5)], layer),
    "cubic": model([conv, *cubic], [images("batch", 3, "height", "width")], [output(name, "batch", "length") for name in cubic_outputs],
                   [*layer, weights("positions", 1, 5, 3, 3), *(numpy_helper.from_array(array, name) for name, array in numbers.items())]),
    # Of opset 18: with axes, and with a kernel that is wider for smaller results, as timm exports it.
    "cubic18": model([conv, *resize("maps", "axes", "some", axes=[-1, 2]),
                      *resize("maps", "smaller", "some", axes=[-1, 2], antialias=1, exclude_outside=1, cubic_coeff_a=-0.5),
                      *resize("maps", "larger", "flat", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5)],
                     [images("batch", 3, "height", "width")], [output(name, "batch", "length") for name in ("axes", "smaller", "larger")],
                     [*layer, numpy_helper.from_array(np.array([0.5, 0.4], np.float32), "some"), numpy_helper.from_array(numbers["flat"], "flat")]),
    # No input of images.
    "words": model([helper.make_node("Cast", ["ids"], ["features"], to=TensorProto.FLOAT)],
                   [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
                   [output("features", "batch", "length")], []),
}
made["cubic18"].opset_import[0].version = 18
made["unknown"].opset_import.append(helper.make_opsetid("example.org", 1))

expected = {}
for name, of in made.items():
    onnx.save(of, folder / f"{name}.onnx")
    if name in ("unknown", "words", "last_maps", "folded", "mixed"):
        continue
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    shape = [side if isinstance(side, int) else {"batch": 2, "height": 9, "width": 7}[side] for side in entry.shape]
    values = np.sin(0.37 * np.arange(np.prod(shape))).astype(np.float32)
    # The numbers count in the order [n, channels, height, width], also for a model with channels last.
    if name == "last":
        n, height, width, channels = shape
        batch = values.reshape(n, channels, height, width).transpose(0, 2, 3, 1)
        shape = [n, channels, height, width]
    else:
        batch = values.reshape(shape)
    found = session.run(None, {entry.name: np.ascontiguousarray(batch)})
    expected[name] = {
        "shape": shape,
        "outputs": {of.name: {"shape": list(value.shape), "values": [float(v) for v in value.ravel()]}
                    for of, value in zip(session.get_outputs(), found)},
    }
(folder / "expected.json").write_text(json.dumps({"onnxruntime": onnxruntime.__version__, "models": expected}, indent=1) + "\n")

# Weights in a file of their own, as exports of more than 2 GB have them.
onnx.save(made["rows"], folder / "outside.onnx", save_as_external_data=True, location="outside.data", size_threshold=0)
onnx.save(made["cubic"], folder / "cubic_outside.onnx", save_as_external_data=True, location="cubic_outside.data", size_threshold=64)
