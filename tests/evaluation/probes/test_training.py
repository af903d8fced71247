import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import nn

from attmask import distributed
from attmask.errors import UserError
from attmask.evaluation.features.forward import Features
from attmask.evaluation.metrics.accuracy import Accuracy, accuracies
from attmask.evaluation.probes import training as probe
from attmask.evaluation.probes.training import (
    AccuracyCurve,
    Batches,
    LabelledBatch,
    Probes,
    choose,
    left_out,
    order,
    share_of,
    summary,
    train,
)
from tests.evaluation.models import CPU


def clouds(images: int, classes: int, *, apart: float, width: int = 6, seed: int = 0) -> Features:
    """Points around one centre for each class."""
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(images) % classes
    noise = torch.randn(images, width, generator=torch.Generator().manual_seed(seed))
    return Features(apart * centres[labels] + noise, labels)


def batches_of(features: Features, batch_size: int) -> Batches:
    def batches(epoch: int) -> Iterator[LabelledBatch]:
        assert features.labels is not None
        for rows in order(len(features.labels), batch_size=batch_size, seed=0, epoch=epoch):
            yield features.vectors[rows], features.labels[rows]

    return batches


def trained(
    features: Features, rates: list[float], *, classes: int, epochs: int, batch_size: int = 8
) -> Probes:
    width = features.vectors.shape[1]
    probes = Probes(rates, classes=classes, width=width, epochs=epochs, seed=0, device=CPU)
    train(probes, batches_of(features, batch_size), len(features.vectors), None, None)
    return probes


def test_a_step_is_that_of_pytorchs_sgd_on_the_cross_entropy() -> None:
    features = clouds(25, 3, apart=1.0)
    probes = Probes([0.3], classes=3, width=6, epochs=5, seed=0, device=CPU)
    layer = nn.Linear(6, 3)
    layer.load_state_dict(
        {"weight": probes.each[0].weight.clone(), "bias": probes.each[0].bias.clone()}
    )
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5, eta_min=0)
    for epoch in range(5):
        assert [probes.each[0].schedule(epoch)] == pytest.approx(schedule.get_last_lr())
        for vectors, labels in batches_of(features, 8)(epoch):
            probes.step(vectors, labels, epoch=epoch)
            optimizer.zero_grad()
            nn.functional.cross_entropy(layer(vectors), labels).backward()
            optimizer.step()
        schedule.step()
    torch.testing.assert_close(probes.each[0].weight, layer.weight.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(probes.each[0].bias, layer.bias.detach(), atol=1e-6, rtol=1e-5)


def test_the_rate_begins_whole_and_falls_along_a_cosine_towards_zero() -> None:
    probes = Probes([1.0, 2.0], classes=2, width=1, epochs=4, seed=0, device=CPU)
    seen = [[probe.schedule(epoch) for probe in probes.each] for epoch in range(4)]
    expected = [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4]
    assert [rate for rate, _ in seen] == pytest.approx(expected)
    assert [rate for _, rate in seen] == pytest.approx([2 * rate for rate in expected])


def test_weights_start_small_and_biases_at_zero() -> None:
    probes = Probes([1.0, 2.0], classes=100, width=200, epochs=1, seed=3, device=CPU)
    assert float(probes.each[0].weight.std()) == pytest.approx(0.01, rel=0.02)
    assert abs(float(probes.each[0].weight.mean())) < 5e-4
    assert torch.equal(probes.each[0].weight, probes.each[1].weight)
    assert not bool(probes.each[1].bias.any())


@settings(max_examples=30)
@given(
    rates=st.lists(st.floats(1e-4, 2.0), min_size=2, max_size=9),
    images=st.integers(1, 40),
    classes=st.integers(1, 12),
    width=st.integers(1, 70),
)
def test_side_by_side_each_rate_learns_bit_for_bit_what_it_learns_alone(
    rates: list[float], images: int, classes: int, width: int
) -> None:
    features = clouds(images, classes, apart=0.5, width=width)
    together = trained(features, rates, classes=classes, epochs=3)
    for index, rate in enumerate(rates):
        alone = trained(features, [rate], classes=classes, epochs=3)
        assert torch.equal(together.each[index].weight, alone.each[0].weight)
        assert torch.equal(together.each[index].bias, alone.each[0].bias)


def test_on_separable_data_it_says_what_logistic_regression_says() -> None:
    known, asked = clouds(120, 4, apart=6.0), clouds(60, 4, apart=6.0, seed=1)
    judge = LogisticRegression().fit(known.vectors.numpy(), known.labels)
    probes = trained(known, [0.01, 0.1], classes=4, epochs=30, batch_size=32)
    for index in range(2):
        logits = asked.vectors @ probes.each[index].weight.T + probes.each[index].bias
        assert logits.argmax(dim=1).tolist() == judge.predict(asked.vectors.numpy()).tolist()
    assert probes.accuracies(asked) == [Accuracy(100.0, 100.0), Accuracy(100.0, 100.0)]


def test_on_overlapping_data_it_comes_to_where_logistic_regression_comes() -> None:
    known, asked = clouds(300, 3, apart=0.6), clouds(300, 3, apart=0.6, seed=1)
    judge = LogisticRegression(C=1e6, max_iter=1000).fit(known.vectors.numpy(), known.labels)
    probes = trained(known, [0.3], classes=3, epochs=400, batch_size=300)
    chances = (asked.vectors @ probes.each[0].weight.T + probes.each[0].bias).softmax(dim=1)
    expected = torch.from_numpy(judge.predict_proba(asked.vectors.numpy())).float()
    torch.testing.assert_close(chances, expected, atol=5e-3, rtol=0)
    found = probes.accuracies(asked)[0]
    assert found is not None
    assert 60 < found.top1 < 95
    assert found.top1 == pytest.approx(100 * judge.score(asked.vectors, asked.labels), abs=1)


def test_one_class_is_always_right_and_teaches_nothing() -> None:
    features = clouds(5, 1, apart=1.0)
    probes = trained(features, [0.5], classes=1, epochs=3)
    before = Probes([0.5], classes=1, width=6, epochs=3, seed=0, device=CPU)
    assert torch.equal(probes.each[0].weight, before.each[0].weight)
    assert probes.accuracies(features) == [Accuracy(100.0, 100.0)]


def test_a_class_without_images_is_never_the_answer() -> None:
    features = clouds(60, 3, apart=4.0)
    probes = trained(features, [0.1], classes=5, epochs=20)
    logits = features.vectors @ probes.each[0].weight.T + probes.each[0].bias
    assert set(logits.argmax(dim=1).tolist()) == {0, 1, 2}


def test_a_batch_without_images_changes_nothing() -> None:
    probes = trained(clouds(20, 3, apart=1.0), [0.1], classes=3, epochs=2)
    before = [tensor.clone() for tensor in probes.each[0].tensors]
    probes.step(torch.zeros(0, 6), torch.zeros(0, dtype=torch.int64), epoch=0)
    assert all(map(torch.equal, probes.each[0].tensors, before))


@pytest.mark.parametrize(("missing", "expected"), [((), 0), ((0, 1), 1), ((0,), 1), ((0, 0), 1)])
def test_images_that_were_not_learned_from_are_counted(
    missing: tuple[int, ...], expected: int
) -> None:
    features = clouds(20, 3, apart=1.0)
    assert features.labels is not None
    probes = Probes([0.1], classes=3, width=6, epochs=2, seed=0, device=CPU)
    for epoch in range(2):
        shown = 20 - missing.count(epoch)
        probes.step(features.vectors[:shown], features.labels[:shown], epoch=epoch)
    assert left_out(probes, 20) == expected


def test_an_epoch_has_every_image_once_and_no_two_are_alike() -> None:
    first, second = (order(21, batch_size=8, seed=0, epoch=epoch) for epoch in (0, 1))
    assert [len(batch) for batch in first] == [8, 8, 5]
    assert sorted(torch.cat(first).tolist()) == list(range(21))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    assert torch.cat(order(21, batch_size=3, seed=0, epoch=0)).tolist() == torch.cat(first).tolist()
    assert torch.cat(order(21, batch_size=8, seed=1, epoch=0)).tolist() != torch.cat(first).tolist()


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_the_shares_of_all_processes_are_the_batch(
    world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: world)
    shares = []
    for rank in range(world):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shares.append(share_of(torch.arange(5)))
    assert torch.cat(shares).tolist() == [0, 1, 2, 3, 4]


def learn_in_one_of_two(rank: int, store: Path, features: Features) -> None:
    """What each of two processes does: it takes its share of every batch; the last has one."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)

    def shares(epoch: int) -> Iterator[LabelledBatch]:
        assert features.labels is not None
        for batch in order(len(features.labels), batch_size=8, seed=0, epoch=epoch):
            yield features.vectors[share_of(batch)], features.labels[share_of(batch)]

    probes = Probes([0.1, 0.5], classes=3, width=6, epochs=4, seed=0, device=CPU)
    curve = train(probes, shares, 25, features, Path(f"{store}.kept"))
    seen = [[a.top1 for a in epoch if a is not None] for epoch in curve]
    torch.save([probes.state(), [seen, probes.learned]], f"{store}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    store, features = tmp_path / "store", clouds(25, 3, apart=1.0)
    processes = [
        multiprocessing.get_context("fork").Process(
            target=learn_in_one_of_two, args=(rank, store, features)
        )
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    alone = Probes([0.1, 0.5], classes=3, width=6, epochs=4, seed=0, device=CPU)
    curve = train(alone, batches_of(features, 8), 25, features, None)
    (first, told), (second, same) = (torch.load(f"{store}.{rank}") for rank in range(2))
    seen, learned = told
    assert same == told
    assert learned == alone.learned == 4 * 25
    assert seen == [[a.top1 for a in epoch if a is not None] for epoch in curve]
    for name, tensor in alone.state().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], tensor, atol=1e-6, rtol=0)


class Stopped(Exception):
    """What ends a training in the middle."""


def stop_in(epoch_of_end: int, batches: Batches) -> Batches:
    def until_then(epoch: int) -> Iterator[LabelledBatch]:
        for number, batch in enumerate(batches(epoch)):
            if epoch == epoch_of_end and number == 1:
                raise Stopped
            yield batch

    return until_then


@pytest.mark.parametrize("end", [0, 1, 4])
def test_a_training_that_was_stopped_ends_with_the_same_bits(
    end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_SECONDS_BETWEEN_SAVES", 0.0)
    features = clouds(30, 3, apart=0.5)
    batches = batches_of(features, 8)

    def fresh() -> Probes:
        return Probes([0.1, 0.2], classes=3, width=6, epochs=5, seed=0, device=CPU)

    whole = fresh()
    expected = train(whole, batches, 30, features, None)
    with pytest.raises(Stopped):
        train(fresh(), stop_in(end, batches), 30, features, tmp_path)
    read: list[int] = []

    def counted(epoch: int) -> Iterator[LabelledBatch]:
        read.append(epoch)
        return batches(epoch)

    resumed = fresh()
    assert train(resumed, counted, 30, features, tmp_path) == expected
    assert read == list(range(end, 5))
    for name, tensor in whole.state().items():
        assert torch.equal(resumed.state()[name], tensor)
    assert resumed.learned == whole.learned == 5 * 30
    assert resumed.best_top1 == whole.best_top1
    done = fresh()
    assert train(done, stop_in(0, batches), 30, features, tmp_path) == expected
    assert all(map(torch.equal, done.state().values(), whole.state().values()))


def test_a_damaged_state_is_trained_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    features = clouds(30, 3, apart=0.5)
    curves = []
    for _ in range(2):
        probes = Probes([0.1], classes=3, width=6, epochs=2, seed=0, device=CPU)
        curves.append(train(probes, batches_of(features, 8), 30, features, tmp_path))
        (file,) = tmp_path.glob("*/probes.safetensors")
        file.write_bytes(b"x" + file.read_bytes()[1:])
    assert curves[0] == curves[1]
    assert "trained again from the start" in caplog.text


def test_a_rate_that_overflows_is_left_out_and_the_others_go_on() -> None:
    features = clouds(30, 3, apart=0.5)
    huge = Features(features.vectors * 1e4, features.labels)
    probes = trained(huge, [1e38, 1e-9], classes=3, epochs=3)
    lost, kept = probes.accuracies(huge)
    assert lost is None
    assert kept is not None
    assert choose([[lost, kept]], [1e38, 1e-9]).index == 1
    with pytest.raises(UserError, match=r"overflow at every learning rate \(1e\+38, 0.5\)"):
        choose([[None, None]], [1e38, 0.5])


def test_the_best_epoch_of_the_best_rate_is_chosen() -> None:
    def curve(*rates: tuple[float, ...]) -> AccuracyCurve:
        return [
            [Accuracy(float(top1), 100.0) for top1 in epoch] for epoch in zip(*rates, strict=True)
        ]

    found = choose(curve((10, 50, 40), (20, 30, 45)), [0.1, 0.2])
    assert (found.index, found.best_epoch) == (0, 2)
    assert (found.best.top1, found.last.top1) == (50, 40)
    assert choose(curve((50, 40), (50, 45)), [0.1, 0.2]).index == 1, "the better last epoch"
    assert choose(curve((50, 45), (50, 45)), [0.1, 0.2]).index == 0, "the earlier rate"
    assert choose(curve((50, 50)), [0.1]).best_epoch == 1, "the earlier epoch"


def test_the_weights_of_the_best_epoch_are_kept_also_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_SECONDS_BETWEEN_SAVES", 0.0)
    known, asked = clouds(30, 3, apart=0.5), clouds(60, 3, apart=0.5, seed=1)
    batches, rates = batches_of(known, 8), [0.5, 4.0]

    def fresh() -> Probes:
        return Probes(rates, classes=3, width=6, epochs=8, seed=0, device=CPU)

    whole = fresh()
    curve = train(whole, batches, 30, asked, None)
    resumed = fresh()
    with pytest.raises(Stopped):
        train(fresh(), stop_in(6, batches), 30, asked, tmp_path)
    train(resumed, batches, 30, asked, tmp_path)
    for index in range(len(rates)):
        found = summary(curve, index)
        assert found is not None
        assert found.best_epoch < 7, "the best epoch is one from before the stop"
        kept = whole.each[index]
        assert not torch.equal(kept.best_weight, kept.weight)
        assert accuracies([(kept.best_weight, kept.best_bias)], asked) == [found.best]
        assert torch.equal(resumed.each[index].best_weight, kept.best_weight)
        assert torch.equal(resumed.each[index].best_bias, kept.best_bias)


@pytest.mark.parametrize("unread", [0, 3])
def test_progress_is_counted_in_images(unread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, int]] = []
    counted: list[int] = []

    @contextmanager
    def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
        said.append((what, total))
        yield counted.append

    monkeypatch.setattr(probe, "counting", counting)
    features = clouds(20 - unread, 3, apart=1.0)
    probes = Probes([0.1], classes=3, width=6, epochs=3, seed=0, device=CPU)
    train(probes, batches_of(features, 8), 20, None, None)
    assert said == [("training linear classifiers on images", 60)]
    assert sum(counted) == 60
    assert counted[1:4] == [8, 8, 4 - unread]
