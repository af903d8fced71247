"""Completion in real shells, each where it is installed."""

import os
import pty
import select
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from attmask.cli import build_parser, main
from attmask.evaluation.catalog import TASKS
from attmask.recipe import recipes

COMMANDS = set(next(a for a in build_parser()._actions if a.dest == "command").choices or ())


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    file = folder / f"attmask.{shell}"
    file.write_text(capsys.readouterr().out)
    subprocess.run([needs(shell), "-n", str(file)], check=True)
    return file


def complete_in_bash(file: Path, line: str) -> set[str]:
    words = line.split(" ")
    ask = (
        f"source {file}; COMP_WORDS=({' '.join(shlex.quote(w) for w in words)}); "
        f"COMP_CWORD={len(words) - 1}; _attmask; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return _answers(["bash", "--norc", "-c", ask], file.parent)


def complete_in_fish(file: Path, line: str) -> set[str]:
    ask = f"source {file}; complete -C {shlex.quote(line)}"
    return {answer.split("\t")[0] for answer in _answers(["fish", "-N", "-c", ask], file.parent)}


def _answers(command: list[str], folder: Path) -> set[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=30, cwd=folder
    )
    return set(done.stdout.split("\n")) - {""}


@pytest.fixture(params=["bash", "fish"])
def shell(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    needs(name)
    return name


def completed(shell: str, file: Path, line: str) -> set[str]:
    return (complete_in_bash if shell == "bash" else complete_in_fish)(file, line)


def test_commands_options_choices_recipes_and_tasks_are_completed(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = script(shell, tmp_path, capsys)
    (tmp_path / "knn-images").mkdir()
    assert completed(shell, file, "attmask ") >= COMMANDS
    assert completed(shell, file, "attmask pre") >= {"pretrain", "predict"}
    assert completed(shell, file, "attmask pretrain images --ou") == {"--out"}
    assert completed(shell, file, "attmask pretrain images --recipe ") == set(recipes())
    assert completed(shell, file, "attmask pretrain images --recipe tin") == {"tiny"}
    assert completed(shell, file, "attmask evaluate run --precision f") == {"fp16", "fp32"}
    tasks = {task.name for task in TASKS if task.name.startswith("knn")}
    assert completed(shell, file, "attmask evaluate run knn") in (
        tasks | {"knn-images"},  # a folder may stand where a task may
        tasks | {"knn-images/"},
    )
    assert "segment-own" in completed(shell, file, "attmask finetune run images --recipe seg")
    assert completed(shell, file, "attmask completion z") == {"zsh"}
    assert not completed(shell, file, "attmask pretrain images --nothing")


def test_bash_completes_a_value_behind_an_equals_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = script("bash", tmp_path, capsys)
    assert complete_in_bash(file, "attmask pretrain --recipe = tin") == {"tiny"}
    assert complete_in_bash(file, "attmask pretrain --recipe =") == set(recipes())


def test_zsh_completes_what_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = script("zsh", tmp_path, capsys)
    start = f"autoload -U compinit; compinit -u -d {tmp_path}/dump; source {file}\n"
    typed = {
        "attmask pretr\t": "attmask pretrain ",
        "attmask pretrain --recipe tin\t": "--recipe tiny ",
        "attmask evaluate --prec\t": "evaluate --precision ",
        "attmask config ibot-high-1\t": "ibot-high-10",
    }
    for keys, wanted in typed.items():
        seen = _type([needs("zsh"), "-f", "-i"], [start, keys], wanted, tmp_path)
        assert wanted in seen


def _type(command: list[str], lines: list[str], wanted: str, folder: Path) -> str:
    """What a terminal shows once lines were typed, up to the wanted text."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover
        os.chdir(folder)
        os.execvpe(command[0], command, {**os.environ, "TERM": "dumb", "PS1": "> "})
    seen = ""
    try:
        for line in lines:
            time.sleep(0.5)
            os.write(terminal, line.encode())
        until = time.monotonic() + 15
        while wanted not in seen and time.monotonic() < until:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 4096).decode(errors="replace").replace("\a", "")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return seen


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["completion", "csh"])
    assert capsys.readouterr().err == (
        "attmask: there is no shell csh; did you mean zsh?; see attmask completion --help\n"
    )
