"""Compares values and gradients of the losses with the code that the authors of their papers released, in f64, on random
batches.

    python bench/losses/authors.py [--program target/release/gallerist] [--write docs/losses-agreement.md]
        [--recall-at-k DIR] [--roadmap DIR] [--hyperbolic DIR] [--hist DIR]

Each DIR is a checkout of the authors' repository:

    --recall-at-k   https://github.com/yash0307/RecallatK_surrogate
    --roadmap       https://github.com/elias-ramzi/ROADMAP
    --hyperbolic    https://github.com/htdt/hyp_metric
    --hist          https://github.com/ljin0429/HIST

Their files are imported as they are; `cuda()` is made a no-op, and modules that the losses do not use are replaced by
empty ones. For PFML (`potential_field`) no code is released: its peer is the paper's equations in PyTorch with whole
matrices. Losses without a DIR are left out. Needs what agree.py needs. Exit code 1 if a loss that should agree does not.
"""

import argparse
import ast
import importlib.util
import os
import sys
import types

parser = argparse.ArgumentParser()
parser.add_argument("--program", default="target/release/gallerist")
parser.add_argument("--write")
for checkout in ["recall-at-k", "roadmap", "hyperbolic", "hist"]:
    parser.add_argument(f"--{checkout}", metavar="DIR")
arguments = parser.parse_args()

import numpy as np
import torch
from torch.nn.functional import normalize

from compare import EVEN, PAIRS, UNEVEN, compare

torch.set_default_dtype(torch.float64)
# Their code runs on a GPU.
torch.Tensor.cuda = lambda self, *_, **__: self
# ROADMAP's code calls it on tensors with a gradient; this version of PyTorch refuses to derive it. The derivative is 0.
heaviside = torch.heaviside
torch.heaviside = lambda x, values: heaviside(x.detach(), values.detach())


def load(folder, path, name):
    """A file of a checkout as a module."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def same_class(labels):
    return labels[:, None] == labels[None, :]


CASES = []

# -- Recall@k surrogate -------------------------------------------------------------------------------------------

if arguments.recall_at_k:
    recall = load(arguments.recall_at_k, "src/losses.py", "recall_losses")
    sys.modules["faiss"] = types.ModuleType("faiss")
    mixup = load(arguments.recall_at_k, "src/mixup.py", "recall_mixup")
    K = [1, 2, 4, 8, 16]

    def recall_at_k(temperature, mix=None):
        def peer(x, labels, _):
            classes = len(labels.unique())
            x = normalize(x)
            loss = recall.RecallatK(temperature, len(x), classes, x.shape[1], K, [1] * len(K), mix is not None)
            if mix is not None:
                rand, np.random.rand = np.random.rand, lambda: mix
                x = mixup.pos_mixup(x, classes)
                np.random.rand = rand
            return sum(loss(x, query) for query in range(len(x)))

        return peer

    what = "released code"
    mixable = [(6, [3] * 6, 16), (5, [4] * 5, 16), (3, [6] * 3, 32)]
    CASES += [
        ("recall_at_k", ["include_query=true"], True, what, recall_at_k(0.01), EVEN, True),
        ("recall_at_k", ["include_query=true", "temperature=0.1"], True, what, recall_at_k(0.1), EVEN, True),
        ("recall_at_k", ["include_query=true", "simix=true", "mix=0.3"], True, f"{what}, its random coefficients replaced by 0.3", recall_at_k(0.01, 0.3), mixable, True),
    ]

# -- ROADMAP ------------------------------------------------------------------------------------------------------

if arguments.roadmap:
    label_matrix = load(arguments.roadmap, "roadmap/utils/create_label_matrix.py", "label_matrix")
    package, utils = types.ModuleType("roadmap"), types.ModuleType("roadmap.utils")
    package.utils, utils.create_label_matrix = utils, label_matrix.create_label_matrix
    sys.modules.update({"roadmap": package, "roadmap.utils": utils})
    ranks = load(arguments.roadmap, "roadmap/losses/smooth_rank_ap.py", "roadmap_ranks")
    calibration = load(arguments.roadmap, "roadmap/losses/calibration_loss.py", "roadmap_calibration")

    def sup_ap(x, labels, _, **parameters):
        x = normalize(x)
        return ranks.SupAP(tau=0.01, rho=100, delta=0.05, **parameters)(x @ x.T, same_class(labels).double())

    def roadmap(x, labels, parameters):
        pairs = calibration.CalibrationLoss(pos_margin=0.9, neg_margin=0.6)(x, labels)
        return 0.5 * (sup_ap(x, labels, parameters, offset=1.44) + pairs)

    CASES += [
        ("roadmap", ["temperature=0.01", "lambda=0", "include_query=true"], True, "released code: SupAP", sup_ap, EVEN + UNEVEN, True),
        ("roadmap", ["lambda=1", "positive_margin=0.9", "calibration=violating"], True, "released code: CalibrationLoss", lambda x, y, _: calibration.CalibrationLoss(pos_margin=0.9, neg_margin=0.6)(x, y), EVEN + UNEVEN, True),
        ("roadmap", ["temperature=0.01", "lambda=0.5", "positive_margin=0.9", "offset=1.44", "calibration=violating", "include_query=true"], True, "released code: half the sum of SupAP and CalibrationLoss", roadmap, EVEN + UNEVEN, True),
    ]

# -- Potential field ----------------------------------------------------------------------------------------------


def potential_field(x, labels, parameters, alpha, delta, count=15):
    """Eqs. 1-6: the potentials of all samples and proxies in the fields of their classes."""
    points = torch.cat([normalize(x), normalize(parameters["proxies"])])
    labels = torch.cat([labels, torch.arange(len(points) - len(x)) // count])
    distance = (points[:, None] - points[None, :]).square().sum(-1).clamp_min(1e-300).sqrt()
    attraction = -torch.where(distance < delta, torch.full_like(distance, delta**-alpha), distance**-alpha)
    repulsion = torch.where(distance < delta, distance**-alpha, torch.full_like(distance, delta**-alpha))
    fields = torch.where(same_class(labels), attraction, repulsion)
    off_diagonal = ~torch.eye(len(points), dtype=torch.bool)
    return fields[off_diagonal].sum() / len(x)


CASES += [
    ("potential_field", ["alpha=4", "delta=0.2"], True, "the paper's equations in PyTorch", lambda x, y, p: potential_field(x, y, p, 4.0, 0.2), EVEN + UNEVEN, True),
    ("potential_field", ["alpha=2.5", "delta=0.9", "proxies=3"], True, "the paper's equations in PyTorch", lambda x, y, p: potential_field(x, y, p, 2.5, 0.9, 3), EVEN + UNEVEN, True),
    ("potential_field", ["reduction=sum", "alpha=4", "delta=0.9"], True, "the paper's equations in PyTorch", lambda x, y, p: len(x) * potential_field(x, y, p, 4.0, 0.9), EVEN + UNEVEN, True),
]

# -- Hyperbolic embeddings ----------------------------------------------------------------------------------------

if arguments.hyperbolic:
    sys.path.insert(0, arguments.hyperbolic)
    from hyptorch import nn as hyptorch_nn
    from hyptorch import pmath

    # The training script imports what its loss does not use.
    source = ast.parse(open(os.path.join(arguments.hyperbolic, "train.py")).read())
    source.body = [part for part in source.body if getattr(part, "name", None) == "contrastive_loss"]
    released = {"torch": torch, "F": torch.nn.functional, "dist_matrix": pmath.dist_matrix}
    exec(compile(source, "train.py", "exec"), released)

    def hyperbolic(x, labels, _, c=0.1, t=0.2, clip=1.3):
        """The sum over the ordered pairs of columns, divided by their number."""
        count = int(labels.bincount()[0])
        head = hyptorch_nn.ToPoincare(c=c, ball_dim=x.shape[1], riemannian=False, clip_r=clip)
        columns = head(x).view(-1, count, x.shape[1]).unbind(1)
        pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
        return sum(released["contrastive_loss"](columns[a], columns[b], t, c)[0] for a, b in pairs) / len(pairs)

    # Rows have lengths around 1.3: about half of them are clipped.
    parameters = ["curvature=0.1", "temperature=0.2", "clip=1.3"]
    all_of_them = [*parameters, "epsilon=1e-5"]
    CASES += [
        ("hyperbolic", all_of_them, False, "released code", hyperbolic, PAIRS, True),
        ("hyperbolic", [*all_of_them, "negatives=columns"], False, "released code", hyperbolic, EVEN, True),
        ("hyperbolic", ["curvature=0.5", "temperature=0.5", "clip=1.3", "epsilon=1e-5"], False, "released code", lambda x, y, p: hyperbolic(x, y, p, 0.5, 0.5), PAIRS, True),
        ("hyperbolic", parameters, False, "released code, which adds 1e-5 to denominators", hyperbolic, PAIRS, False),
    ]

# -- HIST ---------------------------------------------------------------------------------------------------------

if arguments.hist:
    # Its `utils` needs scikit-learn for this one function.
    utils = types.ModuleType("utils")
    utils.binarize = lambda T, nb_classes: torch.nn.functional.one_hot(T, nb_classes).double()
    sys.modules["utils"] = utils
    torch.chain_matmul = lambda *matrices: torch.linalg.multi_dot(matrices)
    released_hist = load(arguments.hist, "code/hist.py", "released_hist")

    def hist(tau=32.0, alpha=1.1, weight=1.0, hidden=512):
        def peer(x, labels, parameters):
            classes = int(labels.max()) + 1
            edges = released_hist.CDs2Hg(classes, x.shape[1], tau, alpha)
            network = released_hist.HGNN(classes, x.shape[1], hidden)
            edges.means.data, edges.log_vars.data = parameters["means"], parameters["log_vars"]
            layers = {"theta1": network.theta1, "norm": network.bn1, "theta2": network.theta2}
            for name, layer in layers.items():
                layer.weight.data = parameters["norm_weight" if name == "norm" else name]
                layer.bias.data = parameters[f"{name}_bias"]
            loss, hypergraph = edges(x, labels)
            return loss + weight * torch.nn.functional.cross_entropy(network(x, hypergraph), labels)

        return peer

    CASES += [
        ("hist", ["tau=32", "alpha=1.1"], False, "released code", hist(), EVEN + UNEVEN, True),
        ("hist", ["tau=16", "alpha=2", "lambda=0.5", "hidden=64"], False, "released code", hist(16, 2, 0.5, 64), EVEN + UNEVEN, True),
    ]

# The released code computes in f64 here and has no other rounding than ours.
sys.exit(compare(CASES, arguments.program, 1e-9, arguments.write, "authors.py"))
