"""Weights files of strangers: nothing in them runs, and what is wrong with them is one line."""

import multiprocessing
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import attmask
from attmask.cli import main
from attmask.errors import UserError
from attmask.models.interop import import_backbone
from tests.hostile_files import (
    PAYLOADS,
    WHERE,
    Command,
    Make,
    bomb,
    claiming,
    declaring_more,
    expanded,
    metadata,
    of_dtype,
    one_tensor,
    safetensors_file,
    torch_file,
    torchscript,
    weights,
    write_pickle,
)

LONGEST_LINE = 600
WEIGHT = torch.ones(64)
NAN, INFINITE = WEIGHT.clone(), WEIGHT.clone()
NAN[3], INFINITE[5] = torch.nan, -torch.inf


def refused(path: str | Path) -> str:
    """The one line that loading a backbone ends with."""
    with pytest.raises(UserError) as caught:
        attmask.load_backbone(path)
    line = str(caught.value)
    assert line.isprintable(), line
    assert len(line) < LONGEST_LINE, line
    assert line.startswith(str(path).partition("@")[0]), "it names the file first"
    return line


def complaint(capsys: pytest.CaptureFixture[str], path: str | Path, scenes: Path) -> str:
    """The one line that `attmask evaluate` ends with, which is that of the library."""
    status = main(["evaluate", str(path), "knn", "--data", str(scenes), "--workers", "0"])
    shown = capsys.readouterr()
    assert (status, shown.out) == (1, "")
    assert shown.err.count("\n") == 1, shown.err
    line = shown.err.removeprefix("attmask: ").rstrip("\n")
    assert line == refused(path)
    return line


# Code in the pickle


@pytest.mark.parametrize("ending", [".pth", ".pt", ".bin"])
@pytest.mark.parametrize("kind", ["zip", "legacy", "bare"])
def test_code_in_a_pickle_never_runs(tmp_path: Path, kind: str, ending: str) -> None:
    marker = tmp_path / "marker"
    for payload in PAYLOADS:
        for where, around in WHERE.items():
            path = tmp_path / f"weights{ending}"
            write_pickle(path, around(payload(marker)), kind)
            line = refused(path)
            assert "save only its state_dict, preferably as .safetensors" in line, where
            assert not marker.exists(), f"{payload.__name__} {where} ran"


def test_the_payload_of_these_tests_does_run_where_nothing_stops_it(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(Command(tmp_path / "marker"), path)
    torch.load(path, weights_only=False)
    assert (tmp_path / "marker").exists()


def test_code_in_a_pickle_is_one_line_of_the_command(
    tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"model": Command(tmp_path / "marker")}, tmp_path / "weights.pth")
    line = complaint(capsys, tmp_path / "weights.pth", scenes)
    assert "holds more than tensors, which could run any code" in line
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("kind", ["zip", "legacy", "bare"])
def test_a_pickle_that_is_called_safetensors_is_not_opened_as_a_pickle(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "weights.safetensors"
    write_pickle(path, Command(tmp_path / "marker"), kind)
    assert "damaged or not a safetensors file" in refused(path)
    assert not (tmp_path / "marker").exists()


def test_code_is_refused_by_every_other_function_that_opens_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"model": Command(tmp_path / "marker")}, path)
    for opens in (attmask.transform, import_backbone):
        with pytest.raises(UserError, match="could run any code"):
            opens(path)
    for other in (f"{path}@heads=1", f"{path}@positions=size"):
        assert "could run any code" in refused(other)
    assert not (tmp_path / "marker").exists()


# Files of another kind

MODULE = nn.Sequential(nn.Linear(2, 2))

SAYS: dict[str, tuple[str, Make, str]] = {
    "a whole module": (".pth", torch_file(MODULE), "save only its state_dict"),
    "a TorchScript program": (".pt", torchscript, "is a program of TorchScript"),
    "an empty pickle": (".pth", lambda path: path.touch(), "damaged or not a PyTorch"),
    "an empty safetensors": (".safetensors", lambda path: path.touch(), "damaged or not a safe"),
    "a text": (".pth", lambda path: path.write_text("words"), "could run any code, or is"),
    "a list": (".pth", torch_file([torch.ones(2)]), "has no weights: found list"),
    "a tensor": (".pth", torch_file(torch.ones(2)), "has no weights: found Tensor"),
    "arrays of numpy": (".pth", torch_file({"a": torch.ones(2).numpy()}), "save only its state"),
    # Shapes and keys
    "no [CLS]": (".pth", torch_file(weights(cls_token=None)), "has no cls_token: found pos_embed"),
    "no norm": (".pth", torch_file(weights(norm__weight=None)), "it lacks: norm.weight"),
    "one key too many": (".pth", torch_file(weights(rope=WEIGHT)), "does not have: rope"),
    "a key of lines": (".pth", torch_file(weights(**{"a\nb": WEIGHT})), r"does not have: 'a\nb'"),
    "an endless key": (".pth", torch_file({"x" * 9999: WEIGHT}), "xxx...; wanted a plain ViT"),
    "numbers as keys": (".pth", torch_file({1: WEIGHT, "1": WEIGHT}), "has no cls_token: found 1"),
    "a wrong shape": (
        ".pth",
        torch_file(weights(norm__bias=torch.ones(63))),
        "shape that does not",
    ),
    "a flat [CLS]": (".pth", torch_file(weights(cls_token=WEIGHT)), "shapes that no plain ViT has"),
    "flat registers": (
        ".pth",
        torch_file(weights(reg_token=WEIGHT)),
        "has register tokens of shape (64,)",
    ),
    "narrow registers": (
        ".pth",
        torch_file(weights(register_tokens=WEIGHT, cls_token=torch.ones(1, 1, 9))),
        "has cls_token of width 9 and pos_embed of width 64",
    ),
    "a block of a high number": (
        ".pth",
        torch_file(weights(blocks__999999999__norm1__weight=WEIGHT)),
        "has 3 blocks, but none with number 2",
    ),
    "a block of a very high number": (
        ".pth",
        torch_file({**weights(), f"blocks.{'9' * 5000}.norm1.weight": WEIGHT}),
        "has 3 blocks, but none with number 2",
    ),
    "5000 channels": (
        ".pth",
        torch_file(weights(patch_embed__proj__weight=torch.zeros(64, 5000, 8, 8))),
        "data.channels: 5000 channels are impossible",
    ),
    "two of a name": (
        ".pth",
        torch_file({**weights(), "module.norm.weight": WEIGHT}),
        "holds norm.weight twice, once as module.norm.weight",
    ),
    "itself": (".pth", lambda path: torch.save(_circle(), path), "has no weights: found model"),
    # Numbers
    "a NaN": (".pth", torch_file(weights(norm__weight=NAN)), "infinite values in norm.weight"),
    "an infinity": (
        ".pt",
        torch_file(weights(norm__bias=INFINITE)),
        "infinite values in norm.bias",
    ),
    "a NaN in safetensors": (
        ".safetensors",
        lambda path: save_file(weights(norm__weight=NAN), path),
        "infinite values in norm.weight: its training diverged or the file is damaged",
    ),
    "beyond fp32": (
        ".pth",
        torch_file(weights(norm__weight=torch.full((64,), 1e300, dtype=torch.float64))),
        "infinite values in norm.weight",
    ),
    "a NaN in the mask token": (
        ".pth",
        torch_file(weights(masked_embed=NAN)),
        "infinite values in the mask token",
    ),
    "a complex mask token": (
        ".pth",
        torch_file(weights(masked_embed=WEIGHT.to(torch.complex64))),
        "holds the mask token as complex64",
    ),
    "sparse weights": (
        ".pth",
        torch_file(weights(norm__weight=WEIGHT.to_sparse())),
        "holds norm.weight as sparse_coo; wanted dense weights",
    ),
    "weights without numbers": (
        ".pth",
        torch_file(weights(norm__weight=WEIGHT.to("meta"))),
        "holds norm.weight as strided on meta; wanted dense weights",
    ),
    **{
        f"weights of {dtype}": (
            ending,
            of_dtype(dtype),
            f"holds norm.weight as {str(dtype).removeprefix('torch.')}; wanted dense weights in",
        )
        for dtype in (
            torch.int64,
            torch.uint8,
            torch.bool,
            torch.complex64,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
        )
        for ending in (".pth", ".safetensors")
    },
    # What the file says of itself
    "no heads": (".pth", torch_file({"model": weights(), "heads": 0}), "says heads=0; wanted"),
    "negative heads": (".pth", torch_file({"model": weights(), "heads": -1}), "says heads=-1"),
    "endless heads": (".pth", torch_file({"model": weights(), "heads": 10**400}), "heads=1e+300"),
    "five heads": (".pth", torch_file({"model": weights(), "heads": 5}), "not a multiple of 5"),
    "heads of letters": (".safetensors", metadata(heads="six"), "says heads=six; wanted a number"),
    "heads of 5000 digits": (".safetensors", metadata(heads="9" * 5000), "99...; wanted a number"),
    "positions of lines": (".safetensors", metadata(positions="a\nb"), r"positions='a\nb'; wanted"),
    "endless positions": (
        ".pth",
        torch_file({"model": {}, "positions": "x" * 9999}),
        "xx...; want",
    ),
    # Safetensors that lie
    "a header of 2**62 bytes": (".safetensors", safetensors_file({}, length=2**62), "damaged"),
    "a header beyond the end": (".safetensors", safetensors_file({}, length=1000), "damaged"),
    "petabytes": (".safetensors", safetensors_file(one_tensor([2**48], 2**50)), "damaged"),
    "2**124 numbers": (
        ".safetensors",
        safetensors_file(one_tensor([2**62, 2**62], 8), bytes(8)),
        "damaged",
    ),
    "a negative shape": (
        ".safetensors",
        safetensors_file(one_tensor([-1], 4), bytes(4)),
        "damaged",
    ),
    "an unknown format": (
        ".safetensors",
        safetensors_file(one_tensor([1], 4, "Q9"), bytes(4)),
        "damaged",
    ),
    "a deep list": (".safetensors", safetensors_file(b"[" * 100_000), "damaged"),
    "a deep mapping": (".safetensors", safetensors_file(b'{"a":' * 100_000), "damaged"),
    "no UTF-8": (".safetensors", safetensors_file(b"\xff\xfe{}"), "damaged"),
    "a name twice": (
        ".safetensors",
        safetensors_file(
            b"{"
            + b",".join([b'"cls_token":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'] * 2)
            + b"}",
            bytes(4),
        ),
        "",
    ),
}


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["model"] = circle
    return circle


@pytest.mark.parametrize("what", SAYS)
def test_a_file_that_holds_something_else_is_one_line(what: str, tmp_path: Path) -> None:
    ending, make, says = SAYS[what]
    path = tmp_path / f"weights{ending}"
    make(path)
    assert says in refused(path)


@pytest.mark.parametrize("what", ["a TorchScript program", "no norm", "a NaN", "petabytes"])
def test_the_command_says_the_same_line(
    what: str, tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending, make, says = SAYS[what]
    path = tmp_path / f"weights{ending}"
    make(path)
    assert says in complaint(capsys, path, scenes)


def test_weights_in_other_formats_of_floats_are_read(tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        torch.save({k: t.to(dtype) for k, t in weights().items()}, tmp_path / "x.pth")
        backbone = attmask.load_backbone(tmp_path / "x.pth")
        assert {p.dtype for p in backbone.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    "options", ["positions=cubic", "heads=0", "heads=six", "heads=", "depth=2"]
)
def test_a_wrong_option_is_one_line(options: str, tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "x.pth")
    with pytest.raises(UserError, match=r"is not an option of a weights file; use positions=size"):
        attmask.load_backbone(f"{tmp_path / 'x.pth'}@{options}")
    assert "not a multiple of 7 heads" in refused(f"{tmp_path / 'x.pth'}@heads=7")


# Cut files


def cuts(size: int) -> list[int]:
    """Lengths at both ends of a file, and some between."""
    return sorted({*range(0, 80, 7), *range(0, size, size // 25), *(size - n for n in (1, 2, 30))})


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_a_file_that_was_cut_anywhere_is_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.safetensors" if kind == "safetensors" else "x.pth")
    if kind == "safetensors":
        save_file(weights(), path)
    else:
        write_pickle(path, weights(), kind)
    attmask.load_backbone(path)
    whole = path.read_bytes()
    for length in cuts(len(whole)):
        path.write_bytes(whole[:length])
        assert "damaged" in refused(path), length


# What is not a file of weights at all


@pytest.mark.parametrize("ending", ["", ".pth", ".safetensors"])
def test_folders_pipes_devices_and_loops_are_refused_at_once(
    ending: str, tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"folder{ending}").mkdir()
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"zero{ending}").symlink_to("/dev/zero")
    (tmp_path / f"loop{ending}").symlink_to(tmp_path / f"loop{ending}")
    for name in ("folder", "pipe", "zero", "loop", "nothing"):
        path = tmp_path / f"{name}{ending}"
        assert "is not a checkpoint; give a run" in complaint(capsys, path, scenes)
        with pytest.raises(UserError, match=r"is not a file; give|there is no file|neither a file"):
            import_backbone(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_a_file_that_may_not_be_read_is_one_line(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{ending}"
    path.touch(mode=0)
    assert "may not be read; change its permissions" in refused(path)


# Memory

LARGE: dict[str, tuple[str, Make, str]] = {
    "a compressed archive": (".pth", bomb, "is a compressed archive, which may unpack to any size"),
    "an entry that claims 4 GB": (".pth", claiming, "may unpack to any size"),
    "8 GB declared": (".pth", lambda path: declaring_more(path, is_zip=True), "damaged"),
    "8 GB declared before 1.6": (
        ".pth",
        lambda path: declaring_more(path, is_zip=False),
        "damaged",
    ),
    "a weight of one number": (
        ".pth",
        torch_file(weights(norm__weight=expanded(2**40))),
        "declares norm.weight of shape (1099511627776,) but stores less",
    ),
    "a half of one number": (
        ".pth",
        torch_file(weights(norm__weight=expanded(2**36, dtype=torch.float16))),
        "declares norm.weight of shape",
    ),
    "positions of one number": (
        ".pth",
        torch_file(weights(pos_embed=expanded(1, 2**40 + 1, 64))),
        "declares pos_embed of shape",
    ),
    "patches of one number": (
        ".pth",
        torch_file(weights(patch_embed__proj__weight=expanded(64, 3, 2**14, 2**14))),
        "declares patch_embed.proj.weight of shape",
    ),
    "petabytes": SAYS["petabytes"],
    "a header of 2**62 bytes": SAYS["a header of 2**62 bytes"],
    "a block of a high number": SAYS["a block of a high number"],
}
ROOM = 2**28


@pytest.mark.parametrize("what", LARGE)
def test_a_small_file_never_takes_much_memory(what: str, tmp_path: Path) -> None:
    ending, make, says = LARGE[what]
    path = tmp_path / f"weights{ending}"
    make(path)
    assert path.stat().st_size < 2**21
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=_load_in_little_memory, args=(path, theirs))
    process.start()
    theirs.close()
    assert ours.poll(60), "it hangs"
    line, taken = ours.recv()
    process.join()
    assert says in line
    assert taken < ROOM


def _load_in_little_memory(path: Path, answer: Any) -> None:
    """Load it where four times the room may be reserved, and tell what was used."""
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + 4 * ROOM, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = refused(path)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer.send((line, 1024 * (after - before)))
