"""Ranking losses on NumPy arrays: ``RllLoss(margin=0.4)(embeddings, labels)``.

A call returns a :class:`LossOutput` with value, gradient and diagnostics for each query; see
:meth:`Loss.__call__`. :mod:`gallerist.torch.losses` has the same losses as ``torch.nn.Module``.
"""

# Written by generate.py.

from __future__ import annotations

from typing import Any, Literal

from ._loss import Loss, LossOutput, Miner, Queries

__all__ = [
    "Loss",
    "LossOutput",
    "Queries",
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
    
    Wang, Zhou, Wen, Liu, Lin, "Deep Metric Learning with Angular Loss", ICCV 2017.
    
    With ``t = tan(angle)^2`` and embeddings of length 1, the constants of ``d_ap^2 - 4 t |x_n - (x_a +
    x_p)/2|^2`` dropped:
    
    ::
    
        f_apn = 4 t (x_a + x_p).x_n - 2 (1 + t) x_a.x_p
        L     = mean over all (a, p) of log(1 + sum over negatives n of exp(f_apn))
    
    where ``n`` runs over the samples that are negatives of both ``a`` and ``p``. With two images a class this is
    the paper's mean over the batch. The paper's combination with N-pair is a weighted sum of two losses. A
    query's own loss is the mean over its positives. With a memory, ``p`` and ``n`` are from the query's list, but not
    both from the memory: one side of that triangle would be constant.
    
    With a miner (see :mod:`gallerist.miners`) the pairs ``(a, p)`` are the selected ones, and ``n`` is a selected
    negative of ``a`` that is a negative of ``p``.
    
    **Held constant**: nothing.
    
    **Corner cases**
    
    - The largest exponent (at least 0) is subtracted before ``exp``.
    - A pair without a negative contributes 0; a batch without a positive pair has the value 0.
    
    Memory ``O(n (n + d))``, time ``O(n^2 d + n k)`` for ``k`` positive pairs: triangles are summed block by block, with
    their derivatives.

    :param angle: Bound on the angle, in degrees. 45 in the paper, which tries 36 to 60.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    """

    name = "angular"

    def __init__(
        self,
        *,
        angle: float = 42.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__(
            angle=angle,
            miner=miner,
            seed=seed,
        )


class ArcFaceLoss(Loss):
    r"""ArcFace: softmax over cosines, with a margin added to the angle of the sample's own class.
    
    Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR 2019 (Eq. 3). With
    ``theta_z`` the angle between the embedding and the weight ``w_z``:
    
    ::
    
        L_i = -log( e^(s cos(theta_y + m)) / (e^(s cos(theta_y + m)) + sum over z != y of e^(s cos theta_z)) )
        L   = mean of L_i over the batch
    
    Where ``theta_y + m`` exceeds pi the cosine would rise again; there ``cos theta_y - m sin m`` stands in its
    place, as in the authors' released layer and in pytorch-metric-learning's ``ArcFaceLoss`` (whose margin
    is given in degrees).
    
    **Held constant**: nothing; embeddings and weights learn. The loss depends on angles, so the length of
    an embedding does not matter; it is divided out here.
    
    **Corner cases**
    
    - As for ``Softmax``.
    - The derivative of ``cos(theta + m)`` by ``cos theta`` is ``sin(theta + m) / sin theta``, infinite at 0. An embedding
      in its weight's direction has no direction to be turned in: that pair's gradient is 0. Near it the sine is
      computed from the difference of the two unit vectors, which keeps its digits.
    - An embedding or a weight of zeros counts as perpendicular to everything and gets no gradient.
    
    Memory and time: ``O((n + classes) d)`` and ``O(n classes d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param scale: Factor on the cosines, ``s``. 64 in the paper.
    :param margin: What is added to the own class's angle, ``m``, in radians. 0.5 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
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
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            scale=scale,
            margin=margin,
            seed=seed,
        )


class CircleLoss(Loss):
    r"""Circle loss: similarities are pushed to their optimum with weights that grow with the way still to go.
    
    Sun, Cheng, Zhang, Zhang, Zheng, Wang, Wei, "Circle Loss: A Unified Perspective of Pair Similarity
    Optimization", CVPR 2020, with pair-wise labels: one loss per anchor.
    
    With ``s_p``, ``s_n`` the cosine similarities of an anchor's positives and negatives:
    
    ::
    
        a_p = [1 + m - s_p]_+,   a_n = [s_n + m]_+           the weights
        L_a = log(1 + sum_n exp(gamma a_n (s_n - m)) sum_p exp(-gamma a_p (s_p - (1 - m))))
        L   = mean over the anchors with a positive and a negative
    
    **Held constant**: the weights ``a_p`` and ``a_n``.
    
    **Corner cases**
    
    - Both sums are taken as logarithms, so that gamma 256 does not overflow.
    - Anchors without a positive or without a negative contribute 0 and are not counted in the mean.
    - Embeddings that are not of length 1 give finite values, but the margins mean nothing then.
    - With a miner (see :mod:`gallerist.miners`) positives and negatives are the selected ones.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param margin: Relaxation ``m``: positives are done at ``1 - m``, negatives at ``m``. 0.25 (faces) and 0.4
        (retrieval) in the paper.
    :param gamma: Scale. 256 (faces) and 80 (retrieval) in the paper.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    """

    name = "circle"

    def __init__(
        self,
        *,
        margin: float = 0.5,
        gamma: float = 22.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            gamma=gamma,
            miner=miner,
            seed=seed,
        )


class ContrastiveLoss(Loss):
    r"""Contrastive loss: pull the pairs of one class together, push the pairs of different classes a margin
    apart.
    
    Hadsell, Chopra, LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006.
    
    ::
    
        L = mean over unordered pairs of  d_ij^2               (same class)
                                          [margin - d_ij]_+^2  (different classes)
    
    **Held constant**: nothing. A query's own loss is the mean over its ``n - 1`` pairs, so that the loss is
    the mean over the queries. With a memory of ``m`` it has ``n - 1 + m``. With a miner (see :mod:`gallerist.miners`) both
    means are over the selected pairs.
    
    **Corner cases**
    
    - Coincident rows of two classes cost ``margin^2`` and have no direction: gradient 0.
    - A batch of one sample has the value 0.
    
    The embeddings are L2-normalised by default. Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param margin: Distance beyond which a negative costs nothing. 1.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    """

    name = "contrastive"

    def __init__(
        self,
        *,
        margin: float = 1.0,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            miner=miner,
            seed=seed,
        )


class CosFaceLoss(Loss):
    r"""CosFace: softmax over cosines, with a margin taken off the cosine of the sample's own class.
    
    Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018 (Eq. 4).
    Normalised embeddings. With ``w_z`` scaled to length 1:
    
    ::
    
        L_i = -log( e^(s (w_y.x_i - m)) / (e^(s (w_y.x_i - m)) + sum over z != y of e^(s w_z.x_i)) )
        L   = mean of L_i over the batch
    
    **Held constant**: nothing; embeddings and weights learn. The embeddings are taken as they are;
    pytorch-metric-learning's ``CosFaceLoss`` normalises them too, which is the same on normalised
    embeddings.
    
    **Corner cases**
    
    As for ``Softmax``. A weight of zeros has the cosine 0 and gets no gradient.
    
    Memory and time: ``O((n + classes) d)`` and ``O(n classes d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param scale: Factor on the cosines, ``s``. 64 in the paper.
    :param margin: What is taken off the own class's cosine, ``m``. 0.35 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
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
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            scale=scale,
            margin=margin,
            seed=seed,
        )


class FastApLoss(Loss):
    r"""FastAP: average precision of each query's ranking, made smooth by soft histograms of distances.
    
    Cakir, He, Xia, Kulis, Sclaroff, "Deep Metric Learning to Rank", CVPR 2019.
    
    For a query, squared Euclidean distances of embeddings of length 1 are in ``[0, 4]``. With the nodes ``t_0 =
    0, ..., t_bins = 4`` and the step ``D = 4 / bins``:
    
    ::
    
        h_b    = sum over the gallery of [1 - |d^2 - t_b| / D]_+      (h+: the positives only)
        H_b    = h_0 + ... + h_b
        FastAP = 1 / P sum over b of h+_b H+_b / H_b
        L      = mean over the queries with a positive of 1 - FastAP
    
    **Held constant**: nothing.
    
    **Corner cases**
    
    - A distance exactly at a node has slope 0 there, as a tent's top has.
    - Where ``H_b = 0`` the term is 0. Distances beyond the last node, as of rows that are not of length 1,
      belong to no node: they count as not retrieved.
    - A query without a positive contributes 0 and is not counted in the mean; one without a negative has
      FastAP 1 up to the ties that the histogram makes.
    - In a collapsed batch all distances are at the first node: the gradient is 0.
    
    Memory and time: ``O(n d + bins)`` and ``O(n^2 d + n bins)``.

    :param bins: Number of intervals of the histograms; they have one node more. 10.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "fast_ap"

    def __init__(
        self,
        *,
        bins: int = 10,
        seed: int = 1,
    ) -> None:
        super().__init__(
            bins=bins,
            seed=seed,
        )


class HistLoss(Loss):
    r"""HIST: class distributions that make a hypergraph of the batch, and a hypergraph neural network that classifies its
    samples.
    
    Lim, Yun, Park, Choi, "Hypergraph-Induced Semantic Tuplet Loss for Deep Metric Learning", CVPR 2022. Each class ``c``
    has a learnt mean ``m_c`` of length 1 and learnt variances ``v_c = exp(min(max(w_c, 0), 6))`` of the dimensions. With
    the normalised embeddings ``z_i`` and the ``n x B`` matrix ``H`` of the samples and the ``B`` classes in the batch:
    
    ::
    
        M(i, c) = sum over the dimensions of (z_i - m_c)^2 / v_c
        L_D     = mean over the samples of -log(exp(-tau M(i, y_i)) / sum over all classes c of exp(-tau M(i, c)))
        H(i, c) = 1 where i is of the class c, else exp(-alpha M(i, c))
        G       = D_v^(-1/2) H D_e^(-1) H^T D_v^(-1/2)          D_v, D_e: sums of the rows and of the columns of H
        Q       = G (LeakyReLU(BatchNorm(G (x theta_1 + b_1))) theta_2 + b_2)
        L       = L_D + lambda CrossEntropy(Q, y)
    
    The network takes the embeddings ``x`` as the loss gets them, **not** normalised; the means' lengths do not count. The
    batch norm uses the statistics of the batch; the leak is 0.1. The paper's own networks end with a layer norm without
    parameters.
    
    The paper trains the distributions and the hypergraph network with learning rates of their own (0.1, and 5 to 10
    times that of the embedding network); here both have ``optimizer.loss_factor``.
    
    **Held constant**: nothing; the gradient flows through ``H``, too.
    
    **Corner cases**
    
    - Samples with sets of labels: the cross entropies are means over a sample's labels, each against the classes it does
      not have; a sample without a label has none. A batch without any label has the loss 0.
    - A single sample has the batch norm's output 0 before scale and shift.
    - The released code leaves samples out of ``L_D`` whose probability underflows; here the logarithm is computed without
      that underflow.
    
    The diagnostics are those of ``L_D``: a sample's own classes and the others.
    
    Memory: ``O(n^2 + n C + (n + C) (d + h) + d h)`` for ``C`` classes and ``h`` hidden values, of which ``n^2`` is the matrix ``G``. Time:
    ``O(n^2 (C + h) + n C (d + h) + n d h)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param tau: Factor on the distances in the distribution loss. 32 (CUB, Cars); 16 (SOP).
    :param alpha: Decay of the hypergraph's edges. 1.1 (CUB); 0.9 (Cars); 2 (SOP).
    :param lambda_: Weight of the cross entropy of the hypergraph network. 1 in the paper.
    :param hidden: Hidden values of the hypergraph network. 512 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
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
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            tau=tau,
            alpha=alpha,
            lambda_=lambda_,
            hidden=hidden,
            seed=seed,
        )


class HistogramLoss(Loss):
    r"""Histogram loss: the probability that a random negative pair is more similar than a random positive pair.
    
    Ustinova, Lempitsky, "Learning Deep Embeddings with Histogram Loss", NIPS 2016.
    
    Two histograms over ``bins`` nodes ``t_r`` from -1 to 1 with the step ``D = 2 / (bins - 1)``; a pair of
    similarity ``s = x_i.x_j`` between two nodes is shared between them linearly:
    
    ::
    
        h_r = mean over the pairs of [1 - |s - t_r| / D]_+    (h+: the positive pairs, h-: the negative pairs)
        L   = sum over r of h-_r sum over q <= r of h+_q
    
    Pairs are unordered; a pair with a row of the memory counts half as much as one inside the batch, which is in
    two lists. **Held constant**: nothing; the derivative is ``-h-_r / D`` over the number of positive
    pairs at a positive pair between the nodes ``r`` and ``r + 1``, and ``h+_{r+1} / D`` over the number of negative
    pairs at a negative one.
    
    A query's own loss: its negatives' share of the value, times ``n``; the mean over the queries is the value.
    
    **Corner cases**
    
    - At a node the derivative is that of the interval above it (below it at the last node).
    - Similarities outside -1 to 1, as of rows that are not of length 1, count at the nearest node and get no
      gradient; within 1e-5 of it (rounding) they get that of the outermost interval.
    - A batch without a positive or without a negative pair has the value 0.
    
    Memory and time: ``O(n (n + d))`` and ``O(n^2 d)``. The histograms are summed in f64.

    :param bins: Number of nodes of the histograms. 151; the paper finds that little depends on it.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "histogram"

    def __init__(
        self,
        *,
        bins: int = 151,
        seed: int = 1,
    ) -> None:
        super().__init__(
            bins=bins,
            seed=seed,
        )


class HyperbolicLoss(Loss):
    r"""Hyperbolic embeddings: pairwise cross-entropy over the distances of the Poincaré ball.
    
    Ermolov, Mirvakhabova, Khrulkov, Sebe, Oseledets, "Hyperbolic Vision Transformers: Combining Improvements in Metric
    Learning", CVPR 2022. Embeddings as the network gives them, **not** normalised. Each is clipped to the length
    ``clip = r`` and mapped to the ball of the curvature ``-c`` by the exponential map at 0:
    
    ::
    
        u        = x min(1, r / |x|)
        y        = tanh(sqrt(c) |u|) u / (sqrt(c) |u|)
        D(y, z)  = 2/sqrt(c) asinh(sqrt(c) |y - z| / sqrt((1 - c |y|^2) (1 - c |z|^2)))
        l(a, p)  = -log(exp(-D(a, p)/t) / (exp(-D(a, p)/t) + sum over j in N of exp(-D(a, j)/t)))
        L        = mean of l(a, p) over all ordered pairs of an anchor and a positive
    
    ``D`` is the paper's ``2/sqrt(c) artanh(sqrt(c) |(-y) ⊕ z|)`` in the form that keeps its digits. ``N`` are all samples of
    other classes (``negatives = "all"``). In a batch with two samples of each class these are the paper's. With more, the
    authors' released code takes the negatives of each pair from the two columns of the batch that hold ``a`` and ``p``:
    ``negatives = "columns"``, where the column of a sample is the number of earlier samples of its class. The released
    value is the sum over ordered pairs divided by the number of classes: ``K (K - 1)`` times this one for ``K`` samples of
    each class. The released functions add 1e-5 to three denominators (``epsilon = 1e-5``; 0 here).
    
    **Held constant**: nothing. The paper uses the Euclidean gradient, without the factor of the Riemannian one.
    
    **What the evaluation ranks by**
    
    Embeddings files hold the network's outputs, not the points of the ball, and are compared by cosine
    (``evaluation.metric``). For rows of length ``clip`` or more this **is** the ranking by the distance ``D``: all their
    points lie on one sphere, where ``D`` increases with the angle. For shorter rows the two rankings differ, and neither
    cosine nor Euclidean distance gives that by ``D``; the log then has a remark. With ``clip = 0`` (no clipping) the
    rankings always differ. Near 0, where ``sqrt(c) |u|`` is small, ``D`` is close to twice the Euclidean distance.
    
    **Corner cases**
    
    - Points are kept within 0.999 of the ball's radius, as in the released code; beyond, a row's length has no gradient.
    - A row of zeros is the centre of the ball. Coincident rows have distance 0 and no gradient from each other.
    - A pair of an anchor without negatives costs 0. Without any positive pair the loss is 0.
    
    Memory and time: ``O(n (n + d))`` and ``O(n^2 d)``; with ``negatives = "columns"``, both also ``O(n^2 K)``.
    
    Tensor code, not a list loss: the distances depend on the lengths of the rows, too.

    :param temperature: Temperature of the distances. 0.2 in the paper.
    :param curvature: The curvature is minus this number, ``c``. 0.1 in the paper.
    :param clip: Length to which longer rows are clipped, ``r``; 0: no clipping. 2.3 in the paper.
    :param negatives: The negatives of a pair.
    :param epsilon: Added to the lengths and to the denominator of the Möbius addition. 0 as in the equations, 1e-5 in
        the authors' released code.
    :param seed: seed of the loss's own parameters and of random choices.
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
    ) -> None:
        super().__init__(
            temperature=temperature,
            curvature=curvature,
            clip=clip,
            negatives=negatives,
            epsilon=epsilon,
            seed=seed,
        )


class IceLoss(Loss):
    r"""Instance cross entropy: each anchor tells each of its positives from all negatives, by a softmax over
    instances.
    
    Wang, Hua, Kodirov, Clifton, Robertson, "Instance Cross Entropy for Deep Metric Learning", 2019
    (Eqs. 11-15 the gradient).
    
    For an anchor ``a`` with negatives ``N_a`` and one of its positives ``i``, all of length 1:
    
    ::
    
        p(i | a) = exp(s x_a.x_i) / (exp(s x_a.x_i) + sum over j in N_a of exp(s x_a.x_j))
        L        = -(1/n) sum over anchors a and their positives i of log p(i | a)
    
    ``gradient = "paper"``: with ``w_i = 1 - p(i | a)`` and ``w_j = sum over i of p(j | a, i)``, both divided by
    their total over the anchor's positives and negatives and by ``n``, the partial derivative is
    ``-x_a w_i`` on a positive and ``+x_a w_j`` on a negative; there is no factor ``s``. **Held constant**: the
    anchor and the weights; every sample is an anchor once, so every sample gets its share.
    ``gradient = "autodiff"``: the true derivative of the value; nothing is held constant.
    ``gradient = "unnormalized"`` and ``gradient = "query"``, to compare the two: the true derivative is the scale times their
    sum. The first is the paper's without the division by the anchor's total. The second is the part of the anchors:
    positives and negatives are held constant.
    
    The paper's gradient does not become smaller as the loss does: the weights of an anchor sum to 1 however well it is
    placed. A network that is good at the start can end worse: on CUB-200 it did, with ``gradient = "autodiff"`` it did not.
    Trained from random weights it is 16 to 23 points of Recall@1 below the true derivative, because the anchors are held
    constant; the normalisation makes little difference (``docs/results/ice-scale.md``).
    At a scale of 64 a difference of similarities of 0.05 is already decisive, and the rows move together until rounding
    decides between neighbours; at 16 they keep their distances (``experiments/cub200.md``).
    
    With a memory, a pair of an anchor and a memory's row ``x_j`` would give no gradient at all if the anchor were
    held constant. It is given in the exchanged roles: with the same weights, ``-x_j w_j`` on the anchor where ``j``
    is a positive and ``+x_j w_j`` where it is a negative, the memory's row held constant. So every sample gets a
    share from each pair it is in, as from the pairs inside the batch. The weights are normalised over the
    whole list.
    
    **Corner cases**
    
    - The weights of the positives sum to 1/2 and so do those of the negatives, whatever the scale:
      ``w_i`` is proportional to ``sigmoid(log sum exp(s x_a.x_j) - s x_a.x_i)`` and ``w_j`` to ``exp(s x_a.x_j)``.
      Both are taken as softmaxes of logarithms, which neither cancel (as ``1 - p`` does where ``p`` is
      near 1) nor underflow at ``s = 64``.
    - An anchor without a positive or without a negative contributes 0 and gives no gradient.
    - Coincident rows are ordinary here; a row of zeros is similar by 0 to everything.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param scale: Scale ``s`` of the similarities. 64 in the paper (SOP), whose table also has 16 and 48.
    :param gradient: Which gradient is given. That of the paper is ``paper``.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "ice"

    def __init__(
        self,
        *,
        scale: float = 32.0,
        gradient: Literal["autodiff", "paper", "unnormalized", "query"] = "autodiff",
        seed: int = 1,
    ) -> None:
        super().__init__(
            scale=scale,
            gradient=gradient,
            seed=seed,
        )


class LiftedLoss(Loss):
    r"""Lifted structured loss: each positive pair against all negatives of both its samples.
    
    Oh Song, Xiang, Jegelka, Savarese, "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR
    2016 (Eq. 4).
    
    With ``P`` the unordered positive pairs and ``N_i`` the negatives of ``i``:
    
    ::
    
        J_ij = log(sum over k in N_i of exp(alpha - d_ik) + sum over l in N_j of exp(alpha - d_jl)) + d_ij
        L    = 1 / (2 |P|) sum over P of [J_ij]_+^2      (squared)
             = 1 / (2 |P|) sum over P of [J_ij]_+        (the form printed in the ranked list loss papers)
    
    With a memory, the pairs are those of a query and a positive in its list (a pair inside the batch is in
    two lists), and the mean is over them; the negatives of a memory's row are the batch's.
    
    **Held constant**: nothing. A query's own loss is half the mean of ``[J_ij]_+^2`` (or ``[J_ij]_+``) over its
    positives. With a miner (see :mod:`gallerist.miners`) ``P`` are the ordered selected pairs, twice ``|P|`` their number, and
    ``N_i`` the selected negatives.
    
    **Corner cases**
    
    - A pair without any negative contributes 0; it is counted in ``|P|``.
    - The largest exponent is subtracted before ``exp``.
    - Coincident rows have no direction; a collapsed batch has a value and the gradient 0.
    - A batch without a positive pair has the value 0.
    
    The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
    trained, by the Euclidean distance. Memory and time: ``O(n (n + d))`` and ``O(n^2 d)``.
    
    Tensor code, not a list loss: each positive pair joins the negatives of two queries.

    :param alpha: Distance by which negatives must be farther than positives, in the smooth sense. 1 in the paper.
    :param squared: Whether the hinge is squared (the paper) or not (as printed in the ranked list loss papers, and
        the default).
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    """

    name = "lifted"

    def __init__(
        self,
        *,
        alpha: float = 4.0,
        squared: bool = False,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__(
            alpha=alpha,
            squared=squared,
            miner=miner,
            seed=seed,
        )


class MarginLoss(Loss):
    r"""Margin loss with distance-weighted sampling: positives inside, negatives outside a boundary, negatives
    drawn so that all distances are met equally often.
    
    Wu, Manmatha, Smola, Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017 (sections 4.1
    and 4.2).
    
    A miner chooses the pairs; the paper's, and the default, is
    ``distance_weighted``: for every anchor and each of its positives
    one negative is drawn. A negative drawn for several positives counts as often.
    
    ::
    
        L = 1/M (sum over the positive pairs of [d_ap - beta + margin]_+ + nu beta
                 + sum over the negative pairs of [beta - d_an + margin]_+)
    
    with ``M`` the number of hinges above 0, as in the authors' released code. The boundary ``beta`` is fixed,
    learnt, or learnt per class (that of the anchor's class counts). **Held constant**: the choice. A query's
    own loss is the mean over its positive pairs plus the mean over its negative pairs. With
    a memory, positives and negatives are of the whole list.
    
    **Corner cases**
    
    - Hinges have slope 0 at the kink. Coincident rows cost what the equation says and have no direction.
    - A batch without a hinge above 0 has the value 0.
    - ``boundary = "per_class"`` needs one class per sample.
    
    Memory and time: ``O(n (n + d))`` and ``O(n^2 d)``.
    
    Tensor code, not a list loss: its mean is over the active pairs of all queries, which are known only after all lists
    were read, and its boundary is learnt.

    :param classes: number of training classes; labels are 0 to ``classes - 1``. Needed for settings with parameters
        of their own.
    :param dimensions: values of an embedding. Needed for settings with parameters of their own.
    :param margin: Distance on either side of the boundary. 0.2 in the paper.
    :param beta: Boundary between positives and negatives, or where it starts. 1.2 in the paper.
    :param boundary: Whether the boundary is learnt.
    :param nu: Weight of the sum of boundaries, which keeps learnt ones small. 0 in the paper.
    :param miner: Which pairs take part. ``distance_weighted`` in the paper.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
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
        )


class MultiSimilarityLoss(Loss):
    r"""Multi-Similarity loss: mine the pairs that violate their anchor's order, then weight them by their own and
    by their relative similarity.
    
    Wang, Han, Huang, Dong, Scott, "Multi-Similarity Loss with General Pair Weighting for Deep Metric
    Learning", CVPR 2019.
    
    With the similarity ``S_ij = x_i.x_j`` of embeddings of length 1:
    
    ::
    
        kept negatives N*: S_in > min over positives of S_ip - epsilon
        kept positives P*: S_ip < max over negatives of S_in + epsilon
        L_i = 1/alpha log(1 + sum_P* exp(-alpha (S_ip - base))) + 1/beta log(1 + sum_N* exp(beta (S_in - base)))
        L   = mean of L_i over all n
    
    **Held constant**: which pairs are kept. Another miner than the paper's can choose them
    (see :mod:`gallerist.miners`).
    
    **Corner cases**
    
    - With mining, an anchor without a positive or without a negative has nothing to be compared with and
      contributes 0. Without mining (``miner = { name = "all" }``) each side counts by itself.
    - The largest exponent is subtracted before ``exp``; a sum far below 1 keeps its relative precision.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param alpha: Sharpness of the positives' weights. 2 in the paper.
    :param beta: Sharpness of the negatives' weights. 50 in the paper.
    :param base: Similarity ``lambda`` around which pairs are weighed. 0.5, as in the authors' released code.
    :param miner: Which pairs take part. The paper's own mining, ``multi_similarity`` with ``epsilon`` 0.1.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
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
    ) -> None:
        super().__init__(
            alpha=alpha,
            beta=beta,
            base=base,
            miner=miner,
            seed=seed,
        )


class NPairLoss(Loss):
    r"""N-pair-mc: each class's pair against the positives of all other classes' pairs.
    
    Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NIPS 2016.
    
    The first two samples of each class, in the order of the batch, are its pair ``(x_i, x_i+)``:
    
    ::
    
        L = mean over the pairs of log(1 + sum over j != i of exp(x_i.x_j+ - x_i.x_i+))
          + l2 times the mean squared norm of the paired embeddings
    
    With more than two images a class, the default still uses the first two and says so in ``Queries::note``;
    ``rounds = true`` pairs them 1-2, 3-4, … and takes the mean over the rounds. A class takes part in as many
    rounds as it has pairs. **Held constant**: nothing.
    
    With label sets each label, in the order in which labels appear, pairs its samples that no earlier label
    has paired; a pair's positive that shares a label with an anchor is not its negative.
    
    The loss depends on the order of the batch within a class, by which the pairs are formed, and not on that
    of the classes.
    
    **Corner cases**
    
    - The largest exponent (at least 0) is subtracted before ``exp``.
    - Samples without a partner are not used. A batch without a pair has the value 0; one pair alone costs
      only its norms.
    
    The loss takes no cross-batch memory: its pairs are formed inside a batch.
    
    The embeddings are not normalised. Memory and time: ``O(c^2 + n d)`` and ``O(c^2 d)`` in the number ``c`` of classes,
    for each round.

    :param l2: Weight of the mean squared norm of the paired embeddings. 0: none; 0.02 is usual.
    :param rounds: Whether all images of a class are paired, 1-2, 3-4, …, and not only the first two.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "n_pair"

    def __init__(
        self,
        *,
        l2: float = 0.0,
        rounds: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__(
            l2=l2,
            rounds=rounds,
            seed=seed,
        )


class NormSoftmaxLoss(Loss):
    r"""SoftMax-norm: softmax over the classes with weights of length 1 and a temperature.
    
    Zhai & Wu, "Classification is a Strong Baseline for Deep Metric Learning", BMVC 2019 (Eq. 2), and the
    baseline ``SoftMax_norm`` of Qian et al., ICCV 2019 (Eq. 4, with ``lambda = 1 / temperature``). Normalised
    embeddings. With ``w_z`` scaled to length 1:
    
    ::
    
        L_i = -log( exp(w_y.x_i / temperature) / sum over all z of exp(w_z.x_i / temperature) )
        L   = mean of L_i over the batch
    
    **Held constant**: nothing; embeddings and weights learn. The embeddings are taken as they are.
    pytorch-metric-learning's ``NormalizedSoftmaxLoss`` normalises them too, which is the same on
    normalised embeddings.
    
    **Corner cases**
    
    As for ``Softmax``. A weight of zeros has the similarity 0 and gets no gradient.
    
    Memory and time: ``O((n + classes) d)`` and ``O(n classes d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param temperature: Temperature of the similarities. 0.05 in both papers.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "norm_softmax"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        temperature: float = 0.12,
        seed: int = 1,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            temperature=temperature,
            seed=seed,
        )


class NraLoss(Loss):
    r"""Nonlinear rank approximation: bring each anchor's farthest positive to the front and its nearest
    negative to the back, on a smooth approximation of their ranks.
    
    Schall, Barthel, Hezel, Jung, "Deep Metric Learning using Similarities from Nonlinear Rank
    Approximations", 2019.
    
    For an anchor ``i`` with distances ``d_ij`` to all others:
    
    ::
    
        Dmax, Dmin = largest and smallest d_ij over all j != i
        r_p = (largest positive distance  - Dmin) / (Dmax - Dmin)
        r_n = (smallest negative distance - Dmin) / (Dmax - Dmin)
        w(r) = 1/2 (2 r)^alpha              for r < 1/2
             = 1 - 1/2 (2 (1 - r))^alpha    from 1/2 on
        s = 1 - w(r)
        J_i = -log(s_p + eps) - log(1 - s_n + eps)
        L   = mean of J_i over the anchors that have a positive and a negative
    
    **Held constant**: nothing; the gradient flows through Dmax and Dmin too.
    
    The embeddings are not normalised in training and are normalised at test: they are compared by the cosine
    (``LossConfig::metric``). The loss does not change
    when all distances are multiplied by one number.
    
    **Corner cases**
    
    - Dmax = Dmin: the anchor contributes 0 and has no gradient.
    - Where the farthest positive is the farthest of all (``r_p = 1``) or the nearest negative the nearest
      of all (``r_n = 0``), that term is at its largest and its gradient is 0: a dead term. They are
      counted in ``Queries::dead_terms``; both terms of an anchor with Dmax = Dmin count as dead.
    - Two samples at the same extreme distance: one of them carries the gradient.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param alpha: Steepness of the rank approximation; 1 is linear. 4 in the paper.
    :param eps: Added inside the logarithms. 1e-4.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "nra"

    def __init__(
        self,
        *,
        alpha: float = 4.0,
        eps: float = 0.0001,
        seed: int = 1,
    ) -> None:
        super().__init__(
            alpha=alpha,
            eps=eps,
            seed=seed,
        )


class PotentialFieldLoss(Loss):
    r"""Potential field (PFML): samples and learnt proxies attract those of their class and repel the others, with forces
    that become weaker with the distance.
    
    Bhatnagar, Ahuja, "Potential Field Based Deep Metric Learning", CVPR 2025 (Eqs. 1-6). Normalised embeddings; the
    proxies' directions count, not their lengths. ``M`` proxies for each class. With the Euclidean distance ``d`` of two
    points, samples or proxies:
    
    ::
    
        attraction(d) = -1/delta^alpha  d < delta,  -1/d^alpha      otherwise      (same class)
        repulsion(d)  =  1/d^alpha      d < delta,   1/delta^alpha  otherwise      (different classes)
        U             = sum over all ordered pairs of two points of the potential of one in the field of the other
        L             = U / n
    
    Points of a class that are nearer than ``delta`` do not attract each other, and points of different classes that are
    farther apart do not repel each other. ``U`` counts each pair twice, once in the field of each; pairs of two proxies
    are among them. The paper minimises the sum ``U`` (``reduction = "sum"``). Its gradient is ``n`` times that of the mean:
    the choice matters where the learning rate is not adaptive, or where the loss is one of several. The paper trains
    the proxies with 100 times the learning rate of the network (``optimizer.loss_factor``).
    
    The authors have not released code, and the paper does not name the values of ``alpha`` and ``delta`` for each data set:
    they searched 0 to 6 and 0.1 to 0.3. Presets have 4 and 0.2.
    
    Below the distance ``closest`` the repulsion is continued linearly, with its slope at ``closest``, because the equation
    is unbounded at 0.
    
    **Held constant**: nothing; samples and proxies get a gradient from every pair.
    
    **Corner cases**
    
    - Coincident points of different classes cost a finite amount; the direction being undefined there, the gradient of
      the pair is 0.
    - A point without others of its class is repelled only. With one class alone, and ``M = 0``, the loss attracts only.
    - Most of the value is the constant potential of the pairs without a force, ``1/delta^alpha`` each.
    - Samples with sets of labels belong to the classes of all their labels.
    - ``M = 0``: samples alone. With a cross-batch memory, the pairs of a point and a row of the memory count once, in
      the field of the point's class.
    
    The diagnostics are those of the samples; their positives and negatives are samples and proxies, and the loss of a
    query is its potential in the field of its class.
    
    Memory: ``O((n + C M) d)`` for ``C`` classes. Time: ``O((n + C M)^2 d)``.

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
        )


class ProxyAnchorLoss(Loss):
    r"""Proxy-Anchor: every proxy is an anchor that pulls the samples of its class and pushes the others,
    the hard ones first.
    
    Kim et al., "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020 (Eq. 4). Normalised embeddings. With ``p``
    a class's proxy scaled to length 1, ``P`` all proxies and ``P+`` those with a sample in the batch:
    
    ::
    
        L = 1/|P+| sum over p in P+ of log(1 + sum over samples x of p's class   of exp(-alpha (x.p - delta)))
          + 1/|P|  sum over p in P  of log(1 + sum over samples x of the others  of exp(+alpha (x.p + delta)))
    
    **Held constant**: nothing; embeddings and proxies learn. The embeddings are taken as they are;
    pytorch-metric-learning's ``ProxyAnchorLoss`` normalises them too, which is the same on normalised
    embeddings.
    
    The lists are those of the proxies: each is a query, and its list is the batch. The diagnostics are those of the
    samples. The loss of a sample is its share in the terms of the proxies by its weight there, times ``n``, so that the
    mean over the samples is the value.
    
    **Corner cases**
    
    - A class without a sample in the batch only pushes. A batch of one class of one only pulls.
    - The largest exponent is subtracted before ``exp``, so no ``alpha`` overflows.
    - A sample with a set of labels is pulled by all its proxies and pushed by the others.
    
    Memory and time: ``O((n + classes) d)`` and ``O(n classes d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param alpha: Factor on the similarities. 17 by default, 32 in the paper.
    :param delta: Margin of the similarities, ``delta``. 0.11 by default, 0.1 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
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
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            alpha=alpha,
            delta=delta,
            seed=seed,
        )


class ProxyNcaLoss(Loss):
    r"""Proxy-NCA: one learnt proxy a class; pull each sample to the proxy of its class and push it away
    from the others, the near ones first.
    
    Movshovitz-Attias et al., "No Fuss Distance Metric Learning using Proxies", ICCV 2017 (Eq. 4), as the
    ranked list papers print it (Eq. 5).
    
    With ``p_z`` the proxy of class ``z`` scaled to length 1 and ``d`` the **squared** Euclidean distance:
    
    ::
    
        L_i = -log( exp(-scale d(x_i, p_y)) / sum over z != y of exp(-scale d(x_i, p_z)) )
        L   = mean of L_i over the batch
    
    **The positive is not in the denominator**, so the loss has no lower bound. pytorch-metric-learning's
    ``ProxyNCALoss`` and ProxyNCA++ put it there; that is ``NormSoftmax`` with
    temperature ``1 / (2 scale)``.
    
    **Held constant**: nothing; embeddings and proxies learn.
    
    **Corner cases**
    
    - With one class only there is nothing to push away: loss 0.
    - The term ``|x|^2`` is the same for all proxies and cancels; it is left out, so that long embeddings
      keep their digits. Zero embeddings and proxies are finite.
    - A sample with a set of labels has the mean over them; none of the set is among the others.
    
    Memory and time: ``O((n + classes) d)`` and ``O(n classes d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param scale: Factor on the squared distances. 1 as printed; later work finds 3 to 9 better.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "proxy_nca"

    def __init__(
        self,
        *,
        classes: int,
        dimensions: int,
        scale: float = 2.7,
        seed: int = 1,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            scale=scale,
            seed=seed,
        )


class RecallAtKLoss(Loss):
    r"""Recall@k surrogate (RS@k): the recall among the first ``k``, with both steps (that of the rank and that at ``k``)
    replaced by sigmoids.
    
    Patel, Tolias, Matas, "Recall@k Surrogate Loss with Large Batches and Similarity Mixup", CVPR 2022. Normalised
    embeddings. With ``s_qj = x_q.x_j``, for a query ``q`` and one of its positives ``i``:
    
    ::
    
        rank(i)  = 1 + sum over j != i in P_q and N_q of sigmoid((s_qj - s_qi) / temperature)
        R_k      = min(sum over i in P_q of sigmoid((k - rank(i)) / rank_temperature), k) / min(k, |P_q|)
        L        = mean of 1 - (mean of R_k over the values of k) over the queries that have a positive
    
    The division by ``min(k, |P_q|)`` and the bound ``k`` are those of the authors' released code: a perfect list scores 1
    or less for every ``k``.
    
    The query is not in its own ranked list. The authors' released code counts it there, as a negative that precedes
    every positive: ``include_query``.
    
    **Similarity mixup** (``simix``): each two samples of a class give a virtual sample, ``a x_i + (1 - a) x_j`` with ``a``
    uniform in 0..1, not normalised again. Virtual samples are queries and members of the lists like all others; the
    value is the mean over samples and virtual samples. Samples with sets of labels: the virtual sample has the labels
    that both share. The coefficients depend on the seed of the run and on the step, not on the number of threads. A
    memory gets no virtual samples. The diagnostics are those of the samples; their positives and negatives include
    virtual ones.
    
    **Held constant**: nothing; query, positives and negatives all get a gradient, and a virtual sample hands its own to
    the two samples that it is made of.
    
    **Corner cases**
    
    - A query without a positive has the loss 0 and is left out of the mean. Without a negative the positives still
      rank each other: with ``rank_temperature = 1`` the loss is not 0.
    - Equal similarities count as half a rank.
    - Where the sum over the positives exceeds ``k``, that ``k`` gives no gradient.
    - Where no sample is within reach of the sigmoid of the rank the gradient is 0: in f32 about 90 temperatures.
    
    Memory: ``O(n d)``; with ``simix`` of ``n`` plus the number of virtual samples, ``(K - 1) / 2`` for each sample of a class
    with ``K``. Time: ``O(n^2 d + n m)`` with ``m`` the number of ordered positive pairs.

    :param k: The values of ``k`` whose recall is approximated. 1, 2, 4, 8 and 16 in the paper.
    :param temperature: Temperature of the sigmoid that approximates the rank. 0.01 in the paper.
    :param rank_temperature: Temperature of the sigmoid at ``k``, in ranks. 1 in the paper.
    :param include_query: Whether a query counts in its own list, as in the authors' released code. False as the
        equations have it.
    :param simix: Similarity mixup: virtual samples between each two samples of a class.
    :param mix: Coefficient of the first sample of each virtual one; absent: uniform in 0..1 for each virtual sample.
        By default uniform in 0..1.
    :param seed: seed of the loss's own parameters and of random choices.
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
    ) -> None:
        super().__init__(
            k=k,
            temperature=temperature,
            rank_temperature=rank_temperature,
            include_query=include_query,
            simix=simix,
            mix=mix,
            seed=seed,
        )


class RllLoss(Loss):
    r"""Ranked list loss: pull the positives of each query inside a sphere, push its negatives out of a
    larger one, and weight the negatives by how wrong they are.
    
    Wang et al., "Ranked List Loss for Deep Metric Learning", CVPR 2019 (Eqs. 1-7) and its journal
    version (Eqs. 1-15). RLL-Simpler is the journal's form with fewer parameters.
    
    For a query ``i`` with distances ``d_ij``:
    
    ::
    
        P* = { j of i's class       : d_ij > alpha - margin }   loss d_ij - (alpha - margin)
        N* = { j of another class   : d_ij < alpha }            loss alpha - d_ij
        w  = exp(t_pos * loss) on P*, exp(t_neg * loss) on N*
        L_P = sum w loss / sum w over P*, L_N likewise over N*; 0 where the set is empty
        L_i = (1 - lambda) L_P + lambda L_N   (journal, lambda 0.5)
            = L_P + lambda L_N                (CVPR, lambda 1)
        L   = mean of L_i over all queries    (uniform, Eq. 14)
    
    **Held constant** (``gradient = "query"``, the papers'): every gallery embedding and every weight. Only the query's
    embedding gets a gradient; every sample is a query once. For comparison, ``gradient = "both"`` holds the weights constant
    and gives both samples of a pair a gradient, and ``gradient = "autodiff"`` is the true derivative of the value: a pair's
    derivative by its distance is ``w / sum w (1 + t (loss - L_P))`` on ``P*``, and likewise on ``N*``.
    
    **Corner cases**
    
    - Two identical embeddings of different classes are the worst negatives, at ``d = 0``: they stay in N* with
      full weight, and that pair's gradient is 0. A fully collapsed batch has the value
      ``lambda * alpha``.
    - A query without a positive or without a negative counts with that part 0.
    - The largest exponent is subtracted before ``exp``, so no temperature overflows.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d)``.

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
        )


class RoadmapLoss(Loss):
    r"""ROADMAP: a smooth upper bound of ``1 - AP`` (SupAP) and a calibration term that brings the mean over batches closer
    to the value on the whole data set.
    
    Ramzi, Thome, Rambour, Audebert, Bitot, "Robust and Decomposable Average Precision for Image Retrieval", NeurIPS
    2021. Normalised embeddings. With ``s_qj = x_q.x_j``, for a query ``q`` and one of its positives ``i``:
    
    ::
    
        rank+(i) = 1 + number of positives j != i with s_qj >= s_qi
        rank-(i) = sum over the negatives j of H(s_qj - s_qi)
        H(z)     = sigmoid(z / temperature)                      z <= 0
                 = sigmoid(z / temperature) + start              0 < z <= delta
                 = rho (z - delta) + offset                      z > delta
        SupAP_q  = 1 - 1/|P_q| sum over i in P_q of rank+(i) / (rank+(i) + rank-(i))
        C_q      = 1/|P_q| sum over P_q of [positive_margin - s_qj]_+ + 1/|N_q| sum over N_q of [s_qj - negative_margin]_+
        L        = mean of (1 - lambda) SupAP_q + lambda C_q over the queries that have a positive
    
    ``offset`` is ``sigmoid(delta / temperature) + start`` unless given, so that ``H`` has no step at ``delta``. ``lambda = 0`` is
    SupAP alone.
    
    The authors' released code differs: the query is a positive in its own list (``include_query``), the two means of the
    calibration term are over all pairs of the batch with a term above 0 (``calibration = "violating"``), ``offset`` is 1.44,
    and the two terms have the weight 1 each, which is twice this value with ``lambda = 0.5``. The preset
    ``roadmap-released`` has the first three.
    
    **Held constant**: ``rank+``, and which pairs violate a margin.
    
    **Corner cases**
    
    - A query without a positive has the loss 0 and is left out of the mean; with ``calibration = "violating"`` its
      negatives count in the second term. Without a negative SupAP is 0.
    - Equal similarities of positives: each precedes the other. A negative as similar as a positive counts half.
    - ``H`` has a step of ``start`` at 0, which gives no gradient.
    - ``1 - AP`` is summed from the negatives' part, so that it keeps its digits where AP is near 1.
    
    Memory: ``O(n d)``. Time: ``O(n^2 d + n m)`` with ``m`` the number of ordered positive pairs; ``calibration = "violating"``
    computes the similarities twice.

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
        )


class SmoothApLoss(Loss):
    r"""Smooth-AP: average precision with the step of the rank replaced by a sigmoid.
    
    Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV 2020 (Eqs. 6-8).
    Normalised embeddings. With ``s_qj = x_q.x_j`` and ``G(z) = sigmoid(z / temperature)``, for a query ``q``:
    
    ::
    
        rank_P(i) = 1 + sum over j != i in P_q         of G(s_qj - s_qi)
        rank(i)   = 1 + sum over j != i in P_q and N_q of G(s_qj - s_qi)
        AP_q = 1/|P_q| sum over i in P_q of rank_P(i) / rank(i)
        L    = mean of 1 - AP_q over the queries that have a positive
    
    The query is not in its own ranked list. The authors' released layer and pytorch-metric-learning's
    ``SmoothAPLoss`` count it there, as its own first positive: ``include_query``.
    
    **Held constant**: nothing; query, positives and negatives all get a gradient.
    
    **Corner cases**
    
    - A query without a positive has the loss 0 and is left out of the mean; without a negative its AP is 1.
    - Equal similarities count as half a rank. ``1 - AP`` is summed from the negatives' part, so that it keeps its
      digits where AP is near 1.
    - Where no negative is within reach of the sigmoid the gradient is 0: in f32 about 90 temperatures.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d + n m)`` with ``m`` the number of ordered positive pairs.

    :param temperature: Temperature of the sigmoid. 0.01 in the paper.
    :param include_query: Whether a query is a positive of its own list, as in the authors' released layer. False, as
        in the equations.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "smooth_ap"

    def __init__(
        self,
        *,
        temperature: float = 0.046,
        include_query: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__(
            temperature=temperature,
            include_query=include_query,
            seed=seed,
        )


class SoftTripleLoss(Loss):
    r"""SoftTriple: softmax over classes that have several learnt centres each, and a regulariser that merges
    the centres a class does not need.
    
    Qian et al., "SoftTriple Loss: Deep Metric Learning Without Triplet Sampling", ICCV 2019 (Eqs. 7-11).
    Normalised embeddings. With ``w_c^k`` the centre ``k`` of class ``c``, scaled to length 1:
    
    ::
    
        S_ic = sum over k of q_ik x_i.w_c^k,  q_ik = softmax over k of x_i.w_c^k / gamma
        L_i  = -log( e^(lambda (S_iy - margin)) / (e^(lambda (S_iy - margin)) + sum over c != y of e^(lambda S_ic)) )
        R_c  = sum over pairs t < s of |w_c^t - w_c^s|
        L    = mean of L_i over the batch + tau sum over c of R_c / (C K (K - 1))
    
    **Held constant**: nothing; embeddings and centres learn, the weights ``q`` are differentiated.
    ``|w^t - w^s| = sqrt(2 - 2 w^t.w^s)`` is computed from the difference where the centres are near. The
    authors' released layer and pytorch-metric-learning's ``SoftTripleLoss`` add 1e-5 under the root instead,
    which puts 0.003 in the place of 0.
    
    **Corner cases**
    
    - Merged centres have the distance 0 and, the direction being undefined there, no gradient from
      each other.
    - One centre a class: SoftMax-norm with a margin; there is nothing to merge.
    - With one class only the first term is 0.
    - A sample with a set of labels has the mean over them; none of the set is among the others.
    
    Memory and time: ``O((n + C K) d + C K^2)`` and ``O(n C K d + C K^2 d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``.
    :param dimensions: values of an embedding.
    :param centers: Centres a class, ``K``. 10 in the paper.
    :param lambda_: Factor on the similarities. 14 by default, 20 in the paper.
    :param gamma: Temperature of the weights of a class's centres. 0.1 in the paper.
    :param margin: What is taken off the own class's similarity. 0.024 by default, 0.01 in the paper.
    :param tau: Weight of the regulariser that merges centres. 0.2 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
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
        )


class SoftmaxLoss(Loss):
    r"""Softmax: cross entropy of a linear classifier over the embedding (CCE).
    
    The classification baseline of the ranking papers (Schall et al. 2019 call it CCE). With the
    classifier's weights ``w_z`` and biases ``b_z``:
    
    ::
    
        L_i = -log( exp(w_y.x_i + b_y) / sum over all z of exp(w_z.x_i + b_z) )
        L   = mean of L_i over the batch
    
    **Held constant**: nothing; embeddings, weights and biases learn.
    
    **Corner cases**
    
    - With one class only the loss is 0.
    - The gradient's ``1 - p`` is computed from the other classes, not by subtraction, so that it keeps its
      digits where ``p`` is near 1; no logit overflows.
    - A sample with a set of labels has the mean over them; for each, the others of the set are left out of the
      sum.
    
    Memory and time: ``O((n + classes) d)`` and ``O(n classes d)``.

    :param classes: number of training classes; labels are 0 to ``classes - 1``. Needed for settings with parameters
        of their own.
    :param dimensions: values of an embedding. Needed for settings with parameters of their own.
    :param bias: Whether each class has a bias. True as usual for a classifier.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "softmax"

    def __init__(
        self,
        *,
        classes: int | None = None,
        dimensions: int | None = None,
        bias: bool = True,
        seed: int = 1,
    ) -> None:
        super().__init__(
            classes=classes,
            dimensions=dimensions,
            bias=bias,
            seed=seed,
        )


class SpectralClustLoss(Loss):
    r"""Spectral Clust: make the column space of the batch's embeddings that of its class indicators, so that spectral
    clustering finds the classes.
    
    Law et al., "Deep Spectral Clustering Learning", ICML 2017. With ``F`` the embeddings ``[n, d]``, ``F^+`` its
    pseudo-inverse, ``Y`` the class indicators ``[n, K]``:
    
    ::
    
        C = Y (Y^T Y)^-1 Y^T                       the ideal projection
        P = F F^+                                  the projection on the embeddings' column space
        L = |C - P|_F^2 / 2 = (K + rank F) / 2 - tr(C P)
        G = -(I - P) C (F^+)^T                     the gradient (`paper`)
    
    ``G`` is what the authors' released code follows. It is half of the derivative of ``L``, which has two equal
    terms; ``gradient = "autodiff"`` is that derivative, ``2 G``. The two differ by the learning rate only.
    
    **Held constant**: nothing; the gradient is the closed form, computed on the host in f64.
    
    The embeddings are taken as they are; the released code does not normalise them. The loss of a query is
    ``n / 2`` times the squared length of its row of ``C - P``, so that the mean over the queries is the value.
    
    **Corner cases**
    
    - With at least as many dimensions as samples the column space is everything: the loss is ``(n - K) / 2`` and
      the gradient 0. The batch must be larger than the embedding; ``Queries::note`` says so.
    - Rank-deficient ``F`` (coincident, collapsed or zero rows included): directions in which it is shorter than
      ``max(n, d)`` units in the last place of its type are taken for 0, as NumPy's ``matrix_rank`` does.
    - Label sets: samples with the same set form a class.
    
    Memory and time: ``O(n (d + K))`` and ``O(n d (d + K))``, on one thread.

    :param gradient: What ``backward()`` gives. The authors' closed form.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "spectral_clust"

    def __init__(
        self,
        *,
        gradient: Literal["paper", "autodiff"] = "paper",
        seed: int = 1,
    ) -> None:
        super().__init__(
            gradient=gradient,
            seed=seed,
        )


class SrtLoss(Loss):
    r"""Soft ranking threshold: push every positive's smooth rank below a threshold that has room for all
    positives, and every negative's rank above it.
    
    Yang, Shi, Zhang, Shi, "Soft Ranking Threshold Losses for Image Retrieval", ICIP 2021.
    
    For an anchor ``i`` with ``P`` positives and ``N`` negatives in a batch of ``n``:
    
    ::
    
        R_ij = sum over k = 1..n of sigmoid((d_ij - d_ik) / temperature)
        T+ = P + 1 - margin,   T- = P + 2 + margin
        L_i  = balance / P sum_P [R_ij - T+]_+ + (1 - balance) / N sum_N [T- - R_ij]_+
        L_i += hard_weight (balance / P [max_P R_ij - P/2]_+ + (1 - balance) / N [(n + P + 1)/2 - min_N R_ij]_+)
        L    = mean over the anchors with a positive and a negative
    
    ``k`` runs over the whole batch: ``j`` itself counts 1/2, the anchor (at distance 0) counts. With a memory of
    ``m`` rows, positives, negatives and ``k`` are from the whole list, and ``n + m`` replaces ``n``. SRT is plain,
    SRT-M has a margin, SRT-SM is ``soft`` (softplus for the first two hinges), SRT-H has the hard terms, and
    SRT-F is soft with the hard terms switched on after ``hard_from_step`` steps.
    
    The paper's text says that the hard terms take the batch's hardest pairs, the farthest positive and the
    nearest negative (``hardest = "max_min"``); its printed equation has min and max exchanged
    (``hardest = "as_printed"``).
    
    **Held constant**: nothing.
    
    **Corner cases**
    
    - An anchor without a positive or without a negative contributes 0 and is not counted in the mean.
    - Hinges have slope 0 at the kink. Among ties one pair carries the gradient of a hard term.
    - Coincident rows: their ranks are right, and the pair's own direction has gradient 0. In a collapsed
      batch every rank is ``n / 2`` and the gradient is 0.
    
    The embeddings are as the network gives them; the paper does not normalise. They are compared as they were trained,
    by the Euclidean distance (``LossConfig::metric``): the paper does not say, and on
    Market-1501 (MobileNetV2, 150 steps) it gives mAP .358 and CMC@1 .546, the cosine .351 and .537.
    
    A smooth rank approximates a rank where distances differ by several temperatures. Where they do not, every rank is
    near ``n / 2`` and the loss is nearly linear in the distances: it falls by growth along one direction, and the other
    dimensions are lost. So a head that begins as LDA begins with a mean distance of 20 temperatures
    (``LossSpec::initial_distance``; measured in ``experiments/head-scale.md``).
    
    Memory ``O(n d)``. A rank takes a pass over the list. Ranks grow with the distance, and a negative costs something only
    where its rank is small: the negatives are visited from the nearest on, and the first one over the threshold ends
    the walk. So the time is ``O(n^2 d)`` and a pass over the list for each positive and each negative that costs
    something.

    :param balance: Weight of the positives' part, from 0 to 1; the negatives' has the rest. 0.5.
    :param temperature: Temperature of the smooth ranks. 1 in the paper.
    :param margin: Ranks by which both thresholds move apart (SRT-M). 0: plain.
    :param soft: Softplus instead of the hinges (SRT-SM).
    :param hard_weight: Weight of the hard terms (SRT-H: 0.01). 0: none.
    :param hardest: The pairs the hard terms take.
    :param hard_from_step: Steps that are taken before the hard terms count (SRT-F). 0: they count from the first step
        on.
    :param seed: seed of the loss's own parameters and of random choices.
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
        )


class StructClustLoss(Loss):
    r"""Struct Clust: make the clustering by facility location find the classes, by a margin that grows with how
    far a clustering is from them.
    
    Song et al., "Deep Metric Learning via Facility Location", CVPR 2017 (Eqs. 1-7, Algorithms 1 and 2). Normalised
    embeddings. With ``d_ij`` the Euclidean distance and ``K`` the number of classes in the batch:
    
    ::
    
        F(S)    = - sum over i of min over j in S of d_ij                         S: K medoids out of the batch
        F(y)    = sum over classes c of max over j in c of - sum over i in c of d_ij
        A(S)    = F(S) + gamma (1 - NMI(y, g(S)))                                 g: to the nearest medoid
        L       = [ max over S of A(S) - F(y) ]_+
        NMI     = I(y, g) / sqrt(H(y) H(g)), 1 where both are one cluster, 0 where one of them is
    
    The maximum is searched for as in the paper: medoids are added greedily, then, up to ``refinements`` times,
    each cluster's medoid is swapped for the member that makes ``A`` largest. It is a lower bound of the
    maximum over all sets.
    
    **Held constant**: the medoids and who belongs to them (a subgradient): every sample is pulled to the
    medoid of its class and pushed from its medoid in ``S``, both ends of the distance moving.
    
    The loss of a query is ``n`` times the difference of its two distances plus the batch's ``gamma (1 - NMI)``,
    so that the mean over the queries is the value. A query's mined positive is its class's medoid, its mined
    negative the medoid of another class it is pushed from.
    
    **Corner cases**
    
    - One class, or only classes of one: the two clusterings are equal, loss 0.
    - A distance of 0 has no gradient. In a collapsed batch the value is what the margin says, without gradient.
    - Ties: the lower index, among medoids to go to as among candidates.
    - Label sets: samples with the same set form a class.
    
    Memory: ``O(n (n + d))``, and ``O(n K)`` per thread. Time: ``O(n^2 d + n^2 K + refinements (n^2 + n K^2))``; the candidates
    are tried in parallel, the choice among them does not depend on the number of threads.

    :param gamma: Weight of the margin ``1 - NMI``. 1 in the authors' released layer.
    :param refinements: Largest number of rounds of medoid swaps. 5 in the paper.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "struct_clust"

    def __init__(
        self,
        *,
        gamma: float = 8.2,
        refinements: int = 5,
        seed: int = 1,
    ) -> None:
        super().__init__(
            gamma=gamma,
            refinements=refinements,
            seed=seed,
        )


class SupConLoss(Loss):
    r"""Supervised contrastive loss and NT-Xent: softmax over the batch, each positive against the rest.
    
    Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020 (Eq. 2, ``L_out``), and Chen et al., "A Simple
    Framework for Contrastive Learning of Visual Representations", ICML 2020 (Eq. 1). Normalised embeddings. With
    ``s_ij = x_i.x_j / temperature``:
    
    ::
    
        sup_con:  L_i  = -1/|P_i| sum over p in P_i of log( e^s_ip / sum over all j != i of e^s_ij )
                  L    = mean of L_i over the queries that have a positive
        nt_xent:  L_ip = -log( e^s_ip / (e^s_ip + sum over j in N_i of e^s_ij) )
                  L    = mean of L_ip over all queries and their positives
    
    With one positive a query, as in SimCLR, the two are the same. With more, ``nt_xent`` leaves a query's
    other positives out of the denominator, as pytorch-metric-learning's ``NTXentLoss`` does. The paper
    prints sums over the batch; the authors' released losses take the mean, and so is it done here.
    
    **Held constant**: nothing. With a miner (see :mod:`gallerist.miners`) ``P_i``, ``N_i`` and "all" are the selected pairs.
    
    **Corner cases**
    
    - A query without a positive has the loss 0 and is left out of the mean; no positive in the whole
      batch: loss 0.
    - A query without a negative: ``nt_xent`` has the loss 0, ``sup_con`` evens out its positives.
    - The largest exponent is subtracted before ``exp``. Coincident rows are nothing special.
    
    Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param temperature: Temperature of the similarities. 0.1 in the supervised contrastive paper, 0.5 and 0.1 in
        SimCLR's.
    :param form: The terms of the denominator.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    """

    name = "sup_con"

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        form: Literal["sup_con", "nt_xent"] = "sup_con",
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__(
            temperature=temperature,
            form=form,
            miner=miner,
            seed=seed,
        )


class TripletAdaptiveLoss(Loss):
    r"""Adaptively weighted triplet loss: all positives and negatives of an anchor, the far positives and the near
    negatives counting most.
    
    Ristani, Tomasi, "Features for Multi-Target Multi-Camera Tracking and Re-Identification", CVPR 2018.
    
    ::
    
        w_p = exp(d_ap) / sum over positives of exp(d_ap),   w_n = exp(-d_an) / sum over negatives of exp(-d_an)
        L   = mean over anchors of [margin + sum_p w_p d_ap - sum_n w_n d_an]_+
    
    over the anchors that have a positive and a negative. **Held constant**: nothing, the weights are
    differentiated too.
    
    **Corner cases**
    
    - The largest exponent is subtracted before ``exp``. The hinge has slope 0 at the kink.
    - In a collapsed batch the value is ``margin`` and the gradient 0.
    - A batch without a triplet has the value 0.
    
    The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
    trained, by the Euclidean distance. Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param margin: Distance by which the negatives must be farther than the positives. 1 is common.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "triplet_adaptive"

    def __init__(
        self,
        *,
        margin: float = 4.5,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            seed=seed,
        )


class TripletAllLoss(Loss):
    r"""Triplet loss over all triplets of a batch.
    
    Weinberger, Saul, "Distance Metric Learning for Large Margin Nearest Neighbor Classification", 2009;
    the batch-all form as in Hermans, Beyer, Leibe, "In Defense of the Triplet Loss", 2017, there with
    distances, here with their squares.
    
    ::
    
        L = mean over all triplets (a, p, n) of [d_ap^2 + margin - d_an^2]_+
    
    **Held constant**: nothing. A query's own loss is the mean over the triplets it is the anchor of; the
    batch's value is the mean over all triplets. With a miner (see :mod:`gallerist.miners`) the triplets are the mined ones.
    
    **Corner cases**
    
    - The hinge has slope 0 at the kink.
    - Coincident rows cost what the equation says and have no direction: in a collapsed batch the value is
      ``margin`` and the gradient 0.
    - A batch without a triplet has the value 0.
    
    The embeddings are L2-normalised by default. Memory and time: ``O(n d)`` and ``O(n^2 (d + p))`` with
    ``p`` positives of a query; the derivative with respect to ``d_ap^2`` is the number of active triplets of the pair.

    :param margin: Squared distance by which a negative must be farther than a positive. 0.2.
    :param miner: Which pairs take part; absent: all.
    :param seed: seed of the loss's own parameters and of random choices; a miner has a ``seed`` of its own.
    """

    name = "triplet_all"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        miner: Miner | str | dict[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            miner=miner,
            seed=seed,
        )


class TripletBatchHardLoss(Loss):
    r"""Batch-hard triplet loss: each anchor with its farthest positive and its nearest negative.
    
    Hermans, Beyer, Leibe, "In Defense of the Triplet Loss for Person Re-Identification", 2017 (Eq. 5; the
    soft margin in section 2).
    
    ::
    
        L = mean over anchors of [margin + max_p d_ap - min_n d_an]_+
          = mean over anchors of log(1 + exp(max_p d_ap - min_n d_an))    (soft)
    
    over the anchors that have a positive and a negative. **Held constant**: the choice of the pairs.
    
    **Corner cases**
    
    - Among ties one pair carries the gradient. The hinge has slope 0 at the kink.
    - In a collapsed batch the value is ``margin`` (``log 2`` if soft) and the gradient 0.
    - A batch without a triplet has the value 0.
    
    The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
    trained, by the Euclidean distance: on Market-1501 (MobileNetV2, 100 steps) mAP .357 and CMC@1 .553, by the cosine
    .371 and .548, which does not decide it. The loss falls fastest where all distances shrink, and a network with frozen
    statistics of batch norm can do that: it collapses (docs/results/srt-market.md). Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param margin: Distance by which the nearest negative must be farther than the farthest positive; not used if
        ``soft``. 0.2; the paper tries 0.1 to 1.
    :param soft: Softplus instead of the hinge, without a margin.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "triplet_batch_hard"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        soft: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            soft=soft,
            seed=seed,
        )


class TripletHardNegativeLoss(Loss):
    r"""Triplet loss with the hardest negative: each positive pair with its anchor's nearest negative.
    
    The hard-negative form of FaceNet's triplet loss (Schroff et al., CVPR 2015), with distances instead of
    their squares, that papers on ranking losses compare with.
    
    ::
    
        L = mean over (a, p) of [margin + d_ap - min_n d_an]_+
    
    over the anchors that have a positive and a negative. **Held constant**: the choice of the negative. A
    query's own loss is the mean over its positives.
    
    **Corner cases**
    
    - Among equally near negatives one carries the gradient. The hinge has slope 0 at the kink.
    - In a collapsed batch the value is ``margin`` and the gradient 0.
    - A batch without a triplet has the value 0.
    
    The embeddings are L2-normalised by default. Memory and time: ``O(n d)`` and ``O(n^2 d)``.

    :param margin: Distance by which the nearest negative must be farther than a positive. 0.2.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "triplet_hard_negative"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            seed=seed,
        )


class TripletSemihardLoss(Loss):
    r"""Triplet loss with semi-hard negatives: for each positive pair the nearest negative that is farther than
    the positive, else the farthest negative.
    
    Schroff, Kalenichenko, Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering",
    CVPR 2015 (Eqs. 1-4).
    
    ::
    
        n(a, p) = the negative with the smallest d_an > d_ap, else the one with the largest d_an
        L       = mean over (a, p) of [d_ap^2 + margin - d_a,n(a,p)^2]_+, zeros included
    
    **Held constant**: the choice of the negative. A query's own loss is the mean over its positives.
    
    **Corner cases**
    
    - A negative exactly as far as the positive is not farther. Of equally far negatives one is taken.
    - The mean is over the pairs whose anchor has a negative; a batch without one has the value 0.
    - The hinge has slope 0 at the kink; in a collapsed batch the value is ``margin`` and the gradient 0.
    
    The embeddings are L2-normalised by default. Memory and time: ``O(n d)`` and ``O(n^2 (d + p))`` with
    ``p`` positives of a query.

    :param margin: Squared distance by which a negative must be farther than a positive. 0.2 in FaceNet, 1 where NRA
        compares with it.
    :param seed: seed of the loss's own parameters and of random choices.
    """

    name = "triplet_semihard"

    def __init__(
        self,
        *,
        margin: float = 0.2,
        seed: int = 1,
    ) -> None:
        super().__init__(
            margin=margin,
            seed=seed,
        )
