"""Compares values and gradients of the losses with pytorch-metric-learning, in f64, on random batches.

    python bench/losses/agree.py [--program target/release/gallerist] [--write docs/losses-agreement.md]

Needs torch, pytorch-metric-learning, numpy and safetensors. Gallerist's side is `gallerist loss` on .npy files of
f64 with `--gradient`; `--save-parameters` writes learned parameters, which are passed to the peer. The table has the largest
difference over all batches: of the value relative to the peer's, of the gradient relative to its largest entry. `--write`
replaces the table between the marks of that file. Exit code 1 if a loss that should agree does not.
"""

import argparse
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--program", default="target/release/gallerist")
parser.add_argument("--write")
arguments = parser.parse_args()

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers

import peers
from compare import EVEN, PAIRS, SQUARE, UNEVEN, compare

# Otherwise MarginLoss, HistogramLoss and SmoothAPLoss compute parts in f32.
torch.set_default_dtype(torch.float64)

# -- peers --------------------------------------------------------------------------------------------------------

mean = reducers.MeanReducer
euclidean, cosine = peers.euclidean, distances.CosineSimilarity


def of(loss, miner=None):
    """A loss of pytorch-metric-learning without parameters of its own, on what a miner of its chose."""
    return lambda x, labels, _: loss(x, labels, miner(x, labels) if miner else None)


def with_parameters(make, attribute, name, transposed):
    """A loss of pytorch-metric-learning with our parameter `name` in the place of its own."""

    def peer(x, labels, parameters):
        values = parameters[name]
        classes = int(labels.max()) + 1
        loss = make(classes, x.shape[1]).double()
        getattr(loss, attribute).data = (values.T if transposed else values).clone().contiguous()
        return loss(x, labels)

    return peer


class SquaredPairs(reducers.BaseReducer):
    """The terms of ContrastiveLoss squared, as Hadsell et al. have them, and their mean over all pairs."""

    def pos_pair_reduction(self, terms, indices, embeddings, _):
        return terms.square().sum() / (len(embeddings) * (len(embeddings) - 1))

    neg_pair_reduction = pos_pair_reduction


def n_pairs(x, labels, _):
    first = torch.arange(0, len(x), 2)
    return losses.NPairsLoss(distance=peers.cosine())(x, labels, (first, first + 1, first[:0], first[:0]))


def rll_corrected(x, labels, _, margin=0.4, t_neg=10.0):
    """RankedListLoss of pytorch-metric-learning line by line, but gallery and weights are detached, as the paper
    says, and nothing is added to the sums of weights."""
    alpha = 1 + margin / 2
    mat = distances.LpDistance()(x, x.detach())
    y = labels[:, None] == labels[None, :]
    negative = ~y * (mat < alpha)
    positive = y.fill_diagonal_(False) * (mat > alpha - margin)
    w_p = positive.double()
    w_n = (torch.exp(t_neg * (alpha - mat)) * negative).detach()
    loss_p = (w_p * (mat - (alpha - margin))).sum(1) / w_p.sum(1).clamp_min(1e-300)
    loss_n = (w_n * (alpha - mat)).sum(1) / w_n.sum(1).clamp_min(1e-300)
    return (0.5 * loss_p + 0.5 * loss_n).mean()


def softmax(x, labels, parameters):
    logits = x @ parameters["weight"].T + parameters["bias"]
    return torch.nn.functional.cross_entropy(logits, labels)


def proxy_nca(x, labels, parameters):
    """-log(p / (1 - p)) for the probability p of ProxyNCALoss: its positive taken out of the denominator."""
    each = with_parameters(
        lambda c, d: losses.ProxyNCALoss(c, d, softmax_scale=1, reducer=reducers.DoNothingReducer()),
        "proxies", "proxies", False,
    )(x, labels, parameters)["loss"]["losses"]
    return (each + torch.log1p(-torch.exp(-each))).mean()


def plain(peer):
    return lambda x, labels, _: peer(torch.nn.functional.normalize(x), labels)


def raw(peer):
    return lambda x, labels, _: peer(x, labels)


P, T = "pytorch-metric-learning", "plain PyTorch"
hard = miners.BatchHardMiner(distance=euclidean())
all_hard = miners.BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard", distance=euclidean())
triplet = lambda margin, power=1, **k: losses.TripletMarginLoss(margin, distance=euclidean(power), reducer=mean(), **k)
lifted = losses.LiftedStructureLoss(neg_margin=1, pos_margin=0, distance=euclidean(), reducer=mean())
margin_loss = losses.MarginLoss(margin=0.2, beta=1.2, distance=euclidean())
ms = lambda: losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)

# Our loss, its settings, whether the rows are normalised, the peer's name, the peer, the batches, whether they agree.
CASES = [
    ("rll", ["margin=0.4", "t_neg=10"], True, f"{P}: RankedListLoss", of(losses.RankedListLoss(margin=0.4, Tn=10)), EVEN + UNEVEN, False),
    ("rll", ["margin=0.4", "t_neg=10"], True, f"{P}: RankedListLoss, gallery and weights detached, without its 1e-5", rll_corrected, EVEN + UNEVEN, True),
    ("ice", ["scale=16", "gradient=paper"], True, T, plain(peers.ice), EVEN[:2], True),
    ("nra", [], False, T, raw(peers.nra), EVEN + UNEVEN, True),
    ("srt", ["temperature=1"], False, T, raw(peers.srt), EVEN[:1] + UNEVEN, True),
    ("contrastive", ["margin=1"], False, f"{P}: ContrastiveLoss, terms squared, mean over all pairs", of(losses.ContrastiveLoss(distance=euclidean(), reducer=SquaredPairs())), EVEN + UNEVEN, True),
    ("triplet_all", ["margin=0.3"], False, f"{P}: TripletMarginLoss of squared distances", of(triplet(0.3, 2)), EVEN + UNEVEN, True),
    ("triplet_all", ["margin=0.3", "miner.name=hard"], False, f"{P}: the same on BatchHardMiner", of(triplet(0.3, 2), hard), EVEN + UNEVEN, True),
    ("triplet_batch_hard", ["margin=0.3"], False, f"{P}: TripletMarginLoss on BatchHardMiner", of(triplet(0.3), hard), EVEN + UNEVEN, True),
    ("triplet_batch_hard", ["soft=true"], False, f"{P}: the same, smooth_loss", of(triplet(0.0, smooth_loss=True), hard), EVEN + UNEVEN, True),
    ("triplet_hard_negative", ["margin=0.3"], False, f"{P}: TripletMarginLoss on BatchEasyHardMiner(all, hard)", of(triplet(0.3), all_hard), EVEN + UNEVEN, True),
    ("margin", ["margin=0.2", "beta=1.2", "miner.name=hard"], False, f"{P}: MarginLoss on BatchHardMiner", of(margin_loss, hard), EVEN + UNEVEN, True),
    ("n_pair", [], False, f"{P}: NPairsLoss", n_pairs, PAIRS, True),
    ("lifted", ["alpha=1", "squared=true"], False, f"{P}: LiftedStructureLoss", of(lifted), EVEN + UNEVEN, True),
    ("multi_similarity", ["alpha=2", "beta=50"], True, f"{P}: MultiSimilarityLoss on MultiSimilarityMiner", of(ms(), miners.MultiSimilarityMiner(epsilon=0.1)), EVEN + UNEVEN, True),
    ("multi_similarity", ["alpha=2", "beta=50", "miner.name=all"], True, f"{P}: MultiSimilarityLoss", of(ms()), EVEN + UNEVEN, True),
    ("circle", ["margin=0.4", "gamma=80"], True, f"{P}: CircleLoss", of(losses.CircleLoss(m=0.4, gamma=80, reducer=mean())), EVEN + UNEVEN, True),
    ("angular", ["angle=45"], True, f"{P}: AngularLoss", of(losses.AngularLoss(alpha=45)), EVEN + UNEVEN, False),
    ("angular", ["angle=45"], True, f"{P}: AngularLoss on normalised rows", lambda x, y, _: losses.AngularLoss(alpha=45)(torch.nn.functional.normalize(x), y), EVEN + UNEVEN, True),
    ("fast_ap", ["bins=10"], True, f"{P}: FastAPLoss", of(losses.FastAPLoss(num_bins=10)), EVEN + UNEVEN, True),
    ("histogram", ["bins=51"], True, f"{P}: HistogramLoss(n_bins=50)", of(losses.HistogramLoss(n_bins=50)), EVEN + UNEVEN, True),
    ("sup_con", [], True, f"{P}: SupConLoss", of(losses.SupConLoss(temperature=0.1, reducer=mean())), EVEN + UNEVEN, True),
    ("sup_con", ["form=nt_xent"], True, f"{P}: NTXentLoss", of(losses.NTXentLoss(temperature=0.1)), EVEN + UNEVEN, True),
    ("smooth_ap", ["temperature=0.05", "include_query=true"], True, f"{P}: SmoothAPLoss", of(losses.SmoothAPLoss(temperature=0.05)), EVEN, False),
    ("smooth_ap", ["temperature=0.05", "include_query=true"], True, f"{P}: SmoothAPLoss, as many classes as samples of each", of(losses.SmoothAPLoss(temperature=0.05)), SQUARE, True),
    ("softmax", [], False, "PyTorch: cross_entropy", softmax, EVEN + UNEVEN, True),
    ("norm_softmax", ["temperature=0.05"], True, f"{P}: NormalizedSoftmaxLoss", with_parameters(losses.NormalizedSoftmaxLoss, "W", "weight", True), EVEN + UNEVEN, True),
    ("norm_softmax", ["temperature=0.1"], True, f"{P}: ProxyNCALoss(softmax_scale=5)", with_parameters(lambda c, d: losses.ProxyNCALoss(c, d, softmax_scale=5), "proxies", "weight", False), EVEN + UNEVEN, True),
    ("proxy_nca", ["scale=1"], True, f"{P}: ProxyNCALoss", with_parameters(losses.ProxyNCALoss, "proxies", "proxies", False), EVEN + UNEVEN, False),
    ("proxy_nca", ["scale=1"], True, f"{P}: ProxyNCALoss, the positive taken out of the denominator", proxy_nca, EVEN + UNEVEN, True),
    ("proxy_anchor", ["alpha=32", "delta=0.1"], True, f"{P}: ProxyAnchorLoss", with_parameters(losses.ProxyAnchorLoss, "proxies", "proxies", False), EVEN + UNEVEN, True),
    ("soft_triple", ["lambda=20", "margin=0.01", "tau=0"], True, f"{P}: SoftTripleLoss", with_parameters(losses.SoftTripleLoss, "fc", "centers", True), EVEN + UNEVEN, True),
    ("arc_face", ["scale=16", "margin=0.5"], True, f"{P}: ArcFaceLoss(margin of 0.5 in degrees)", with_parameters(lambda c, d: losses.ArcFaceLoss(c, d, margin=np.degrees(0.5), scale=16), "W", "weight", True), EVEN + UNEVEN, True),
    ("cos_face", ["scale=16", "margin=0.35"], True, f"{P}: CosFaceLoss", with_parameters(lambda c, d: losses.CosFaceLoss(c, d, margin=0.35, scale=16), "W", "weight", True), EVEN + UNEVEN, True),
]

# The distances of f64 embeddings are accurate to about 1e-12; the product form of cdist is less accurate.
TOLERANCE = 1e-9
sys.exit(compare(CASES, arguments.program, TOLERANCE, arguments.write, "agree.py"))
