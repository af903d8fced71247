"""A DINOv3 network from pre-training to fine-tuning: resumed to the bit, evaluated."""

import os
import re
import signal
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.evaluation.loading import load_model
from attmask.models.blocks import RotaryBlock
from attmask.models.layers import layers_of_backbone
from attmask.monitor import read_metrics
from tests.processes import wait_for
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

STEPS = 18
ROTARY = (
    *SHORT,
    "backbone.name=vit_small_patch16_dinov3_qkvb",
    "backbone.registers=2",
    "backbone.layer_scale=0.5",
    "backbone.drop_path=0.3",
    f"schedule.epochs={STEPS // 6}",
    "monitor.knn_every_epochs=1",
)


def command(data: Path, out: Path) -> list[str]:
    return ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *ROTARY]


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rotary") / "run"
    assert main(command(scenes, out)) == 0
    return out


def test_a_rotary_network_is_pre_trained(run: Path) -> None:
    losses = [record["loss.total"] for record in read_metrics(run) if "loss.total" in record]
    assert len(losses) == STEPS
    assert all(0 < loss < 10 for loss in losses)
    trained = last_checkpoint(run).tensors["weights"]
    gains = [t for name, t in trained.items() if re.search(r"student.*blocks.*gamma_[12]$", name)]
    assert len(gains) == 4
    assert all(0 < (gain - 0.5).abs().max() < 0.2 for gain in gains)


def test_a_stopped_run_of_a_rotary_network_goes_on_to_the_bit(
    run: Path, scenes: Path, tmp_path: Path
) -> None:
    words = command(scenes, tmp_path / "run")
    process = Forked(tmp_path / "said", *words)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 4, "no steps in 90 s")
    os.kill(process.pid, signal.SIGINT)
    status, said = process.finish()
    assert status == 130, said
    assert 4 <= last_checkpoint(tmp_path / "run").step < STEPS
    assert main(words) == 0
    assert same_tensors(last_checkpoint(tmp_path / "run"), last_checkpoint(run))


def test_a_rotary_network_is_evaluated(run: Path, scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "cards.json"
    assert main(["evaluate", str(run), "knn", "--data", str(scenes), "--out", str(out)]) == 0
    assert '"registers": 2' in out.read_text()
    model = load_model(str(run))
    assert all(isinstance(block, RotaryBlock) for block in model.backbone.blocks)


def test_a_rotary_network_is_fine_tuned(run: Path, scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    settings = (*SHORT, "schedule.epochs=2", "schedule.lr_warmup_epochs=0")
    more = ("schedule.freeze_backbone_epochs=0", "network.drop_path=0.3", "network.token=cls+gap")
    assert main(["finetune", str(run), str(scenes), "--out", str(out), *settings, *more]) == 0
    tuned, before = load_model(str(out)).backbone, load_model(str(run)).backbone
    for name, weight in tuned.vit.named_parameters():
        assert not weight.equal(before.vit.get_parameter(name)), name


def test_layer_decay_finds_the_layer_of_every_weight(run: Path) -> None:
    layers = layers_of_backbone()
    names = [f"backbone.{name}" for name, _ in load_model(str(run)).backbone.named_parameters()]
    stem = {name for name in names if re.match(layers["stem"], name)}
    last = {n for n in names if not re.match(layers["blocks"], n)} - stem
    assert {name.split(".")[2] for name in stem} == {"cls_token", "reg_token", "patch_embed"}
    ends = {"backbone.mask_token", "backbone.vit.norm.weight", "backbone.vit.norm.bias"}
    assert last == ends
