"""Writes the handwritten digits of scikit-learn as the four files of MNIST.

    pip install scikit-learn
    python bench/digits/write.py data/digits

The 1,797 images of 8 x 8 are the test set of the UCI data set "Optical Recognition of Handwritten Digits" (CC BY 4.0). The first
1,197 become the training images, the other 600 the test images.
"""

import pathlib
import struct
import sys

import numpy as np
from sklearn.datasets import load_digits

TRAINING = 1197

digits = load_digits()
images = np.round(digits.images * (255 / 16)).astype(np.uint8)
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, part in [("train", slice(TRAINING)), ("t10k", slice(TRAINING, None))]:
    x, y = images[part], digits.target[part].astype(np.uint8)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, *x.shape) + x.tobytes())
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, len(y)) + y.tobytes())
    print(f"{name}: {len(y)} images")
