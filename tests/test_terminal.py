"""Bars stay on one line at any width, and what is logged meanwhile stands above them, whole."""

import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from rich.console import Console

from attmask.terminal import Bar, Screen, duration
from tests.runs import COMMAND, SHORT, environment


class Sheet:
    """As much of a terminal as is needed to see what a person sees."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = [""]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        for control, letter in re.findall(r"(\x1b\[[\d;?]*[A-Za-z])|([^\x1b])", text):
            if letter:
                self._put(letter)
            elif control.endswith("A"):
                self.row = max(0, self.row - int(control[2:-1] or 1))
            elif control.endswith("K"):
                self.lines[self.row] = ""

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self._down()
        else:
            if self.column == self.width:
                self._down()
                self.column = 0
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")


def console(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width)


def seen(shown: Console) -> list[str]:
    assert isinstance(shown.file, io.StringIO)
    sheet = Sheet(shown.width)
    sheet.write(shown.file.getvalue().replace("\n", "\r\n"))
    return [line.rstrip() for line in sheet.lines if line.strip()]


def test_the_longest_form_that_fits_is_shown_with_a_bar_in_the_rest() -> None:
    for width, wanted in ((30, "5/10 some words "), (10, "5/10 words"), (4, "5/10"), (3, "5/1")):
        shown = console(width)
        bar = Bar(10)
        with Screen(shown).show(bar, stays=True):
            bar.update(5, ("5/10 some words", "5/10 words", "5/10"))
        (line,) = seen(shown)
        assert line.startswith(wanted.rstrip())
        assert ("\u2501" in line) == (width == 30)


def test_two_bars_and_a_log_do_not_tear_each_other() -> None:
    shown, log = console(60), logging.getLogger("attmask.test")
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        screen, outer, inner = Screen(shown), Bar(10), Bar(5)
        with screen.show(outer, stays=True):
            outer.update(3, ("3/10 outer",))
            with screen.show(inner):
                inner.update(1, ("1/5 inner",))
                log.warning("a warning")
            log.warning("another")
            outer.update(4, ("4/10 outer",))
        before = handler.stream
    finally:
        logging.getLogger().removeHandler(handler)
    first, second, last = seen(shown)
    assert (first, second) == ("a warning", "another")
    assert last.startswith("4/10 outer ")
    assert "rich" not in type(before).__module__, "the log has its own stream again"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00:00"), (3723.0, "1:02:03")])
def test_a_duration_is_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def run_on_a_terminal(width: int, *words: str | Path) -> list[str]:
    """The lines a person sees at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    known = {k: v for k, v in environment().items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)],
        env={**known, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 65536):
            said += more
    except OSError:  # the end of a terminal
        pass
    finally:
        os.close(ours)
        process.wait(timeout=60)
    assert process.returncode == 0, said.decode()
    sheet = Sheet(width)
    sheet.write(said.decode())
    return [line.rstrip() for line in sheet.lines if line.strip()]


@pytest.mark.parametrize("width", [80, 40])
def test_a_run_on_a_real_terminal_ends_with_whole_lines(
    scenes: Path, tmp_path: Path, width: int
) -> None:
    words: list[str | Path] = [
        "pretrain",
        scenes,
        "--recipe",
        "tiny",
        "--out",
        tmp_path / "run",
        *SHORT,
    ]
    lines = run_on_a_terminal(width, *words, "schedule.epochs=1", "monitor.log_every_steps=1")
    bars = [line for line in lines if re.match(r"\d+/\d+ ", line)]
    assert len(bars) == 1, lines
    assert re.match(r"6/6 +loss \d+\.\d+ +[\d.]+ img/s +0:00:00", bars[0])
    told = " ".join(lines)
    for epoch in (0, 1):
        assert re.search(rf"epoch {epoch}: knn\.top1 [\d.]+ %, knn\.top5 [\d.]+ %, ", told), told
