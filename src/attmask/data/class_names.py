"""The names of the classes of pixels, from the settings or from a file beside the images."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from attmask.errors import UserError
from attmask.reading import MOST_BYTES, read_regular
from attmask.wording import counted

_CLASSES_FILE = "classes.txt"
_ADE20K_FILE = "objectInfo150.txt"
_SHOWN = 5


def names_of(
    values: Sequence[int], data: Path, *, given: tuple[str, ...] = (), first: int = 0
) -> tuple[str, ...]:
    """The given names of these values, or else those in a file of `data`, or else the values."""
    if given:
        if len(given) != len(values):
            raise UserError(
                f"masks.names has {counted(len(given), 'name')}, but the train masks have "
                f"{len(values)} classes, {list_values(values)}; give one for each, or set "
                "masks.classes"
            )
        return given
    if (data / _CLASSES_FILE).exists():
        return _named_in_list(data / _CLASSES_FILE, values, first)
    if (data / _ADE20K_FILE).exists():
        named = dict(_named_in_table(_lines(data / _ADE20K_FILE)))
        if all(value in named for value in values):
            return tuple(named[value] for value in values)
    return tuple(map(str, values))


def _named_in_list(file: Path, values: Sequence[int], first: int) -> tuple[str, ...]:
    """One name a line, either of the classes that occur or of all values from the first on."""
    names = _lines(file)
    if len(names) == len(values):
        return tuple(names)
    if len(names) > max(values) - first:
        return tuple(names[value - first] for value in values)
    raise UserError(
        f"{file} has {counted(len(names), 'line')} for {len(values)} classes, "
        f"{list_values(values)}; write one name a line"
    )


def _named_in_table(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    """ADE20K's table: the value comes first and the synonyms of the name come last."""
    for line in lines:
        number, *_, synonyms = line.split("\t") if "\t" in line else ("", "")
        if number.strip().isdecimal():
            yield int(number), synonyms.replace(";", ",").split(",")[0].strip()


def _lines(file: Path) -> list[str]:
    try:
        text = read_regular(file, MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"cannot read {file} as UTF-8 text; write one name a line") from fault
    return [line.strip() for line in text.splitlines() if line.strip()]


def list_values(values: Sequence[int]) -> str:
    """The first few values, for messages."""
    shown = ", ".join(map(str, values[:_SHOWN])) + (", ..." if len(values) > _SHOWN else "")
    return f"the value{'' if len(values) == 1 else 's'} {shown}"
