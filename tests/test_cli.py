"""The command line parses and prints: help, version, recipes, settings, and where a run goes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attmask import __version__
from attmask.cli import main, parse
from attmask.kinds import KINDS
from attmask.overrides import describe
from attmask.recipe import load_recipe, read_recipe, recipe_for, recipes
from attmask.run_config import override
from tests.runs import COMMAND, SHORT, environment, finish, start


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    return shown.out


def test_version_and_help_come_from_a_real_process_without_waiting_for_pytorch() -> None:
    status, out, err = finish(start("--version"))
    assert (status, out, err) == (0, f"attmask {__version__}\n", "")
    light = (
        "import sys\n"
        "from attmask.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", light],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    for command in ("demo", "pretrain", "inspect", "recipes", "config"):
        assert command in process.stdout


@pytest.mark.parametrize("command", ["demo", "pretrain", "config"])
def test_each_commands_help_says_that_it_takes_overrides(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    text = output(capsys, command, "--help")
    assert f"attmask {command}" in text
    assert "[key=value ...]" in text
    assert "see attmask config NAME" in " ".join(text.split())


def test_recipes_lists_every_recipe_with_its_summary_and_time_factor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = output(capsys, "recipes").splitlines()
    heads = [number for number, line in enumerate(lines) if not line.startswith("  ")]
    assert [lines[number] for number in heads] == [
        f"attmask {kind.COMMAND}, {kind.ABOUT}:" for kind in KINDS
    ]
    for kind, head, end in zip(KINDS, heads, [*heads[1:], len(lines)], strict=True):
        listed = lines[head + 1 : end]
        assert [line.split()[0] for line in listed] == recipes(kind) != []
        for line, name in zip(listed, recipes(kind), strict=True):
            about = recipe_for(kind, name).about
            assert about.summary in line
            assert (f"γ {about.time_factor or 0:.2f}" in line) == bool(about.time_factor)
    for name, figure in (
        ("ibot-high", "knn 49.7"),
        ("cifar10", "accuracy 98.8"),
        ("segment-ade20k", "mIoU 45.3"),
        ("detect-coco", "box AP 48.8, mask AP 42.0"),
    ):
        assert any(line.startswith(f"  {name} ") and figure in line for line in lines)


@pytest.mark.parametrize("name", ["ibot-high", "tiny"])
def test_config_prints_every_setting_as_an_override_with_meaning_and_the_papers_value(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    lines = output(capsys, "config", name, "seed=5").splitlines()
    config = override(load_recipe(name), ["seed=5"])
    for line, wanted in zip(lines, describe(config), strict=False):
        assert line.startswith(f"{wanted.key}={wanted.value} ")
        assert wanted.meaning in line
        assert (f"(paper: {wanted.paper})" in line) == bool(wanted.paper)
    rest = "\n".join(lines[len(describe(config)) :])
    assert ("masking.layer=6" in rest) == (name == "ibot-high")


def test_every_ablation_is_shown_with_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "config", "ibot-high")
    for ablation in read_recipe("ibot-high").about.ablations:
        assert f"  {' '.join(ablation.overrides)} " in text
        assert ablation.note in text


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    process = subprocess.Popen(
        [*COMMAND, "config", "ibot-high"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    assert err == b""


def test_overrides_may_stand_between_and_after_options() -> None:
    parsed = parse(["pretrain", "data", "seed=1", "--recipe", "tiny", "masking.ratio=[0.1, 0.2]"])
    assert parsed.overrides == ["seed=1", "masking.ratio=[0.1, 0.2]"]
    assert parsed.data == Path("data")


def test_overrides_may_stand_before_the_data_and_beside_options_with_an_equals_sign() -> None:
    parsed = parse(["pretrain", "seed=3", "small"])
    assert (parsed.data, parsed.overrides) == (Path("small"), ["seed=3"])
    parsed = parse(["evaluate", "run", "knn.ks=[5]", "knn", "--data", "knn=images", "--seed=2"])
    assert (parsed.words, parsed.overrides) == (["run", "knn"], ["knn.ks=[5]"])
    assert (parsed.data, parsed.seed) == (["knn=images"], 2)


def test_a_path_that_exists_is_no_override(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3").mkdir()
    parsed = parse(["pretrain", "lr=3", "seed=1"])
    assert (parsed.data, parsed.overrides) == (Path("lr=3"), ["seed=1"])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_the_letters_gets_question_marks(encoding: str) -> None:
    process = subprocess.run(
        [*COMMAND, "recipes"],
        env={**environment(), "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert process.stderr == b""
    assert b"\n  tiny                    ? 2.50 " in process.stdout


@pytest.fixture
def birds(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images in the directory that commands are run in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "birds").mkdir()
    for part in scenes.iterdir():
        (tmp_path / "birds" / part.name).symlink_to(part)
    return tmp_path / "birds"


def test_without_out_a_run_goes_to_runs_by_data_recipe_and_changed_settings(
    birds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", "birds", "--recipe", "tiny", "schedule.epochs=1", *SHORT]
    assert main(words) == 0
    (run,) = Path("runs").iterdir()
    assert run == Path("runs/birds-tiny+epochs-1+batch_size-8"), "workers and threads do not count"
    assert capsys.readouterr().out == (
        f"attmask: done, 6 steps; the backbone and all metrics are in {run}\n"
    )
    kept = {"config.yaml", "run.json", "heartbeat.json", "events.jsonl", "checkpoints"}
    kept |= {"metrics.jsonl", "metrics.json", "baselines.json"}
    # No index where the images are so new that they may still be changing.
    assert {path.name for path in run.iterdir()} - {"index.npz"} == kept


def test_resume_needs_the_run_alone_and_says_when_it_is_finished(
    birds: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["pretrain", "birds", "--recipe", "tiny", "--out", "run", *SHORT]
    process = start(*words, "schedule.epochs=40")
    try:
        deadline = time.monotonic() + 90
        while not Path("run/metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
    finally:
        status, _, _ = finish(process)
    assert status == 128 + signal.SIGTERM
    config = Path("run/config.yaml")
    config.write_text(config.read_text().replace("epochs: 40", "epochs: 1"))  # not so long
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["resume", "../run", "train.workers=1"]) == 0
    assert capsys.readouterr().out.startswith("attmask: done, 6 steps; ")
    assert main(["resume", "../run"]) == 0
    assert capsys.readouterr().out == "attmask: ../run is already finished, 6 steps\n"
    assert main(["resume", "../run", "seed=5"]) == 1
    assert "../run holds a run with other settings (seed: 0 in the run, 5 given); choose" in (
        capsys.readouterr().err
    )
    birds.rename(birds.with_name("moved"))
    assert main(["resume", "../run"]) == 1
    line = capsys.readouterr().err
    assert "are no longer in" in line
    assert "use attmask resume ../run --data NEW" in line
    assert main(["resume", "../run", "--data", "../moved"]) == 0
    assert main(["resume", "../run"]) == 0, "it keeps the new place"
    capsys.readouterr()
    assert main(["resume", "nowhere"]) == 1
    assert capsys.readouterr().err.startswith("attmask: nowhere holds no run; give a folder")
