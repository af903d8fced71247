"""N processes with B / N images each train the weights of one process with B images."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine_steps import Case, Trained, train, write_cases
from tests.processes import ROOT, run_group

PLAIN = [
    Case("ibot"),
    Case("hint", ("masking.strategy=hint", "head.shared=false")),
    Case("block", ("masking.strategy=block", "masking.probability=0.5")),
    Case("dino", ("loss.patch_weight=0",)),
    Case("dino-without-masks", ("loss.patch_weight=0", "masking.strategy=none")),
    Case("dino-two-heads", ("loss.patch_weight=0", "head.shared=false")),
    Case("no-local-crops", ("views.local_crops=0",)),
    Case("few-keep-a-branch", ("backbone.drop_path=0.9",)),
    Case("micro-batches", accumulate=2),
    Case("sinkhorn", ("loss.centring=sinkhorn",)),
    Case("sinkhorn-few-masks", ("loss.centring=sinkhorn", "masking.probability=0.3")),
    Case("clipped", ("optim.clip=0.001",)),
    Case("last-layer-not-frozen", ("schedule.freeze_last_layer_epochs=0",)),
    Case("single", dtype="float32"),
    Case("single-sinkhorn", ("loss.centring=sinkhorn",), dtype="float32"),
    Case("rotary", ("backbone.name=vit_small_patch16_dinov3_qkvb", "backbone.layer_scale=0.5")),
]
SHARDED = [replace(case, name=f"{case.name}-fsdp", sharding="fsdp") for case in PLAIN]
FIRST = (
    "ibot",
    "dino",
    "few-keep-a-branch",
    "micro-batches",
    "sinkhorn",
    "clipped",
    "single",
    "rotary",
)
COMPILED = [
    replace(case, name=f"{case.name}-compiled", compiled=True)
    for case in (PLAIN[0], PLAIN[9], SHARDED[0], SHARDED[9])
]
CASES = [*PLAIN, *SHARDED]
QUICK = [*PLAIN, *(SHARDED[PLAIN.index(case)] for case in PLAIN if case.name in FIRST)]
_alone: dict[Case, Trained] = {}


def alone(case: Case) -> Trained:
    """The same steps in one process."""
    key = replace(case, name="", sharding="none")
    if key not in _alone:
        _alone[key] = train(key)
    return _alone[key]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Trains all cases in so many processes, in one launch."""
    made: dict[int, Path] = {}

    def train_all(count: int) -> Path:
        if count not in made:
            folder = tmp_path_factory.mktemp(f"processes-{count}")
            cases = [*CASES, *COMPILED] if count > 2 else QUICK
            write_cases([c for c in cases if 8 % (count * c.accumulate) == 0], folder / "cases")
            run_group([ROOT / "tests" / "engine_steps.py", folder / "cases", folder], count)
            made[count] = folder
        return made[count]

    return train_all


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_two_processes_train_the_weights_of_one(case: Case, trained: Callable[[int], Path]) -> None:
    compare(case, trained(2), 2)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *COMPILED], ids=lambda case: case.name)
def test_four_processes_train_the_weights_of_one(
    case: Case, trained: Callable[[int], Path]
) -> None:
    compare(case, trained(4), 4)


def compare(case: Case, folder: Path, count: int) -> None:
    wanted = alone(case)
    masks = [torch.load(folder / f"{case.name}.masks{rank}.pt") for rank in range(count)]
    for step, whole in enumerate(wanted.masks):
        assert torch.equal(torch.cat([of[step] for of in masks], dim=1), whole)
    state = torch.load(folder / f"{case.name}.state.pt")
    assert state.keys() == wanted.state.keys()
    true = alone(replace(case, dtype="float64")).smallest
    unsure = 0
    for name, tensor in wanted.state.items():
        sure = torch.ones_like(tensor, dtype=torch.bool)
        if case.dtype == "float32":  # AdamW makes a whole step out of what rounding leaves of zero
            _, _, parameter = name.partition(".")
            sure = true[parameter] > 1e-6 if parameter in true else sure
            unsure += int((~sure).sum())
        limit = 1e-10 if case.dtype == "float64" else 1e-5
        torch.testing.assert_close(state[name][sure], tensor[sure], rtol=0, atol=limit, msg=name)
    assert unsure < 0.02 * sum(tensor.numel() for tensor in wanted.state.values())
