"""Ranking losses as ``torch.nn.Module``: ``RllLoss(margin=0.4)(embeddings, labels).backward()``.

A call returns a scalar tensor; see :meth:`Loss.forward`. Embeddings may be on any device.
"""

# Written by generate.py.

from __future__ import annotations

from typing import Any, Literal

from .._loss import Miner
from ._module import Loss

__all__ = [
    "Loss",
    "AngularLoss",
    "ArcFaceLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "FastApLoss",
    "HistLoss",
    "HistogramLoss",
    "HyperbolicLoss",
    "IceLoss",
    "LiftedLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NormSoftmaxLoss",
    "NraLoss",
    "PotentialFieldLoss",
    "ProxyAnchorLoss",
    "ProxyNcaLoss",
    "RecallAtKLoss",
    "RllLoss",
    "RoadmapLoss",
    "SmoothApLoss",
    "SoftTripleLoss",
    "SoftmaxLoss",
    "SpectralClustLoss",
    "SrtLoss",
    "StructClustLoss",
    "SupConLoss",
    "TripletAdaptiveLoss",
    "TripletAllLoss",
    "TripletBatchHardLoss",
    "TripletHardNegativeLoss",
    "TripletSemihardLoss",
]


class AngularLoss(Loss):
    r"""Angular loss: bound the angle at the negative of every triangle of an anchor, its positive and a negative.
    
    Definition and corner cases: :class:`gallerist.losses.AngularLoss`.

    :param angle: Bound on the angle, in degrees. 45 in the paper, which tries 36 to 60.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "angular"

    def __init__(
        self,
        *,
        angle: float = 42.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            angle=angle,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class ArcFaceLoss(Loss):
    r"""ArcFace: softmax over cosines, with a margin added to the angle of the sample's own class.
    
    Definition and corner cases: :class:`gallerist.losses.ArcFaceLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param scale: Factor on the cosines, ``s``. 64 in the paper.
    :param margin: What is added to the own class's angle, ``m``, in radians. 0.5 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "arc_face"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        scale: float = 14.0,
        margin: float = 0.32,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            scale=scale,
            margin=margin,
            seed=seed,
            normalize=normalize,
        )


class CircleLoss(Loss):
    r"""Circle loss: similarities are pushed to their optimum with weights that grow with the way still to go.
    
    Definition and corner cases: :class:`gallerist.losses.CircleLoss`.

    :param margin: Relaxation ``m``: positives are done at ``1 - m``, negatives at ``m``. 0.25 (faces) and 0.4
        (retrieval) in the paper.
    :param gamma: Scale. 256 (faces) and 80 (retrieval) in the paper.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "circle"

    def __init__(
        self,
        *,
        margin: float = 0.5,
        gamma: float = 22.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            gamma=gamma,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class ContrastiveLoss(Loss):
    r"""Contrastive loss: pull the pairs of one class together, push the pairs of different classes a margin
    apart.
    
    Definition and corner cases: :class:`gallerist.losses.ContrastiveLoss`.

    :param margin: Distance beyond which a negative costs nothing. 1.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "contrastive"

    def __init__(
        self,
        *,
        margin: float = 1.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class CosFaceLoss(Loss):
    r"""CosFace: softmax over cosines, with a margin taken off the cosine of the sample's own class.
    
    Definition and corner cases: :class:`gallerist.losses.CosFaceLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param scale: Factor on the cosines, ``s``. 64 in the paper.
    :param margin: What is taken off the own class's cosine, ``m``. 0.35 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "cos_face"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        scale: float = 12.0,
        margin: float = 0.37,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            scale=scale,
            margin=margin,
            seed=seed,
            normalize=normalize,
        )


class FastApLoss(Loss):
    r"""FastAP: average precision of each query's ranking, made smooth by soft histograms of distances.
    
    Definition and corner cases: :class:`gallerist.losses.FastApLoss`.

    :param bins: Number of intervals of the histograms; they have one node more. 10.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "fast_ap"

    def __init__(
        self,
        *,
        bins: int = 10,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            bins=bins,
            seed=seed,
            normalize=normalize,
        )


class HistLoss(Loss):
    r"""HIST: class distributions that make a hypergraph of the batch, and a hypergraph neural network that classifies its
    samples.
    
    Definition and corner cases: :class:`gallerist.losses.HistLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param tau: Factor on the distances in the distribution loss. 32 (CUB, Cars); 16 (SOP).
    :param alpha: Decay of the hypergraph's edges. 1.1 (CUB); 0.9 (Cars); 2 (SOP).
    :param lambda_: Weight of the cross entropy of the hypergraph network. 1 in the paper.
    :param hidden: Hidden values of the hypergraph network. 512 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "hist"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        tau: float = 13.0,
        alpha: float = 1.1,
        lambda_: float = 1.0,
        hidden: int = 512,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            tau=tau,
            alpha=alpha,
            lambda_=lambda_,
            hidden=hidden,
            seed=seed,
            normalize=normalize,
        )


class HistogramLoss(Loss):
    r"""Histogram loss: the probability that a random negative pair is more similar than a random positive pair.
    
    Definition and corner cases: :class:`gallerist.losses.HistogramLoss`.

    :param bins: Number of nodes of the histograms. 151; the paper finds that little depends on it.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "histogram"

    def __init__(
        self,
        *,
        bins: int = 151,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            bins=bins,
            seed=seed,
            normalize=normalize,
        )


class HyperbolicLoss(Loss):
    r"""Hyperbolic embeddings: pairwise cross-entropy over the distances of the Poincaré ball.
    
    Definition and corner cases: :class:`gallerist.losses.HyperbolicLoss`.

    :param temperature: Temperature of the distances. 0.2 in the paper.
    :param curvature: The curvature is minus this number, ``c``. 0.1 in the paper.
    :param clip: Length to which longer rows are clipped, ``r``; 0: no clipping. 2.3 in the paper.
    :param negatives: The negatives of a pair.
    :param epsilon: Added to the lengths and to the denominator of the Möbius addition. 0 as in the equations, 1e-5 in
        the authors' released code.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "hyperbolic"

    def __init__(
        self,
        *,
        temperature: float = 0.26,
        curvature: float = 0.013,
        clip: float = 2.3,
        negatives: Literal["all", "columns"] = "all",
        epsilon: float = 0.0,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            temperature=temperature,
            curvature=curvature,
            clip=clip,
            negatives=negatives,
            epsilon=epsilon,
            seed=seed,
            normalize=normalize,
        )


class IceLoss(Loss):
    r"""Instance cross entropy: each anchor tells each of its positives from all negatives, by a softmax over
    instances.
    
    Definition and corner cases: :class:`gallerist.losses.IceLoss`.

    :param scale: Scale ``s`` of the similarities. 64 in the paper (SOP), whose table also has 16 and 48.
    :param gradient: Which gradient is given. That of the paper is ``paper``.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "ice"

    def __init__(
        self,
        *,
        scale: float = 32.0,
        gradient: Literal["autodiff", "paper", "unnormalized", "query"] = "autodiff",
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            scale=scale,
            gradient=gradient,
            seed=seed,
            normalize=normalize,
        )


class LiftedLoss(Loss):
    r"""Lifted structured loss: each positive pair against all negatives of both its samples.
    
    Definition and corner cases: :class:`gallerist.losses.LiftedLoss`.

    :param alpha: Distance by which negatives must be farther than positives, in the smooth sense. 1 in the paper.
    :param squared: Whether the hinge is squared (the paper) or not (as printed in the ranked list loss papers, and
        the default).
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "lifted"

    def __init__(
        self,
        *,
        alpha: float = 4.0,
        squared: bool = False,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            squared=squared,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class MarginLoss(Loss):
    r"""Margin loss with distance-weighted sampling: positives inside, negatives outside a boundary, negatives
    drawn so that all distances are met equally often.
    
    Definition and corner cases: :class:`gallerist.losses.MarginLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``. Needed for settings with parameters
        of their own.
    :param dimensions: values of an embedding. Needed for settings with parameters of their own.
    :param margin: Distance on either side of the boundary. 0.2 in the paper.
    :param beta: Boundary between positives and negatives, or where it starts. 1.2 in the paper.
    :param boundary: Whether the boundary is learnt.
    :param nu: Weight of the sum of boundaries, which keeps learnt ones small. 0 in the paper.
    :param miner: Which pairs take part. ``distance_weighted`` in the paper.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "margin"

    def __init__(
        self,
        *,
        classes: int | None = None,
        dimensions: int | None = None,
        margin: float = 0.3,
        beta: float = 0.7,
        boundary: Literal["fixed", "learnt", "per_class"] = "fixed",
        nu: float = 0.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            margin=margin,
            beta=beta,
            boundary=boundary,
            nu=nu,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class MultiSimilarityLoss(Loss):
    r"""Multi-Similarity loss: mine the pairs that violate their anchor's order, then weight them by their own and
    by their relative similarity.
    
    Definition and corner cases: :class:`gallerist.losses.MultiSimilarityLoss`.

    :param alpha: Sharpness of the positives' weights. 2 in the paper.
    :param beta: Sharpness of the negatives' weights. 50 in the paper.
    :param base: Similarity ``lambda`` around which pairs are weighed. 0.5, as in the authors' released code.
    :param miner: Which pairs take part. The paper's own mining, ``multi_similarity`` with ``epsilon`` 0.1.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "multi_similarity"

    def __init__(
        self,
        *,
        alpha: float = 3.0,
        beta: float = 12.0,
        base: float = 0.5,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            beta=beta,
            base=base,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class NPairLoss(Loss):
    r"""N-pair-mc: each class's pair against the positives of all other classes' pairs.
    
    Definition and corner cases: :class:`gallerist.losses.NPairLoss`.

    :param l2: Weight of the mean squared norm of the paired embeddings. 0: none; 0.02 is usual.
    :param rounds: Whether all images of a class are paired, 1-2, 3-4, …, and not only the first two.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "n_pair"

    def __init__(
        self,
        *,
        l2: float = 0.0,
        rounds: bool = False,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            l2=l2,
            rounds=rounds,
            seed=seed,
            normalize=normalize,
        )


class NormSoftmaxLoss(Loss):
    r"""SoftMax-norm: softmax over the classes with weights of length 1 and a temperature.
    
    Definition and corner cases: :class:`gallerist.losses.NormSoftmaxLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param temperature: Temperature of the similarities. 0.05 in both papers.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "norm_softmax"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        temperature: float = 0.12,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            temperature=temperature,
            seed=seed,
            normalize=normalize,
        )


class NraLoss(Loss):
    r"""Nonlinear rank approximation: bring each anchor's farthest positive to the front and its nearest
    negative to the back, on a smooth approximation of their ranks.
    
    Definition and corner cases: :class:`gallerist.losses.NraLoss`.

    :param alpha: Steepness of the rank approximation; 1 is linear. 4 in the paper.
    :param eps: Added inside the logarithms. 1e-4.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "nra"

    def __init__(
        self,
        *,
        alpha: float = 4.0,
        eps: float = 0.0001,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            eps=eps,
            seed=seed,
            normalize=normalize,
        )


class PotentialFieldLoss(Loss):
    r"""Potential field (PFML): samples and learnt proxies attract those of their class and repel the others, with forces
    that become weaker with the distance.
    
    Definition and corner cases: :class:`gallerist.losses.PotentialFieldLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``. Needed for settings with parameters
        of their own.
    :param dimensions: values of an embedding. Needed for settings with parameters of their own.
    :param alpha: Exponent of the decay. 0 to 6 in the paper, best from 3 on.
    :param delta: Distance within which positives do not attract and beyond which negatives do not repel. 0.1 to 0.3
        in the paper.
    :param proxies: Proxies for each class, ``M``: 15 (CUB, Cars); 2 (SOP). 0: samples alone.
    :param reduction: What the energy is divided by.
    :param closest: Distance below which the repulsion is continued linearly. Not in the paper; 0.01.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "potential_field"

    def __init__(
        self,
        *,
        classes: int | None = None,
        dimensions: int | None = None,
        alpha: float = 1.2,
        delta: float = 0.3,
        proxies: int = 15,
        reduction: Literal["mean", "sum"] = "mean",
        closest: float = 0.01,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            alpha=alpha,
            delta=delta,
            proxies=proxies,
            reduction=reduction,
            closest=closest,
            seed=seed,
            normalize=normalize,
        )


class ProxyAnchorLoss(Loss):
    r"""Proxy-Anchor: every proxy is an anchor that pulls the samples of its class and pushes the others,
    the hard ones first.
    
    Definition and corner cases: :class:`gallerist.losses.ProxyAnchorLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param alpha: Factor on the similarities. 17 by default, 32 in the paper.
    :param delta: Margin of the similarities, ``delta``. 0.11 by default, 0.1 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "proxy_anchor"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        alpha: float = 17.0,
        delta: float = 0.11,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            alpha=alpha,
            delta=delta,
            seed=seed,
            normalize=normalize,
        )


class ProxyNcaLoss(Loss):
    r"""Proxy-NCA: one learnt proxy a class; pull each sample to the proxy of its class and push it away
    from the others, the near ones first.
    
    Definition and corner cases: :class:`gallerist.losses.ProxyNcaLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param scale: Factor on the squared distances. 1 as printed; later work finds 3 to 9 better.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "proxy_nca"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        scale: float = 2.7,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            scale=scale,
            seed=seed,
            normalize=normalize,
        )


class RecallAtKLoss(Loss):
    r"""Recall@k surrogate (RS@k): the recall among the first ``k``, with both steps (that of the rank and that at ``k``)
    replaced by sigmoids.
    
    Definition and corner cases: :class:`gallerist.losses.RecallAtKLoss`.

    :param k: The values of ``k`` whose recall is approximated. 1, 2, 4, 8 and 16 in the paper.
    :param temperature: Temperature of the sigmoid that approximates the rank. 0.01 in the paper.
    :param rank_temperature: Temperature of the sigmoid at ``k``, in ranks. 1 in the paper.
    :param include_query: Whether a query counts in its own list, as in the authors' released code. False as the
        equations have it.
    :param simix: Similarity mixup: virtual samples between each two samples of a class.
    :param mix: Coefficient of the first sample of each virtual one; absent: uniform in 0..1 for each virtual sample.
        By default uniform in 0..1.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "recall_at_k"

    def __init__(
        self,
        *,
        k: list[int] = [1, 2, 4, 8, 16],
        temperature: float = 0.01,
        rank_temperature: float = 1.0,
        include_query: bool = False,
        simix: bool = False,
        mix: float | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            k=k,
            temperature=temperature,
            rank_temperature=rank_temperature,
            include_query=include_query,
            simix=simix,
            mix=mix,
            seed=seed,
            normalize=normalize,
        )


class RllLoss(Loss):
    r"""Ranked list loss: pull the positives of each query inside a sphere, push its negatives out of a
    larger one, and weight the negatives by how wrong they are.
    
    Definition and corner cases: :class:`gallerist.losses.RllLoss`.

    :param alpha: Distance within which no negative may stay. Absent: ``1 + margin / 2`` (RLL-Simpler). The CVPR paper
        has 1.2.
    :param margin: Width of the shell between positives and negatives: positives are pulled within ``alpha - margin``.
        0.4 in both papers.
    :param t_pos: Temperature of the positives' weights: 0 weights them equally (both papers).
    :param t_neg: Temperature of the negatives' weights: 10 (SOP), 12 (In-shop).
    :param t_neg_end: Temperature of the negatives when all steps are taken; after ``s`` of ``S`` steps it is ``t_neg
        + (t_neg_end - t_neg) s / S`` (dynamic weighting, journal Eq. 15). Absent: constant.
    :param form: How the two parts are added.
    :param lambda_: Weight of the negatives' part. Absent: 0.5 in the journal's form, 1 in CVPR's.
    :param query_weighting: How queries are weighted.
    :param gradient: What gets a gradient. Only ``query`` goes with queries weighted by mass.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "rll"

    def __init__(
        self,
        *,
        alpha: float | None = None,
        margin: float = 0.4,
        t_pos: float = 0.0,
        t_neg: float = 10.0,
        t_neg_end: float | None = None,
        form: Literal["journal", "cvpr"] = "journal",
        lambda_: float | None = None,
        query_weighting: Literal["uniform", "mass"] = "uniform",
        gradient: Literal["query", "both", "autodiff"] = "query",
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            margin=margin,
            t_pos=t_pos,
            t_neg=t_neg,
            t_neg_end=t_neg_end,
            form=form,
            lambda_=lambda_,
            query_weighting=query_weighting,
            gradient=gradient,
            seed=seed,
            normalize=normalize,
        )


class RoadmapLoss(Loss):
    r"""ROADMAP: a smooth upper bound of ``1 - AP`` (SupAP) and a calibration term that brings the mean over batches closer
    to the value on the whole data set.
    
    Definition and corner cases: :class:`gallerist.losses.RoadmapLoss`.

    :param temperature: Temperature of the sigmoid, ``tau``. 0.01 in the paper.
    :param rho: Slope of the rank beyond ``delta``. 100 in the paper.
    :param delta: Difference of similarities from which the rank grows linearly. 0.05 in the paper.
    :param start: What a negative that precedes a positive counts more than the sigmoid: 0.5. The released code has 0
        for iNaturalist.
    :param offset: Value of ``H`` at ``delta``; absent: ``sigmoid(delta / temperature) + start``. 1.44 in the released
        code. By default sigmoid(delta / temperature) + start.
    :param lambda_: Weight of the calibration term; SupAP has 1 minus that. 0.5 in the paper.
    :param positive_margin: Similarity that positives should have, ``alpha``. 0.9 in the paper.
    :param negative_margin: Similarity that negatives should not exceed, ``beta``. 0.6 in the paper.
    :param calibration: Over which pairs the calibration term is a mean.
    :param include_query: Whether a query is a positive in its own list, as in the authors' released code. False as
        the equations have it.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "roadmap"

    def __init__(
        self,
        *,
        temperature: float = 0.027,
        rho: float = 100.0,
        delta: float = 0.05,
        start: float = 0.5,
        offset: float | None = None,
        lambda_: float = 0.8,
        positive_margin: float = 0.7,
        negative_margin: float = 0.6,
        calibration: Literal["query", "violating"] = "query",
        include_query: bool = False,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            temperature=temperature,
            rho=rho,
            delta=delta,
            start=start,
            offset=offset,
            lambda_=lambda_,
            positive_margin=positive_margin,
            negative_margin=negative_margin,
            calibration=calibration,
            include_query=include_query,
            seed=seed,
            normalize=normalize,
        )


class SmoothApLoss(Loss):
    r"""Smooth-AP: average precision with the step of the rank replaced by a sigmoid.
    
    Definition and corner cases: :class:`gallerist.losses.SmoothApLoss`.

    :param temperature: Temperature of the sigmoid. 0.01 in the paper.
    :param include_query: Whether a query is a positive of its own list, as in the authors' released layer. False, as
        in the equations.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "smooth_ap"

    def __init__(
        self,
        *,
        temperature: float = 0.046,
        include_query: bool = False,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            temperature=temperature,
            include_query=include_query,
            seed=seed,
            normalize=normalize,
        )


class SoftTripleLoss(Loss):
    r"""SoftTriple: softmax over classes that have several learnt centres each, and a regulariser that merges
    the centres a class does not need.
    
    Definition and corner cases: :class:`gallerist.losses.SoftTripleLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param centers: Centres a class, ``K``. 10 in the paper.
    :param lambda_: Factor on the similarities. 14 by default, 20 in the paper.
    :param gamma: Temperature of the weights of a class's centres. 0.1 in the paper.
    :param margin: What is taken off the own class's similarity. 0.024 by default, 0.01 in the paper.
    :param tau: Weight of the regulariser that merges centres. 0.2 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "soft_triple"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        centers: int = 10,
        lambda_: float = 14.0,
        gamma: float = 0.1,
        margin: float = 0.024,
        tau: float = 0.2,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            centers=centers,
            lambda_=lambda_,
            gamma=gamma,
            margin=margin,
            tau=tau,
            seed=seed,
            normalize=normalize,
        )


class SoftmaxLoss(Loss):
    r"""Softmax: cross entropy of a linear classifier over the embedding (CCE).
    
    Definition and corner cases: :class:`gallerist.losses.SoftmaxLoss`.

    :param classes: number of training classes; labels are 0 to ``classes - 1``. Needed for settings with parameters
        of their own.
    :param dimensions: values of an embedding. Needed for settings with parameters of their own.
    :param bias: Whether each class has a bias. True as usual for a classifier.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "softmax"

    def __init__(
        self,
        *,
        classes: int | None = None,
        dimensions: int | None = None,
        bias: bool = True,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            bias=bias,
            seed=seed,
            normalize=normalize,
        )


class SpectralClustLoss(Loss):
    r"""Spectral Clust: make the column space of the batch's embeddings that of its class indicators, so that spectral
    clustering finds the classes.
    
    Definition and corner cases: :class:`gallerist.losses.SpectralClustLoss`.

    :param gradient: What ``backward()`` gives. The authors' closed form.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "spectral_clust"

    def __init__(
        self,
        *,
        gradient: Literal["paper", "autodiff"] = "paper",
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            gradient=gradient,
            seed=seed,
            normalize=normalize,
        )


class SrtLoss(Loss):
    r"""Soft ranking threshold: push every positive's smooth rank below a threshold that has room for all
    positives, and every negative's rank above it.
    
    Definition and corner cases: :class:`gallerist.losses.SrtLoss`.

    :param balance: Weight of the positives' part, from 0 to 1; the negatives' has the rest. 0.5.
    :param temperature: Temperature of the smooth ranks. 1 in the paper.
    :param margin: Ranks by which both thresholds move apart (SRT-M). 0: plain.
    :param soft: Softplus instead of the hinges (SRT-SM).
    :param hard_weight: Weight of the hard terms (SRT-H: 0.01). 0: none.
    :param hardest: The pairs the hard terms take.
    :param hard_from_step: Steps that are taken before the hard terms count (SRT-F). 0: they count from the first step
        on.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "srt"

    def __init__(
        self,
        *,
        balance: float = 0.5,
        temperature: float = 0.2,
        margin: float = 0.0,
        soft: bool = False,
        hard_weight: float = 0.0,
        hardest: Literal["max_min", "as_printed"] = "max_min",
        hard_from_step: int = 0,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            balance=balance,
            temperature=temperature,
            margin=margin,
            soft=soft,
            hard_weight=hard_weight,
            hardest=hardest,
            hard_from_step=hard_from_step,
            seed=seed,
            normalize=normalize,
        )


class StructClustLoss(Loss):
    r"""Struct Clust: make the clustering by facility location find the classes, by a margin that grows with how
    far a clustering is from them.
    
    Definition and corner cases: :class:`gallerist.losses.StructClustLoss`.

    :param gamma: Weight of the margin ``1 - NMI``. 1 in the authors' released layer.
    :param refinements: Largest number of rounds of medoid swaps. 5 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "struct_clust"

    def __init__(
        self,
        *,
        gamma: float = 8.2,
        refinements: int = 5,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            gamma=gamma,
            refinements=refinements,
            seed=seed,
            normalize=normalize,
        )


class SupConLoss(Loss):
    r"""Supervised contrastive loss and NT-Xent: softmax over the batch, each positive against the rest.
    
    Definition and corner cases: :class:`gallerist.losses.SupConLoss`.

    :param temperature: Temperature of the similarities. 0.1 in the supervised contrastive paper, 0.5 and 0.1 in
        SimCLR's.
    :param form: The terms of the denominator.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "sup_con"

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        form: Literal["sup_con", "nt_xent"] = "sup_con",
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            temperature=temperature,
            form=form,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class TripletAdaptiveLoss(Loss):
    r"""Adaptively weighted triplet loss: all positives and negatives of an anchor, the far positives and the near
    negatives counting most.
    
    Definition and corner cases: :class:`gallerist.losses.TripletAdaptiveLoss`.

    :param margin: Distance by which the negatives must be farther than the positives. 1 is common.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "triplet_adaptive"

    def __init__(
        self,
        *,
        margin: float = 4.5,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            seed=seed,
            normalize=normalize,
        )


class TripletAllLoss(Loss):
    r"""Triplet loss over all triplets of a batch.
    
    Definition and corner cases: :class:`gallerist.losses.TripletAllLoss`.

    :param margin: Squared distance by which a negative must be farther than a positive. 0.2.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "triplet_all"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            miner=miner,
            seed=seed,
            normalize=normalize,
        )


class TripletBatchHardLoss(Loss):
    r"""Batch-hard triplet loss: each anchor with its farthest positive and its nearest negative.
    
    Definition and corner cases: :class:`gallerist.losses.TripletBatchHardLoss`.

    :param margin: Distance by which the nearest negative must be farther than the farthest positive; not used if
        ``soft``. 0.2; the paper tries 0.1 to 1.
    :param soft: Softplus instead of the hinge, without a margin.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "triplet_batch_hard"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        soft: bool = False,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            soft=soft,
            seed=seed,
            normalize=normalize,
        )


class TripletHardNegativeLoss(Loss):
    r"""Triplet loss with the hardest negative: each positive pair with its anchor's nearest negative.
    
    Definition and corner cases: :class:`gallerist.losses.TripletHardNegativeLoss`.

    :param margin: Distance by which the nearest negative must be farther than a positive. 0.2.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "triplet_hard_negative"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            seed=seed,
            normalize=normalize,
        )


class TripletSemihardLoss(Loss):
    r"""Triplet loss with semi-hard negatives: for each positive pair the nearest negative that is farther than
    the positive, else the farthest negative.
    
    Definition and corner cases: :class:`gallerist.losses.TripletSemihardLoss`.

    :param margin: Squared distance by which a negative must be farther than a positive. 0.2 in FaceNet, 1 where NRA
        compares with it.
    :param seed: seed of the loss's own parameters and of random choices.
    :param normalize: whether rows are scaled to length 1 first; None: as the paper does.
    """

    name = "triplet_semihard"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        seed: int = 1,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            margin=margin,
            seed=seed,
            normalize=normalize,
        )
