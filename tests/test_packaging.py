"""Wheel and sdist: what is in them, and that they work in an empty environment elsewhere."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from attmask import __version__
from attmask.kinds import KINDS
from attmask.recipe import recipes
from tests.runs import SHORT

pytest.importorskip("build")
pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[1]
NOT_FOR_USERS = {"all", "bench", "dev", "examples"}


class Built(NamedTuple):
    wheel: Path
    sdist: Path


def run(*words: str | Path, folder: Path) -> str:
    """The output of a command outside of the checkout, with nothing of it on the path."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of this checkout, and the wheel that is built from the sdist alone."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, folder=out)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, sdist)


def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def sdist_names(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        members = [member.name for member in archive.getmembers() if member.isfile()]
    return {name.partition("/")[2] for name in members}


def tracked(*folders: str) -> set[str]:
    """The files of this checkout that are under version control."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", *folders], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Built) -> None:
    names = wheel_names(built.wheel)
    package = {name for name in names if not name.startswith(f"attmask-{__version__}.dist-info/")}
    assert package == {name.removeprefix("src/") for name in tracked("src")}
    for name in ("py.typed", "html_report/assets/page.html", "recipes/tiny.yaml"):
        assert f"attmask/{name}" in names
    shelved = {Path(name).stem for name in names if name.endswith(".yaml")}
    assert shelved == {name for kind in KINDS for name in recipes(kind)}


def test_the_sdist_has_all_that_its_tests_read(built: Built) -> None:
    names = sdist_names(built.sdist)
    folders = ("src", "tests", "docs", "examples", "benchmarks", "scripts")
    assert tracked(*folders) <= names
    assert {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff"} <= names
    assert {"pyproject.toml", "Makefile", "constraints.txt"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def metadata(wheel: Path) -> tuple[set[str], list[Requirement], list[str]]:
    """The extras, the requirements and the classifiers of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"attmask-{__version__}.dist-info/METADATA").decode()
    fields = Parser().parsestr(text)
    required = [Requirement(line) for line in fields.get_all("Requires-Dist", [])]
    return set(fields.get_all("Provides-Extra", [])), required, fields.get_all("Classifier", [])


def test_the_extra_all_is_every_extra_for_users(built: Built) -> None:
    extras, required, _ = metadata(built.wheel)

    def packages(extra: str) -> set[str]:
        marked = [one for one in required if one.marker and one.marker.evaluate({"extra": extra})]
        return {str(one.name) for one in marked}

    assert packages("all") == {name for extra in extras - NOT_FOR_USERS for name in packages(extra)}


def test_every_extra_that_an_error_names_exists(built: Built) -> None:
    extras, _, _ = metadata(built.wheel)
    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"attmask\[(\w+)\]", sources))
    assert named
    assert named <= extras


def test_only_python_versions_that_tests_ran_on_are_called_tested(built: Built) -> None:
    _, _, classifiers = metadata(built.wheel)
    prefix = "Programming Language :: Python :: 3."
    claimed = {one.removeprefix(prefix) for one in classifiers if one.startswith(prefix)}
    assert claimed == {"11"}, "add a version here and there once the whole suite ran on it"


@dataclass(frozen=True)
class Installed:
    """An environment with attmask alone; libraries are found where the tests have them."""

    folder: Path

    def program(self, name: str) -> Path:
        return self.folder / "venv" / "bin" / name

    def run(self, name: str, *words: str | Path) -> str:
        return run(self.program(name), *words, folder=self.folder)


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(
    request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """An environment of its own, in which PyTorch and the other libraries are not installed again.

    A path file names the folder of the libraries. Path files in that folder, such as that of an
    editable installation, are not read from there, so the checkout stays out of reach.
    """
    folder = tmp_path_factory.mktemp(f"from {request.param}")
    venv.create(folder / "venv", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python")]
    quiet = ["-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    package = built.wheel
    if request.param == "sdist":
        own = [sys.executable, "-m", "pip", "wheel", *quiet, "--no-build-isolation"]
        run(*own, "-w", folder / "made", built.sdist, folder=folder)
        (package,) = (folder / "made").glob("*.whl")
    run(*pip, "install", *quiet, package, folder=folder)
    (library,) = (folder / "venv").glob("lib/python*/site-packages")
    (library / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return Installed(folder)


@pytest.mark.slow
def test_an_installed_package_is_not_the_checkout_and_has_what_it_requires(
    installed: Installed, built: Built
) -> None:
    found = installed.run(
        "python", "-c", "import attmask, sys; print(attmask.__file__, *sys.path, sep='\\n')"
    ).splitlines()
    assert Path(found[0]).is_relative_to(installed.folder)
    assert not [path for path in found if path.startswith((f"{ROOT}/src", f"{ROOT}/tests"))]
    assert str(ROOT) not in found
    _, required, _ = metadata(built.wheel)
    needed = [str(one.name) for one in required if one.marker is None]
    ask = f"from importlib.metadata import version\nfor n in {needed}: print(version(n))"
    versions = installed.run("python", "-c", ask).splitlines()
    for one, version in zip((r for r in required if r.marker is None), versions, strict=True):
        assert version in SpecifierSet(str(one.specifier))


@pytest.mark.slow
def test_the_commands_of_an_installed_package_work(installed: Installed) -> None:
    assert installed.run("attmask", "--version") == f"attmask {__version__}\n"
    assert "torch " in installed.run("attmask", "--version", "--verbose")
    assert "  tiny " in installed.run("attmask", "recipes")
    assert "masking.strategy=high" in installed.run("attmask", "config", "ibot-high")
    assert "knn " in installed.run("attmask", "tasks")
    assert "complete -o default" in installed.run("attmask", "completion", "bash")


@pytest.mark.slow
def test_an_installed_package_pretrains_evaluates_and_reports(
    installed: Installed, scenes: Path
) -> None:
    settings = [*SHORT, "schedule.epochs=1"]
    command = ["pretrain", str(scenes), "--recipe", "tiny", "--out", "run", *settings]
    assert "done, 6 steps" in installed.run("attmask", *command)
    assert "top-1" in installed.run("attmask", "evaluate", "run", "knn", "--data", scenes)
    installed.run("attmask", "report", "run", "--out", "report.html")
    assert (installed.folder / "report.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.slow
@pytest.mark.parametrize("installed", ["wheel"], indirect=True)  # once; it takes a minute
def test_the_demo_of_an_installed_package_works(installed: Installed) -> None:
    said = installed.run("attmask", "demo", "schedule.epochs=1", "train.workers=0")
    assert "k-NN accuracy on held-out images" in said
    assert (installed.folder / "demo" / "run" / "report.html").is_file()


@pytest.mark.slow
def test_the_tests_of_the_sdist_run_from_it(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    some = ("test_masking.py", "test_docs.py", "test_imports.py", "test_losses.py", "attention")
    tests = [source / "tests" / name for name in some]
    said = run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests, folder=source)
    assert re.search(r"\d+ passed", said)
