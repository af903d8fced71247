"""Short runs whose disk fails at one call, each in a fork of this process; also a script."""

import errno
import logging
import multiprocessing
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from attmask import checkpoint
from attmask.checkpoint_files import read_state
from attmask.cli import main
from attmask.run import RunFolder
from tests.faults.shim import Kind, Shim
from tests.runs import SHORT

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT)
KINDS = (
    Kind.OPEN,
    Kind.WRITE,
    Kind.TRUNCATE,
    Kind.FLUSH,
    Kind.RENAME,
    Kind.UNLINK,
    Kind.RMDIR,
    Kind.MKDIR,
    Kind.LINK,
)
STEPS = 3


def command(images: Path, run: Path, *settings: str) -> list[str]:
    """Three steps with a checkpoint after each."""
    return [
        *("pretrain", str(images), "--recipe", "tiny", "--out", str(run)),
        *SHORT[1:],
        *("train.batch_size=4", "schedule.epochs=1", "monitor.knn_every_epochs=0"),
        *("checkpoint.every_minutes=0", "checkpoint.keep=1"),
        *settings,
    ]


@dataclass(frozen=True)
class Case:
    """Which call fails, and how."""

    number: int
    error: int
    stays: bool
    """Whether all later calls fail too."""
    tensorboard: bool

    def __str__(self) -> str:
        how = f"{'from call' if self.stays else 'call'} {self.number}"
        return f"{errno.errorcode[self.error]}-{how}{'-tensorboard' if self.tensorboard else ''}"

    @property
    def settings(self) -> tuple[str, ...]:
        return (f"monitor.tensorboard={str(self.tensorboard).lower()}",)


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    status: int | None
    said: str
    reported: int
    """The last step whose checkpoint was written without an error."""
    calls: int


def run_with_fault(library: Path, words: list[str], folder: Path, case: Case) -> Ending:
    """Run a command whose files below `folder` fail."""
    notes = folder.with_name(f"{folder.name}-notes")
    notes.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    child = multiprocessing.get_context("fork").Process(
        target=_child, args=(library, words, folder, notes, case)
    )
    child.start()
    child.join(timeout=60)
    hangs = child.is_alive()
    child.kill()
    child.join()
    steps = (notes / "saved").read_text().split() if (notes / "saved").exists() else []
    said = (notes / "said").read_text()
    calls = int((notes / "calls").read_text()) if (notes / "calls").exists() else 0
    return Ending(None if hangs else child.exitcode, said, max(map(int, steps), default=0), calls)


def _child(library: Path, words: list[str], folder: Path, notes: Path, case: Case) -> None:
    torch.set_num_threads(1)
    whole, steps = RunFolder.save, list[int]()

    def save_and_note(run: RunFolder, step: int, *rest: object, **settings: object) -> None:
        whole(run, step, *rest, **settings)  # type: ignore[arg-type]
        steps.append(step)
        (notes / "saved").write_text(" ".join(map(str, steps)))

    RunFolder.save = save_and_note  # type: ignore[assignment, method-assign]
    with (notes / "said").open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        logging.getLogger().handlers.clear()  # those of pytest
        shim = Shim(library, folder)
        shim.fail(case.number, case.error, on=case.stays, kinds=KINDS)
        status = main(words)
        (notes / "calls").write_text(str(shim.count()))
        sys.exit(status)


def faults_of(ending: Ending, run: Path, error: int) -> list[str]:
    """What is wrong with an ending; nothing, one hopes."""
    wrong = []
    lines = ending.said.splitlines()
    if "Traceback" in ending.said or ending.status not in (0, 1):
        wrong.append(f"status {ending.status}")
    why = os.strerror(error)
    if ending.status == 1:
        last = [line for line in lines if line.startswith("attmask: ")]
        if len(last) != 1:
            wrong.append(f"{len(last)} lines")
        elif not (str(run) in last[0] and why in last[0] and "; " in last[0]):
            wrong.append(f"unclear line {last[0]}")
    elif not any(why in line and str(run) in line for line in lines):
        wrong.append("no warning")
    folder = run / "checkpoints"
    for path in folder.glob("step-*"):
        try:
            checkpoint.verify(path)
        except ValueError as fault:
            wrong.append(str(fault))
    newest = checkpoint.newest(folder)
    if ending.reported and (newest is None or checkpoint.step_of(newest) < ending.reported):
        wrong.append(f"{newest} after {ending.reported} was reported")
    return wrong


def bits(run: Path) -> object:
    """The hashes of the last checkpoint, which must be that of the last step."""
    newest = checkpoint.newest(run / "checkpoints")
    assert newest is not None
    found = checkpoint.load(newest)
    assert found.step == STEPS
    return read_state(newest)["files"]


NONE = Case(-1, errno.ENOSPC, False, False)


def what_is_wrong(
    case: Case, library: Path, images: Path, folder: Path, wanted: object, *, goes_on: bool
) -> list[str]:
    """One case: how it ends, what is left, and whether the same command ends with the same bits."""
    run = folder / "run"
    words = command(images, run, *case.settings)
    ended = run_with_fault(library, words, folder, case)
    wrong = faults_of(ended, run, case.error)
    if wrong == ["no warning"] and not case.stays and (run / "index.npz").exists():
        wrong = []  # zipfile opens its file a second time by itself
    if ended.status == 1 and goes_on:
        again = run_with_fault(library, words, folder, NONE)
        if again.status != 0:
            wrong.append(f"it does not go on: {again.said}")
    if not wrong and (ended.status == 0 or goes_on) and bits(run) != wanted:
        wrong.append("other bits")
    shutil.rmtree(folder)
    shutil.rmtree(folder.with_name(f"{folder.name}-notes"))
    return [f"{case}: {'; '.join(wrong)}\n{ended.said}"] if wrong else []


def undisturbed(library: Path, images: Path, folder: Path, tensorboard: bool) -> tuple[int, object]:
    """The number of calls of a run without faults, and its bits."""
    case = replace(NONE, tensorboard=tensorboard)
    words = command(images, folder / "run", *case.settings)
    ended = run_with_fault(library, words, folder, case)
    assert (ended.status, ended.reported) == (0, STEPS), ended.said
    return ended.calls, bits(folder / "run")


def every_call(library: Path, images: Path, folder: Path, *words: str) -> None:
    """Fail at every call with one error: `ENOSPC once`, `EROFS stays`, `any tensorboard`."""
    warm = command(images, folder / "warm", "monitor.tensorboard=true")
    assert main(warm) == 0  # so that the forks need not import anything
    error, how = words
    tensorboard = how == "tensorboard"
    calls, wanted = undisturbed(library, images, folder / "undisturbed", tensorboard)
    wrong, cases = list[str](), 0
    for number in range(0, calls, 2 if tensorboard else 1):
        if tensorboard:
            case = Case(number, ERRORS[number % 3], number % 4 == 0, True)
            goes_on = number % 5 == 0
        else:
            case = Case(number, getattr(errno, error), how == "stays", False)
            goes_on = number % 3 == ERRORS.index(case.error)  # it hardly depends on the error
        at = folder / str(number)
        wrong += what_is_wrong(case, library, images, at, wanted, goes_on=goes_on)
        cases += 1
    sys.stdout.write("\n".join([f"cases {cases}", *wrong, ""]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    every_call(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
