"""Full checkpoints of the authors' code: read without running their pickle."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attmask.errors import UserError
from attmask.reference_layout import our_name, read_reference, their_name
from tests import reference
from tests.authors_files import ARGUMENTS, checkpoint, parameters, saved, with_second_layer
from tests.hostile_files import PAYLOADS


def test_names_are_those_of_the_golden_files_in_both_directions() -> None:
    for theirs in parameters():
        assert our_name(theirs) == reference.our_name(theirs)
        assert their_name(our_name(theirs)) == theirs


def test_weights_centres_moments_epoch_and_arguments_are_read(tmp_path: Path) -> None:
    content = checkpoint(epoch=1, steps=2)
    found = read_reference(saved(tmp_path, content))
    assert (found.epoch, found.step, found.optimizer_steps) == (1, None, 2)
    assert found.arguments == ARGUMENTS
    for name, tensor in found.student.items():
        assert torch.equal(tensor, content["student"][f"module.{their_name(name)}"])
    assert torch.equal(found.teacher["head.mlp.0.weight"], content["teacher"]["head.mlp.0.weight"])
    assert torch.equal(found.cls_centre, content["ibot_loss"]["center"].flatten())
    assert found.patch_centre is not None
    assert torch.equal(found.patch_centre, content["ibot_loss"]["center2"].flatten())


def test_moments_go_to_the_parameters_that_they_belong_to(tmp_path: Path) -> None:
    named = parameters()
    moments = {name: float(number) for number, name in enumerate(named)}
    content = checkpoint()
    # Each parameter is given its own number as moment, through PyTorch's optimizer itself.
    decayed = [n for n, p in named.items() if not (n.endswith(".bias") or p.dim() == 1)]
    order = [*decayed, *(n for n in named if n not in decayed)]
    for index, name in enumerate(order):
        content["optimizer"]["state"][index]["exp_avg"].fill_(moments[name])
    found = read_reference(saved(tmp_path, content))
    for name, number in moments.items():
        assert set(found.moments[f"{our_name(name)}:exp_avg"].flatten().tolist()) == {number}, name


def test_parameters_that_never_had_a_gradient_have_no_moments(tmp_path: Path) -> None:
    content = checkpoint()
    last = max(n for n in content["optimizer"]["state"])
    del content["optimizer"]["state"][last]
    found = read_reference(saved(tmp_path, content))
    assert len(found.moments) == 3 * (len(parameters()) - 1)


def test_a_teacher_of_several_processes_and_old_step_counts_are_understood(tmp_path: Path) -> None:
    content = checkpoint()
    content["teacher"] = {f"module.{name}": t for name, t in content["teacher"].items()}
    for state in content["optimizer"]["state"].values():
        state["step"] = 2
    assert read_reference(saved(tmp_path, content)).optimizer_steps == 2


def test_a_checkpoint_of_dino_has_one_centre(tmp_path: Path) -> None:
    content = checkpoint(ibot_loss=None, dino_loss={"center": torch.ones(1, 96)})
    assert read_reference(saved(tmp_path, content)).patch_centre is None


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_malicious_pickle_is_refused_in_one_line_and_nothing_runs(
    payload: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    path = saved(tmp_path, checkpoint(args=payload(marker)))
    with pytest.raises(UserError) as caught:
        read_reference(path)
    assert not marker.exists()
    assert "could run any code" in str(caught.value)
    assert "\n" not in str(caught.value)


def unshared() -> dict[str, Any]:
    content = checkpoint()
    content["student"]["module.head.last_layer2.weight_v"] = torch.zeros(96, 32)
    return content


def norms_frozen() -> dict[str, Any]:
    content = checkpoint()
    content["optimizer"]["param_groups"][0]["params"].pop()
    return content


def wrong_moment() -> dict[str, Any]:
    content = checkpoint()
    content["optimizer"]["state"][0]["exp_avg"] = torch.zeros(3)
    return content


def not_finite() -> dict[str, Any]:
    content = checkpoint()
    content["student"]["module.backbone.norm.weight"].fill_(torch.nan)
    return content


REFUSED = {
    "only weights": ({"teacher": with_second_layer({})}, "has no student: found teacher"),
    "no epoch": (checkpoint(epoch=None), "has no epoch"),
    "an epoch that is none": (checkpoint(epoch="two"), "says epoch=two"),
    "a negative epoch": (checkpoint(epoch=-1), "says epoch=-1"),
    "no centres": (checkpoint(ibot_loss=None), "has no centre"),
    "an empty student": (checkpoint(student={}), "no weights in student"),
    "numbers as weights": (checkpoint(teacher={"a": 1}), "something else than tensors in teacher"),
    "no optimizer state": (checkpoint(optimizer={}), "no state of AdamW"),
    "two heads": (unshared(), "shared_head=false"),
    "norms that were not trained": (norms_frozen(), "norm_last_layer=true"),
    "another optimizer": (
        checkpoint(optimizer={"param_groups": [{"params": [0]}], "state": {}}),
        "an optimizer of [1] parameters",
    ),
    "a moment of another shape": (wrong_moment(), "wanted the shape"),
    "not finite": (not_finite(), "NaN or infinite"),
    "a list": ([1, 2], "has no student: found list"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_resumed_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    content, says = REFUSED[kind]
    with pytest.raises(UserError) as caught:
        read_reference(saved(tmp_path, content))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_reference(tmp_path / "nothing.pth")
