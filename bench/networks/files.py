"""Writes fixtures/weights/: small PyTorch files of every kind that is read or refused.

    pip install torch
    python bench/networks/files.py

Values are those of formula.py for the tensor's name.
"""

import collections
import os
import pathlib
import pickle
import zipfile

import torch

import formula

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "weights"


def value(name, shape, dtype=torch.float32):
    return torch.from_numpy(formula.tensor(name, shape)).to(dtype)


class RunsCode:
    def __reduce__(self):
        return os.system, ("echo this must not be run",)


def state():
    tensors = collections.OrderedDict()
    tensors["conv.weight"] = torch.nn.Parameter(value("conv.weight", (4, 3, 3, 3)))
    tensors["half.weight"] = value("half.weight", (5, 7), torch.float16)
    tensors["brain.weight"] = value("brain.weight", (5, 7), torch.bfloat16)
    tensors["double.bias"] = value("double.bias", (6,), torch.float64)
    tensors["transposed.weight"] = value("transposed.weight", (6, 8)).T.contiguous().T
    whole = value("whole.weight", (10, 4))
    tensors["whole.weight"] = whole
    tensors["rows.weight"] = whole[2:5]
    tensors["scalar"] = value("scalar.bias", (1,)).reshape(())
    tensors["empty"] = torch.zeros(0, 3)
    tensors["bn.num_batches_tracked"] = torch.tensor(7)
    return tensors


if __name__ == "__main__":
    FIXTURES.mkdir(exist_ok=True)
    torch.save(state(), FIXTURES / "zip.pth")
    torch.save(state(), FIXTURES / "legacy.pth", _use_new_zipfile_serialization=False)
    nested = {"epoch": 3, "lr": 0.1, "name": "run", "state_dict": state(), "shape": torch.Size([1, 2])}
    torch.save(nested, FIXTURES / "nested.pth")
    torch.save({"weight": torch.zeros(2), "evil": RunsCode()}, FIXTURES / "code-zip.pth")
    torch.save({"evil": RunsCode()}, FIXTURES / "code-legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(2, 2), FIXTURES / "module.pth")
    (FIXTURES / "plain.pkl").write_bytes(pickle.dumps({"weights": [1, 2]}, protocol=2))
    with zipfile.ZipFile(FIXTURES / "foreign.zip", "w") as file:
        file.writestr("readme.txt", "no weights")
    for path in sorted(FIXTURES.iterdir()):
        print(path.name, path.stat().st_size)
