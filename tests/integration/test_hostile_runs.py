"""Runs and checkpoints of strangers: whoever wrote them, what is wrong with them is one line."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file
from torch import Tensor

import attmask
from attmask.api import pretrain
from attmask.cli import main
from attmask.errors import UserError
from tests.runs import SHORT

LONGEST_LINE = 600


@pytest.fixture(scope="module")
def trained(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    settings = [*SHORT, "monitor.knn_every_epochs=0", "schedule.epochs=1", "checkpoint.keep=1"]
    pretrain(scenes, recipe="tiny", out=out, overrides=settings)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run that a test may spoil."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def step_of(run: Path) -> Path:
    (step,) = (run / "checkpoints").iterdir()
    return step


def refused(path: Path) -> str:
    """The one line that loading a backbone ends with."""
    with pytest.raises(UserError) as caught:
        attmask.load_backbone(path)
    return checked_line(str(caught.value))


def complaint(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The last line that a command ends with, after warnings of one line each."""
    assert main([str(word) for word in words]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return checked_line(shown.err.splitlines()[-1].removeprefix("attmask: "))


def checked_line(line: str) -> str:
    assert line.isprintable(), line
    assert len(line) < LONGEST_LINE, line
    return line


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_state(step: Path, state: object) -> None:
    """Write any state with its right hash."""
    data = state if isinstance(state, bytes) else json.dumps(state).encode()
    (step / "state.json").write_bytes(data)
    (step / "state.sha256").write_text(sha256(data))


def state_of(step: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((step / "state.json").read_text())
    return state


def write_tensors(step: Path, name: str, data: bytes) -> None:
    """Write any file of tensors with its right hash."""
    (step / name).write_bytes(data)
    state = state_of(step)
    state["files"][name] = sha256(data)
    write_state(step, state)


# The state of a checkpoint

Spoil = Callable[[dict[str, Any]], object]


def with_(**replaced: Any) -> Spoil:
    return lambda state: {**state, **replaced}


def without(key: str) -> Spoil:
    return lambda state: {name: value for name, value in state.items() if name != key}


def naming(file: str) -> Spoil:
    return lambda state: {**state, "files": {**state["files"], file: "0" * 64}}


STATES: dict[str, tuple[Spoil, str]] = {
    "no JSON": (lambda _: b"words", "it is not a JSON object"),
    "no UTF-8": (lambda _: b"\xff\xfe", "it is not a JSON object"),
    "a deep list": (lambda _: b"[" * 100_000, "it is not a JSON object"),
    "a list": (lambda state: [state], "it is not a JSON object"),
    "nothing": (lambda _: {}, "it has no step"),
    "no step": (without("step"), "it has no step"),
    "a step of text": (with_(step="12"), "it has no step"),
    "a truth for a step": (with_(step=True), "it has no step"),
    "a step below zero": (with_(step=-1), "it has no step"),
    "an endless step": (with_(step=10**30), "it has no step"),
    "no info": (without("info"), "it has no info"),
    "info of text": (with_(info="x"), "it has no info"),
    "no files": (without("files"), "it has no hashes of files"),
    "a list of files": (with_(files=["weights.safetensors"]), "it has no hashes of files"),
    "hashes of numbers": (with_(files={"weights.safetensors": 3}), "it has no hashes of files"),
    "a file above": (naming("../../x.safetensors"), "'../../x.safetensors' is not a file of"),
    "a file anywhere": (naming("/etc/x.safetensors"), "'/etc/x.safetensors' is not a file of"),
    "a password file": (naming("/etc/passwd"), "'/etc/passwd' is not a file of tensors in this"),
    "a file below": (naming("a/b.safetensors"), "'a/b.safetensors' is not a file of tensors"),
    "a file of lines": (naming("a\nb.safetensors"), r"'a\nb.safetensors' is not a file of"),
    "a file without a name": (naming(""), "'' is not a file of tensors in this folder"),
    "shards of text": (with_(shards="x"), "its shards are not lists of its files"),
    "a shard of a number": (with_(shards={"optimizer": [3]}), "its shards are not lists"),
    "a shard elsewhere": (with_(shards={"weights": ["../x"]}), "its shards are not lists"),
}


@pytest.mark.parametrize("what", STATES)
def test_a_state_with_the_right_hash_and_wrong_content_is_one_line(
    what: str, run: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, says = STATES[what]
    step = step_of(run)
    write_state(step, spoil(state_of(step)))
    wanted = f"{step / 'state.json'} is not the state of a checkpoint: {says}"
    assert refused(step).startswith(wanted)
    assert complaint(capsys, "evaluate", step, "knn", "--data", scenes).startswith(wanted)
    for command in (("evaluate", run, "knn", "--data", scenes), ("resume", run)):
        assert "is whole; put a copy of one there" in complaint(capsys, *command)


def test_a_state_that_names_no_weights_is_one_line(run: Path) -> None:
    step = step_of(run)
    write_state(step, {**state_of(step), "files": {}})
    assert "do not fit" in refused(step)


@pytest.mark.parametrize("info", [{}, {"images": "many"}, {"images": 48}, {"scaler": 3}])
def test_a_state_that_lacks_what_a_run_resumes_with_is_one_line(
    info: dict[str, Any], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = step_of(run)
    write_state(step, {**state_of(step), "info": info})
    attmask.load_backbone(step)  # which needs none of it
    assert f"{run} holds a run on " in complaint(capsys, "resume", run)


def test_a_state_without_a_scaler_is_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = step_of(run)
    state = state_of(step)
    del state["info"]["scaler"]
    write_state(step, state)
    assert "does not fit the settings of its run ('scaler')" in complaint(capsys, "resume", run)


# Its tensors


def spoilt(tensors: dict[str, Tensor], name: str, tensor: Tensor | None) -> bytes:
    found = {**tensors, name: tensor} if tensor is not None else {**tensors}
    if tensor is None:
        del found[name]
    return save({key: value for key, value in found.items() if value is not None})


NORM = "teacher.backbone.vit.norm.weight"
WEIGHTS: dict[str, tuple[Tensor | None, str]] = {
    "missing": (None, "do not fit"),
    "of another shape": (torch.ones(7), "do not fit"),
    "a NaN": (torch.full((48,), torch.nan), f"has NaN or infinite values in {NORM}"),
    "an infinity": (torch.full((48,), torch.inf), f"has NaN or infinite values in {NORM}"),
    "whole numbers": (torch.ones(48, dtype=torch.int64), f"holds {NORM} as int64; wanted"),
    "float8": (torch.ones(48).to(torch.float8_e5m2), f"holds {NORM} as float8_e5m2; wanted"),
}


@pytest.mark.parametrize("what", WEIGHTS)
def test_a_weight_of_a_run_that_is_wrong_is_one_line(
    what: str, run: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensor, says = WEIGHTS[what]
    step = step_of(run)
    tensors = load_file(step / "weights.safetensors")
    write_tensors(step, "weights.safetensors", spoilt(tensors, NORM, tensor))
    for path in (run, step):
        assert says in refused(path)
        assert says in complaint(capsys, "evaluate", path, "knn", "--data", scenes)


@pytest.mark.parametrize("what", ["missing", "of another shape", "a NaN"])
def test_a_run_with_a_wrong_weight_does_not_resume(
    what: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = step_of(run)
    tensors = load_file(step / "weights.safetensors")
    write_tensors(step, "weights.safetensors", spoilt(tensors, NORM, WEIGHTS[what][0]))
    line = complaint(capsys, "resume", run)
    assert line.startswith(str(step))
    assert line.endswith("; use another checkpoint")


@pytest.mark.parametrize("tensor", [None, torch.ones(7), torch.ones(())])
def test_a_run_with_a_wrong_moment_does_not_resume(
    tensor: Tensor | None, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = step_of(run)
    tensors = load_file(step / "optimizer.safetensors")
    moment = "backbone.vit.norm.weight:exp_avg"
    write_tensors(step, "optimizer.safetensors", spoilt(tensors, moment, tensor))
    line = complaint(capsys, "resume", run)
    assert line.startswith(f"{step} does not fit the settings of its run (")
    assert "optimizer" in line


def test_files_of_tensors_with_the_right_hash_that_are_none_are_one_line(run: Path) -> None:
    step = step_of(run)
    for data in (b"", b"words", b"\xff" * 100, bytes(8) + b"{}"):
        write_tensors(step, "weights.safetensors", data)
        assert "does not hold tensors; use another checkpoint" in refused(step) or not data[8:]


# Files that were cut, and what is no file


def cuts(size: int) -> list[int]:
    return sorted({0, 1, 8, *range(0, size, max(1, size // 12)), size - 1})


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json", "state.sha256"])
def test_a_file_of_a_checkpoint_that_was_cut_anywhere_is_one_line(name: str, run: Path) -> None:
    file = step_of(run) / name
    whole = file.read_bytes()
    for length in cuts(len(whole)):
        file.write_bytes(whole[:length])
        assert "is damaged; delete" in refused(step_of(run))
        assert "is whole; put a copy" in refused(run)


def test_settings_that_were_cut_are_incomplete_and_not_the_defaults(
    run: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "config.yaml"
    whole = file.read_bytes()
    end = whole.index(b"monitor:")  # what comes after it changes no result
    for length in [*cuts(end), end]:
        file.write_bytes(whole[:length])
        assert str(file) in refused(run), length
    assert refused(run) == f"{file} is incomplete: it has no monitor; restore the file"
    assert "incomplete" in complaint(capsys, "resume", run)
    assert "incomplete" in complaint(capsys, "evaluate", run, "knn", "--data", scenes)


CONFIGS: dict[str, tuple[bytes, str]] = {
    "no UTF-8": (b"\xff\xfe\x00", "is not YAML"),
    "a list": (b"[1, 2]", "should be"),
    "a text": (b"words", "should be"),
    "a deep list": (b"[" * 100_000, "nested more than 20 deep"),
    "aliases": (b"a: &a [x]\nb: [*a, *a]", "aliases are not read"),
    "a tag": (b"!!python/object/apply:os.abort []", "could not determine a constructor"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_settings_of_a_run_that_are_something_else_are_one_line(what: str, run: Path) -> None:
    content, says = CONFIGS[what]
    (run / "config.yaml").write_bytes(content)
    line = refused(run)
    assert str(run / "config.yaml") in line
    assert says in line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("width: 48", "width: 30000"),
        ("depth: 2", "depth: 50"),
        ("prototypes: 64", "prototypes: 16777216"),
        ("global_size: 32", "global_size: 8192"),
    ],
)
def test_settings_of_a_network_that_no_memory_holds_are_refused_before_it_is_built(
    old: str, new: str, run: Path
) -> None:
    text = (run / "config.yaml").read_text()
    assert text.count(old) == 1
    (run / "config.yaml").write_text(text.replace(old, new))
    line = refused(run)
    assert "do not fit" in line or "timm cannot build" in line


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"data": 3}', '{"data": "\\u0000"}', "[" * 10**5]
)
def test_a_run_that_does_not_say_where_its_images_are_asks_for_them(
    content: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "run.json").write_text(content)
    assert f"use attmask resume {run} --data" in complaint(capsys, "resume", run)


def test_a_log_that_was_cut_anywhere_lets_the_run_resume(
    run: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = run / "metrics.jsonl"
    whole = log.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        log.write_bytes(whole[:length])
        assert main(["resume", str(run)]) == 0
    capsys.readouterr()
    log.write_bytes(b"\xff\n" + whole)
    assert "line 1; remove this line" in complaint(
        capsys, "resume", run, "monitor.knn_every_epochs=1"
    )


@pytest.mark.parametrize(
    "name", ["config.yaml", "run.json", "state.json", "state.sha256", "weights.safetensors"]
)
def test_a_pipe_or_folder_in_place_of_a_file_is_refused_at_once(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(run.rglob(name))
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")):
        file.unlink()
        make(file)
        if name != "state.json":  # without which there is no checkpoint to resume from
            assert str(run) in complaint(capsys, "resume", run)
        if name != "run.json":
            refused(step_of(run))
        file.rmdir() if file.is_dir() else file.unlink()
        file.touch()


@pytest.mark.parametrize("name", ["config.yaml", "state.json", "state.sha256"])
def test_a_file_of_gigabytes_in_place_of_a_small_one_is_not_read(name: str, run: Path) -> None:
    file = next(run.rglob(name))
    with file.open("wb") as opened:
        opened.truncate(2**34)  # without blocks on the disk
    assert "has 17,179,869,184 bytes, and 16,777,216 are the most" in refused(step_of(run))


def test_a_checkpoint_of_this_run_in_safetensors_alone_is_not_taken_for_another(
    run: Path, tmp_path: Path
) -> None:
    tensors = load_file(step_of(run) / "weights.safetensors")
    save_file(tensors, tmp_path / "weights.safetensors")
    assert "belongs to a run of attmask" in refused(tmp_path / "weights.safetensors")
