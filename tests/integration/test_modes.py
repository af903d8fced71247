"""The reference's trajectory, micro-batches and resuming in every mode: compiled and in bf16.

In processes of their own: there no shape checks stand in the compiler's way.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TRAJECTORY = """
import sys, torch
from attmask.hardware import Precision
from tests.reference import tensors, weights
from tests.test_train import run_trajectory

number_format, backend = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
made = run_trajectory(Precision.choose(number_format, torch.device("cpu")), backend)
golden = tensors("trajectory")
losses = torch.stack([part.total.detach() for part in made.losses])
off = (losses - golden["record"][:, 0]).abs().max().item()
same = torch.stack([torch.equal(m, golden[f"mask_{i}"]) * torch.ones(()) for i, m in
                    enumerate(made.masks)]).mean().item()
ours = made.distiller.student.state_dict()
ends = weights("trajectory", "student_end.")
apart = max((ours[name] - end).abs().max().item() for name, end in ends.items())
print(off, same, apart)
"""

MICRO_BATCHES = """
import sys, torch
from attmask.recipe import load_recipe
from tests import test_train

backend = sys.argv[1]
plain = test_train.build_distiller

def compiled(config):
    distiller = plain(config)
    distiller.student.backbone.compile_blocks(backend)
    distiller.teacher.backbone.compile_blocks(backend)
    return distiller

test_train.build_distiller = compiled
test_train.test_micro_batches_change_nothing_but_memory(2, "high")
"""

RESUME = """
import sys
from pathlib import Path
import torch
from attmask.run_config import override
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.recipe import load_recipe
from attmask.train import Trainer
from tests.runs import SHORT, last_checkpoint, same_tensors

out = Path(sys.argv[1])
write_folder(out / "images", train=24, val=10, size=32, seed=0)
config = override(load_recipe("tiny"), [*SHORT, "train.compile=true", *sys.argv[2:]])
source = open_images(out / "images").train
Trainer(config, source, out / "whole").train()
halfway = Trainer(config, source, out / "parts")
for batch in halfway.loader.epoch(0):
    halfway._one_step(batch, type("Quiet", (), {"due": lambda *_: False})())
halfway.loader.close()
halfway.save()
halfway.checkpoints.finish()
Trainer(config, source, out / "parts").train()
assert same_tensors(last_checkpoint(out / "whole"), last_checkpoint(out / "parts"))
"""


def run(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def trajectory(*words: str) -> tuple[float, float, float]:
    """How far losses are off, the share of equal masks, how far the final weights are apart."""
    off, same, apart = map(float, run(TRAJECTORY, *words).split()[-3:])
    return off, same, apart


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_compiled_trajectory_is_that_of_the_reference(backend: str) -> None:
    assert backend != "inductor" or shutil.which("g++"), "inductor needs a C++ compiler"
    off, same, apart = trajectory("fp32", backend)
    assert (off < 1e-4, same, apart < 1e-4) == (True, 1.0, True)


def test_the_trajectory_in_bf16_stays_near_that_of_the_reference() -> None:
    off, same, apart = trajectory("bf16")
    assert off < 0.02
    assert same >= 0.5
    assert apart < 6e-3  # six steps of at most 1e-3 each, with a sign that rounding may turn


def test_micro_batches_change_nothing_in_compiled_blocks() -> None:
    run(MICRO_BATCHES, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("number_format", ["fp32", "bf16"])
def test_a_compiled_run_goes_on_to_the_bit(tmp_path: Path, number_format: str) -> None:
    run(RESUME, str(tmp_path), f"train.precision={number_format}")
