"""The list of unreadable pictures of a run, which stops the run if there are too many."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from attmask.errors import UserError

log = logging.getLogger(__name__)

FILE = "unreadable.tsv"
_WARNED_SINGLY = 10
_TENFOLD = tuple(10**power for power in range(2, 12))
_NAMED = 3


class Quarantine:
    """The list of unreadable pictures, in the folder of a run where there is one.

    Only the main process writes it; the others tell it what they met (`take_untold`). A resumed
    run continues the list it finds. Where that list stopped the run, its pictures count as
    repaired until they are met again. One unreadable picture is always allowed, however few there
    are.
    """

    def __init__(
        self, folder: Path | None, images: int, limit: float, *, warns: bool = True
    ) -> None:
        self._warns = warns
        self.file = None if folder is None else folder / FILE
        self._images = images
        self._limit = limit
        # In the order in which they were met, so that the first ones can be named.
        self._reasons: dict[str, str] = dict(_read(self.file)) if self.file else {}
        self._repaired: set[str] = set()
        self._untold: list[str] = []
        if self._too_many:
            self._repaired = set(self._reasons)

    @property
    def count(self) -> int:
        """Unreadable pictures met so far, also before the run was resumed."""
        return len(self._reasons) - len(self._repaired)

    @property
    def _too_many(self) -> bool:
        return self.count > max(1.0, self._limit * self._images)

    def add(self, lines: Sequence[str]) -> None:
        """Add pictures, each a line of path, tab, reason; raise an error if there are too many."""
        new: dict[str, str] = {}
        again: set[str] = set()
        for line in lines:
            place, _, reason = line.partition("\t")
            # Whole paths: a run may be resumed from elsewhere, with its images called otherwise.
            place = str(Path(place).absolute())
            if place in self._repaired:
                again.add(place)
            elif place not in self._reasons:
                new.setdefault(place, reason)
        if not new and not again:
            return
        self._repaired -= again
        if self.file is not None and new:
            _append(self.file, new)
        for place, reason in new.items():
            self._reasons[place] = reason
            self._untold.append(f"{place}\t{reason}")
            self._warn(place, reason)
        self._stop_if_too_many()

    def take_over(self, other: "Quarantine") -> None:
        """Know the pictures that the list of another process, such as the main one, has."""
        self._reasons, self._repaired = dict(other._reasons), set(other._repaired)

    def take_untold(self) -> list[str]:
        """The lines added since the last call, for the lists of the other processes."""
        lines, self._untold = self._untold, []
        return lines

    def _warn(self, place: str, reason: str) -> None:
        """Of the first ten each one, then the 100th, the 1000th, ..."""
        if not self._warns:
            return
        if self.count <= _WARNED_SINGLY:
            log.warning("cannot read %s: %s; another image replaces it", place, reason)
        elif self.count in _TENFOLD:
            log.warning("%d images cannot be read so far; the list is %s", self.count, self._list())

    def _stop_if_too_many(self) -> None:
        if not self._too_many:
            return
        named = ", ".join(
            [place for place in self._reasons if place not in self._repaired][:_NAMED]
        )
        raise UserError(
            f"{self.count} of {self._images} images ({self.count / self._images:.1%}) cannot be "
            f"read, more than data.unreadable_limit={self._limit:g}: {named}"
            f"{', ...' if self.count > _NAMED else ''}; the list is {self._list()}; repair them "
            "or raise data.unreadable_limit to resume, or remove them and choose another --out"
        )

    def _list(self) -> str:
        return "not kept" if self.file is None else str(self.file)


def _read(file: Path) -> list[tuple[str, str]]:
    """Read a list of pictures; a last line that a crash cut off is removed."""
    try:
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(file, len(whole))
    except OSError:
        return []  # none yet; a folder that is no folder is for the run to tell
    lines = os.fsdecode(whole).split("\n")[:-1]
    return [(place, reason) for place, _, reason in (line.partition("\t") for line in lines)]


def _append(file: Path, new: dict[str, str]) -> None:
    """In one write, so that a crash cuts at most one line."""
    text = "".join(f"{place}\t{reason}\n" for place, reason in new.items())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab", buffering=0) as opened:
            opened.write(os.fsencode(text))
    except OSError as fault:
        raise UserError(
            f"cannot write {file}: {fault.strerror}; make room or choose another --out"
        ) from fault
