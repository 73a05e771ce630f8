"""Other implementations of the losses, for timing and comparison.

pytorch-metric-learning if it has the loss; otherwise plain PyTorch with whole matrices and without loops.
"""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers


def euclidean(power=1):
    """Distances of the unnormalised embeddings."""
    return distances.LpDistance(normalize_embeddings=False, p=2, power=power)


def cosine():
    """Inner products of the unnormalised embeddings."""
    return distances.DotProductSimilarity(normalize_embeddings=False)


def same_class(labels):
    same = labels[:, None] == labels[None, :]
    self_pair = torch.eye(len(labels), dtype=torch.bool)
    return same & ~self_pair, ~same


def plain_distances(x):
    squared = x.square().sum(1)
    squared = squared[:, None] + squared[None, :] - 2 * x @ x.T
    return squared.clamp_min(1e-12).sqrt()


def rll(x, labels, alpha=1.2, margin=0.4, t_neg=10.0):
    """Ranked list loss, gallery and weights held constant."""
    positive, negative = same_class(labels)
    squared = x.square().sum(1, keepdim=True) + x.detach().square().sum(1)[None, :] - 2 * x @ x.detach().T
    distance = squared.clamp_min(1e-12).sqrt()
    pull = torch.relu(distance - (alpha - margin)) * positive
    push = torch.relu(alpha - distance) * negative
    with torch.no_grad():
        weight_p = (pull > 0).to(x.dtype)
        weight_n = torch.exp(t_neg * (push - push.max(1, keepdim=True).values)) * (push > 0)
        weight_p /= weight_p.sum(1, keepdim=True).clamp_min(1e-12)
        weight_n /= weight_n.sum(1, keepdim=True).clamp_min(1e-12)
    return 0.5 * ((weight_p * pull).sum(1) + (weight_n * push).sum(1)).mean()


def nra(x, labels, alpha=4.0, eps=1e-4):
    """Nonlinear rank approximation."""
    positive, negative = same_class(labels)
    distance = plain_distances(x)
    other = positive | negative
    largest = distance.masked_fill(~other, -torch.inf).amax(1)
    smallest = distance.masked_fill(~other, torch.inf).amin(1)
    rank_p = (distance.masked_fill(~positive, -torch.inf).amax(1) - smallest) / (largest - smallest)
    rank_n = (distance.masked_fill(~negative, torch.inf).amin(1) - smallest) / (largest - smallest)

    def weight(rank):
        low = 0.5 * (2 * rank.clamp_max(0.5)) ** alpha
        high = 1 - 0.5 * (2 * (1 - rank.clamp_min(0.5))) ** alpha
        return torch.where(rank < 0.5, low, high)

    return (-torch.log(1 - weight(rank_p) + eps) - torch.log(weight(rank_n) + eps)).mean()


def ice(x, labels, scale=16.0):
    """Instance cross entropy with the paper's gradient: the anchor is held constant, weights are normalised."""
    positive, negative = same_class(labels)
    similarity = x.detach() @ x.T
    with torch.no_grad():
        logits = scale * similarity
        log_negatives = torch.logsumexp(logits.masked_fill(~negative, -torch.inf), 1, keepdim=True)
        gap = log_negatives - logits
        value = (torch.nn.functional.softplus(gap) * positive).sum(1).mean()
        pull = torch.softmax(torch.nn.functional.logsigmoid(gap).masked_fill(~positive, -torch.inf), 1)
        push = torch.softmax(logits.masked_fill(~negative, -torch.inf), 1)
        weights = (push - pull) * (0.5 / len(x))
    path = (weights * similarity).sum()
    return value + path - path.detach()


def srt(x, labels, temperature=1.0, balance=0.5):
    """Soft ranking threshold, anchor by anchor: at once it would take n^3 values."""
    positive, negative = same_class(labels)
    distance = plain_distances(x) * (positive | negative)
    total = 0.0
    for i in range(len(x)):
        row = distance[i]
        rank = torch.sigmoid((row[:, None] - row[None, :]) / temperature).sum(1)
        count = positive[i].sum()
        pull = torch.relu(rank[positive[i]] - (count + 1)).mean()
        push = torch.relu(count + 2 - rank[negative[i]]).mean()
        total = total + balance * pull + (1 - balance) * push
    return total / len(x)


class MeanAll(reducers.BaseReducer):
    """The mean over all triplets or pairs, zeros included."""

    def element_reduction(self, losses, *_):
        return losses.mean()

    pos_pair_reduction = neg_pair_reduction = triplet_reduction = element_reduction


def with_miner(loss, miner):
    return lambda x, labels: loss(x, labels, miner(x, labels))


def timed_peers():
    """name of the loss -> (description of the peer, the peer, our parameters)."""
    pml = "pytorch-metric-learning"
    mean = MeanAll()
    multi_similarity = losses.MultiSimilarityLoss(distance=cosine())
    multi_similarity_miner = miners.MultiSimilarityMiner(epsilon=0.1, distance=cosine())
    hard = miners.BatchHardMiner(distance=euclidean())
    triplet = losses.TripletMarginLoss(margin=0.3, distance=euclidean(), reducer=mean)
    squared_triplet = losses.TripletMarginLoss(margin=0.3, distance=euclidean(2), reducer=mean)
    ranked_list = losses.RankedListLoss(margin=0.4, Tn=10, alpha=1.2, distance=euclidean())
    return {
        "rll": [
            (pml, lambda x, labels: ranked_list(x, labels), {"alpha": 1.2}),
            ("plain PyTorch", rll, {"alpha": 1.2}),
        ],
        "ice": [("plain PyTorch", ice, {"scale": 16.0, "gradient": "paper"})],
        "nra": [("plain PyTorch", nra, {})],
        "srt": [("plain PyTorch", srt, {"temperature": 1.0})],
        "triplet_batch_hard": [(pml, with_miner(triplet, hard), {"margin": 0.3})],
        "triplet_all": [(pml, lambda x, labels: squared_triplet(x, labels), {"margin": 0.3})],
        "multi_similarity": [
            (pml, with_miner(multi_similarity, multi_similarity_miner), {"alpha": 2.0, "beta": 50.0}),
        ],
        "contrastive": [
            (pml, lambda x, labels: losses.ContrastiveLoss(distance=euclidean())(x, labels), {"margin": 1.0}),
        ],
        "circle": [
            (pml, lambda x, labels: losses.CircleLoss(m=0.25, gamma=256)(x, labels), {"margin": 0.25, "gamma": 256.0}),
        ],
    }
