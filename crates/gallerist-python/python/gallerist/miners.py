"""Miners: which pairs of a batch a loss looks at.

Give one to a loss that takes a miner: ``ContrastiveLoss(miner=HardMiner())``, or its name: ``miner="hard"``.
No gradient flows through the choice.
"""

# Written by generate.py.

from __future__ import annotations

from typing import Any, Literal

from ._loss import Miner

__all__ = [
    "Miner",
    "AllMiner",
    "DistanceWeightedMiner",
    "HardMiner",
    "MultiSimilarityMiner",
    "SemiHardMiner",
]


class AllMiner(Miner):
    r"""Selects every pair: no mining.
    """

    name = "all"


class DistanceWeightedMiner(Miner):
    r"""Distance-weighted sampling: negatives drawn so that all distances are met equally often.
    
    Wu, Manmatha, Smola, Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017 (section
    4.1). For every query ``a`` and each of its positives one negative ``n`` is drawn with a probability
    proportional to ``1 / q(max(d_an, near_cutoff))``, where
    
    ::
    
        q(d) ~ d^(D-2) (1 - d^2 / 4)^((D-3)/2)
    
    is the density of the distance between random points of the unit sphere in ``D`` dimensions. Negatives
    beyond ``far_cutoff`` are not drawn; where all are beyond it, each is drawn equally often.
    
    The draw of a query is a function of (``seed``, the step, the query's row), so that a run repeats bit
    for bit whatever the number of threads. The densities are compared as logarithms: in 512 dimensions
    they span hundreds of orders of magnitude. A query without a positive or without a negative has no
    selected pair. Made for embeddings of length 1.

    :param near_cutoff: Distance below which negatives are not drawn more often still. 0.5 in the paper.
    :param far_cutoff: Distance beyond which negatives are not drawn. 1.4 in the paper.
    :param seed: Seed of the draws.
    """

    name = "distance_weighted"

    def __init__(
        self,
        *,
        near_cutoff: float = 0.5,
        far_cutoff: float = 1.4,
        seed: int = 0,
    ) -> None:
        super().__init__(
            near_cutoff=near_cutoff,
            far_cutoff=far_cutoff,
            seed=seed,
        )


class HardMiner(Miner):
    r"""The hardest pairs of each query: its farthest positive and its nearest negative.
    
    Hermans, Beyer, Leibe, "In Defense of the Triplet Loss for Person Re-Identification", 2017 (Eq. 5,
    "batch hard"):
    
    ::
    
        p* = argmax over positives of d_ap,   n* = argmin over negatives of d_an
    
    Among equals the one with the lower index. A query without a positive or without a negative has no
    selected pair.
    """

    name = "hard"


class MultiSimilarityMiner(Miner):
    r"""Multi-similarity mining: the pairs that violate their query's order, or come within a slack of it.
    
    Wang, Han, Huang, Dong, Scott, "Multi-Similarity Loss with General Pair Weighting for Deep Metric
    Learning", CVPR 2019 (Eq. 10 and 11). With the similarity ``S_ij = x_i.x_j``:
    
    ::
    
        selected negatives: S_an > min over positives of S_ap - epsilon
        selected positives: S_ap < max over negatives of S_an + epsilon
    
    A query without a positive or without a negative has no selected pair. Made for embeddings of length 1.

    :param epsilon: Slack: the larger, the more pairs are kept. 0.1 in the paper.
    """

    name = "multi_similarity"

    def __init__(
        self,
        *,
        epsilon: float = 0.1,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
        )


class SemiHardMiner(Miner):
    r"""Semi-hard negatives: farther than the positive, but not by the margin.
    
    Schroff, Kalenichenko, Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering",
    CVPR 2015 (section 3.2, Eq. 4 and the sentence after it). For a query ``a`` and each of its positives ``p``:
    
    ::
    
        n* = argmin of d_an  over the negatives with  d_ap^2 < d_an^2 < d_ap^2 + margin
    
    The paper allows any negative of that shell; here it is the hardest of them, the lower index among
    equals, so that a batch always gives the same triplets. A positive without a negative in the shell is not
    selected.

    :param margin: Squared distance by which a negative may be farther than the positive. 0.2 in the paper.
    """

    name = "semi_hard"

    def __init__(
        self,
        *,
        margin: float = 0.2,
    ) -> None:
        super().__init__(
            margin=margin,
        )
