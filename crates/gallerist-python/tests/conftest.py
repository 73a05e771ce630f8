import numpy as np
import pytest


@pytest.fixture
def batch():
    """48 rows of 16 values in 12 classes."""
    random = np.random.default_rng(1)
    labels = np.repeat(np.arange(12), 4)
    centres = random.normal(size=(12, 16))
    rows = (centres[labels] + random.normal(size=(48, 16))).astype(np.float32)
    return rows, labels
