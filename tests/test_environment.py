"""What a bug report says: attmask --version --verbose, as a real process."""

import platform
from importlib.metadata import version

import pytest
import torch

from attmask import __version__
from attmask.cli import main
from tests.runs import finish, start


def test_version_and_verbose_tell_what_is_installed_and_what_it_runs_on() -> None:
    status, out, err = finish(start("--version", "--verbose"))
    assert (status, err) == (0, "")
    rows = {line[:24].strip(): line[24:] for line in out.splitlines()}
    assert next(iter(rows)) == "attmask"
    assert rows["attmask"] == __version__
    assert rows["python"] == platform.python_version()
    assert rows["torch"].startswith(f"{torch.__version__}, built for ")
    for name in ("torchvision", "timm", "numpy", "pillow", "scikit-learn", "pydantic"):
        assert rows[name] == version(name)
    assert rows["precision auto"] in ("fp32", "bf16")
    assert rows["OMP_NUM_THREADS"] == "1"
    assert {"system", "processor", "instructions", "memory", "device auto"} <= set(rows)
    assert any(name.startswith("accelerator") for name in rows)
    assert all(rows.values())


def test_the_order_of_the_two_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--verbose", "--version"]) == 0
    assert capsys.readouterr().out.startswith(f"attmask                 {__version__}\n")


def test_verbose_alone_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["--verbose", "recipes"])
    assert capsys.readouterr().err == (
        "attmask: --verbose belongs to --version; use attmask --version --verbose; "
        "see attmask --help\n"
    )
