"""Losses as modules of PyTorch."""

import copy
import io
import json
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gallerist import _native  # noqa: E402
from gallerist import losses as numpy_losses  # noqa: E402
from gallerist.torch import ClassSampler, CrossBatchMemory, losses  # noqa: E402

ALL = {entry["name"]: entry for entry in json.loads(_native.losses())}
CLASSES = {getattr(losses, name).name: getattr(losses, name) for name in losses.__all__ if name != "Loss"}


def made(name, **parameters):
    sizes = {"classes": 12, "dimensions": 16} if ALL[name]["learns"] else {}
    return CLASSES[name](**sizes, **parameters)


@pytest.mark.parametrize("name", sorted(ALL))
def test_value_and_gradient_are_those_of_the_numpy_loss(name, batch):
    rows, labels = batch
    sizes = {"classes": 12, "dimensions": 16} if ALL[name]["learns"] else {}
    (of_numpy,) = [c for n in numpy_losses.__all__ if getattr(c := getattr(numpy_losses, n), "name", None) == name]
    wanted = of_numpy(**sizes)(rows, labels)
    x = torch.tensor(rows, requires_grad=True)
    loss = made(name)
    value = loss(x, torch.tensor(labels))
    (3 * value).backward()
    assert value.shape == () and value.item() == pytest.approx(wanted.value, rel=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 3 * wanted.gradient, rtol=1e-5, atol=1e-7)
    own = {key.replace(".", "_"): gradient for key, gradient in wanted.parameter_gradients.items()}
    for key, parameter in loss.named_parameters():
        np.testing.assert_allclose(parameter.grad.numpy(), 3 * own[key], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["contrastive", "multi_similarity", "sup_con", "proxy_anchor", "smooth_ap"])
def test_gradcheck(name, batch):
    rows, labels = torch.tensor(batch[0][:12], dtype=torch.float64, requires_grad=True), torch.tensor(batch[1][:12])
    assert torch.autograd.gradcheck(lambda x: made(name)(x, labels), (rows,), eps=1e-6, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_the_gradient_of_half_precision_is_scaled_before_it_is_rounded(batch, dtype, bound):
    labels = torch.tensor(batch[1])
    # The gradient of long rows is so small that f16 has almost none of its bits.
    half = (8000 * torch.tensor(batch[0])).to(dtype)
    wanted = half.float().requires_grad_()
    losses.RllLoss()(wanted, labels).backward()
    x = half.clone().requires_grad_()
    value = losses.RllLoss()(x, labels)
    assert value.dtype == torch.float32
    (value * 65536).backward()
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad.float() / 65536, wanted.grad, rtol=bound, atol=wanted.grad.abs().max().item() * bound)


def test_a_value_that_f16_cannot_hold_is_finite(batch):
    x = (400 * torch.tensor(batch[0])).half()
    value = losses.NPairLoss()(x, torch.tensor(batch[1]))
    assert value.dtype == torch.float32 and value > 65504 and value.isfinite()


def test_parameters_of_half_precision_get_gradients_of_their_dtype(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    loss, wanted = made("proxy_anchor").half(), made("proxy_anchor")
    (loss(rows.half(), labels) * 1024).backward()
    (wanted(rows, labels) * 1024).backward()
    for parameter, other in zip(loss.parameters(), wanted.parameters()):
        assert parameter.grad.dtype == torch.float16
        torch.testing.assert_close(parameter.grad.float(), other.grad, rtol=0.02, atol=0.02 * other.grad.abs().max().item())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_parameters_on_another_device_than_the_embeddings_get_their_gradients(batch):
    gradients = []
    for device in ("cpu", "cuda"):
        rows, loss = torch.tensor(batch[0], device=device, requires_grad=True), made("proxy_anchor")
        (3 * loss(rows, torch.tensor(batch[1]))).backward()
        assert rows.grad.device.type == device
        gradients.append([rows.grad.cpu(), *(parameter.grad for parameter in loss.parameters())])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_batch_is_used_twice_and_without_gradient(batch):
    rows, labels = torch.tensor(batch[0], requires_grad=True), torch.tensor(batch[1])
    (losses.RllLoss()(rows, labels) + losses.ContrastiveLoss()(rows, labels)).backward()
    both = rows.grad.clone()
    rows.grad = None
    losses.RllLoss()(rows, labels).backward()
    losses.ContrastiveLoss()(rows, labels).backward()
    torch.testing.assert_close(rows.grad, both)
    with torch.no_grad():
        assert not losses.RllLoss()(rows, labels).requires_grad


def test_labels_that_are_sets(batch):
    rows, labels = torch.tensor(batch[0], requires_grad=True), batch[1]
    sets = [{int(label), 50 + int(label) % 2} for label in labels]
    loss = losses.ContrastiveLoss()
    loss(rows, sets).backward()
    assert (loss.queries.positives == 23).all()


def test_state_is_saved_with_the_parameters(batch):
    loss = made("soft_triple")
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    other = made("soft_triple", seed=2)
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    assert other(rows, labels) != loss(rows, labels)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert other(rows, labels) == loss(rows, labels)


def test_cross_batch_memory(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    loss = CrossBatchMemory(losses.ContrastiveLoss(), size=40, start_step=1)
    for _ in range(3):
        loss(rows[:24].clone().requires_grad_(), labels[:24]).backward()
    assert len(loss) == 40
    assert (loss.loss.queries.negatives > 20).all()
    loss(rows[:24], labels[:24])
    assert loss.embeddings.requires_grad is False


def random_losses():
    contrastive = losses.ContrastiveLoss(margin=1.5, miner="distance_weighted")
    return [losses.RecallAtKLoss(simix=True), losses.MarginLoss(beta=1.2), contrastive]


def test_every_call_draws_anew_and_a_step_repeats_its_draws(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    for loss, again in zip(random_losses(), random_losses()):
        values = [loss(rows, labels).item() for _ in range(3)]
        assert len(set(values)) == 3, loss
        assert [again(rows, labels, step=step).item() for step in range(3)] == values
        assert copy.deepcopy(loss)(rows, labels).item() == again(rows, labels, step=3).item()


def test_a_schedule_does_not_begin_on_its_own(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    for loss in (losses.SrtLoss(hard_weight=1.0, hard_from_step=1), losses.RllLoss(t_neg_end=0.0)):
        first = loss(rows, labels)
        assert loss(rows, labels) == first == CrossBatchMemory(loss)(rows, labels)
        assert loss(rows, labels, step=1) != first


def test_a_memory_draws_anew_for_every_batch(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    for loss in random_losses()[1:]:
        memory = CrossBatchMemory(loss, start_step=1000)
        values = [memory(rows, labels).item() for _ in range(3)]
        assert len(set(values)) == 3
        resumed = CrossBatchMemory(copy.deepcopy(loss), start_step=1000)
        resumed.load_state_dict(memory.state_dict())
        assert resumed(rows, labels) == memory(rows, labels)


def test_a_memory_is_saved_and_loaded_with_its_step(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])

    def filled(batches):
        loss = CrossBatchMemory(losses.ContrastiveLoss(), size=40, start_step=1)
        for _ in range(batches):
            loss(rows[:24], labels[:24])
        return loss

    for batches in (0, 3):
        file = io.BytesIO()
        torch.save({"loss": filled(batches).state_dict()}, file)
        file.seek(0)
        for other in (filled(0), filled(2)):
            file.seek(0)
            other.load_state_dict(torch.load(file)["loss"])
            wanted = filled(batches)
            assert len(other) == len(wanted) and other.step == batches
            assert other(rows, labels) == wanted(rows, labels)
    module = torch.nn.ModuleDict({"loss": filled(0)})
    module.load_state_dict(torch.nn.ModuleDict({"loss": filled(3)}).state_dict())
    assert len(module["loss"]) == 40
    with pytest.raises(RuntimeError, match="labels"):
        filled(0).load_state_dict({key: value for key, value in filled(3).state_dict().items() if key != "labels"})


def test_a_memory_moves_with_its_module(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    loss = CrossBatchMemory(losses.ContrastiveLoss(), size=40, start_step=0)
    loss(rows[:24], labels[:24])
    loss.to("meta")
    assert loss.embeddings.device == loss.labels.device == torch.device("meta")
    loss = CrossBatchMemory(losses.ContrastiveLoss(), size=40, start_step=0)
    loss(rows[:24], labels[:24])
    loss.double()
    loss(rows[:24].double(), labels[:24])
    assert loss.embeddings.dtype == torch.float64 and loss.labels.dtype == torch.int64


def test_a_memory_refuses_a_loss_that_takes_none():
    for loss in (made("softmax"), made("proxy_anchor")):
        with pytest.raises(ValueError, match="takes no memory|no cross-batch memory"):
            CrossBatchMemory(loss)


@pytest.mark.parametrize("name", ["rll", "proxy_anchor"])
def test_losses_are_copied_and_pickled_with_their_parameters(name, batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    loss = made(name)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter += 0.25
    wanted = loss(rows, labels)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other(rows, labels) == wanted and list(other.state_dict()) == list(loss.state_dict())


def test_parallel_calls_of_one_loss(batch):
    from concurrent.futures import ThreadPoolExecutor

    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    loss = losses.RllLoss()
    wanted = loss(rows, labels).item()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: loss(rows, labels).item(), range(64))) == {wanted}


def test_an_array_in_place_of_a_tensor(batch):
    with pytest.raises(ValueError, match="wanted a tensor.*gallerist.losses"):
        losses.RllLoss()(batch[0], batch[1])


def test_class_sampler():
    labels = [i % 10 for i in range(95)]
    sampler = ClassSampler(labels, classes=5, images=4)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 95 // 20
    for batch in batches:
        of = [labels[i] for i in batch]
        assert len(set(of)) == 5 and all(of.count(label) == 4 for label in of) and len(set(batch)) == 20
    assert list(sampler) == batches
    sampler.set_epoch(1)
    assert list(sampler) != batches
    with pytest.raises(ValueError, match="classes: wanted 1 to 10"):
        ClassSampler(labels, classes=11, images=4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([{1, 2}] * 20, "row 0 is {1, 2}; wanted a text or a whole number"),
        (torch.eye(20), r"shape torch.Size\(\[20, 20\]\)|shape \(20, 20\)"),
        ([[1, 0], [0, 1]] * 10, r"row 0 is \[1, 0\]"),
        ([0, None] * 10, "row 1 has no value"),
        ([float("nan")] * 20, "row 0 has no value"),
    ],
)
def test_a_class_sampler_needs_one_class_a_sample(labels, message):
    with pytest.raises(ValueError, match=f"labels: .*{message}"):
        ClassSampler(labels, classes=2, images=2)


def test_a_class_sampler_needs_batches():
    for batches in (-1, 0, 1.5):
        with pytest.raises(ValueError, match="batches: wanted a number of 1 or more"):
            ClassSampler([0, 0, 1, 1], classes=2, images=2, batches=batches)


def test_training_with_a_loss(batch):
    rows, labels = torch.tensor(batch[0]), torch.tensor(batch[1])
    torch.manual_seed(0)
    network = torch.nn.Linear(16, 8)
    loss = losses.RllLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(network(rows), labels)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.5 * values[0]
