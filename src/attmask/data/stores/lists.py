"""A list of picture files (text, csv, tsv or parquet), with labels and splits if it has any."""

import csv
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from attmask.data.stores.index import Index, Part, Stamp
from attmask.data.stores.labels import LabelsBuilder, match_classes
from attmask.data.stores.names import NamesBuilder
from attmask.data.stores.parquet import open_parquet
from attmask.data.stores.splits import split_of, with_train
from attmask.errors import UserError

ENDINGS = (".txt", ".csv", ".tsv", ".parquet")
PATH_COLUMNS = ("path", "file", "filename", "image")
LABEL_COLUMNS = ("label", "class", "target")
_ENDS_IN_NUMBER = re.compile(r"\S\s* -?\d+$")


class _Row(NamedTuple):
    """One entry of a list: the line it stands in, and what stands there."""

    line: int
    path: str
    label: str
    split: str


class _PartBuilder:
    """The entries of one split."""

    def __init__(self, scratch: Path | None) -> None:
        self.names, self.labels = NamesBuilder(scratch), LabelsBuilder(scratch)
        self.without_label = 0  # the first line that has none

    def add(self, row: _Row) -> None:
        self.names.add(os.fsencode(row.path))
        if row.label:
            self.labels.add(row.label)
        elif not self.without_label:
            self.without_label = row.line

    def build(self, file: Path) -> Part:
        if not len(self.labels):
            return Part("", self.names.build())
        if self.without_label:
            raise UserError(
                f"line {self.without_label} of {file} has no label, others have one; "
                f"give every line a label, or none"
            )
        return Part("", self.names.build(), *self.labels.build())


def scan_list(file: Path, scratch: Path | None = None) -> Index:
    """Read a list of files; relative paths are below the list's own folder.

    The files themselves are not looked at: a missing one is found when it is read. Long columns
    are collected on the disk of `scratch`.
    """
    began_ns, stamp = time.time_ns(), Stamp.of(file)
    builders: dict[str, _PartBuilder] = {}
    try:
        for row in _rows(file):
            if row.split not in builders:
                builders[row.split] = _PartBuilder(scratch)
            builders[row.split].add(row)
    except UnicodeDecodeError as fault:
        raise UserError(
            f"{file} is not UTF-8 text (byte {fault.start}: {fault.reason}); save it as UTF-8"
        ) from fault
    except csv.Error as fault:
        raise UserError(f"{file} cannot be read as a table: {fault}; save it again") from fault
    if not builders:
        raise UserError(f"{file} lists no images; give one path per line")
    splits = with_train(builders, file)
    parts = match_classes({name: split.build(file) for name, split in splits.items()}, file)
    return Index("files", file, parts, {"": stamp}, began_ns)


def _rows(file: Path) -> Iterator[_Row]:
    ending = file.suffix.lower()
    if ending == ".txt":
        return _text_rows(file)
    if ending == ".parquet":
        return _parquet_rows(file)
    return _table_rows(file, "\t" if ending == ".tsv" else ",")


def _text_rows(file: Path) -> Iterator[_Row]:
    """Parse one path per line; a label follows a tab, or the last space if all are numbers."""
    has_tab, numbered = False, True
    for _, line in _lines(file):
        has_tab |= "\t" in line
        numbered &= _ENDS_IN_NUMBER.search(line) is not None
    separator = "\t" if has_tab else " " if numbered else None
    for number, line in _lines(file):
        path, found, label = line.rpartition(separator) if separator else (line, "", "")
        if not found:  # rpartition leaves a line without a separator at the end
            path, label = line, ""
        yield _Row(number, path.strip(), label.strip(), "train")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    with file.open(encoding="utf-8-sig") as opened:
        for number, line in enumerate(opened, start=1):
            if (line := line.strip()) and not line.startswith("#"):
                yield number, line


def _table_rows(file: Path, delimiter: str) -> Iterator[_Row]:
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.reader(opened, delimiter=delimiter)
        header = next(reader, [])
        path, label, split = _columns(file, header)
        last = max(i for i in (path, label, split) if i is not None)
        for cells in reader:
            if not any(cells):
                continue
            line = reader.line_num
            if len(cells) <= last:
                raise UserError(
                    f"line {line} of {file} has {len(cells)} columns, wanted {len(header)}; "
                    f"correct that line"
                )
            yield _row(
                file,
                line,
                cells[path],
                "" if label is None else cells[label],
                None if split is None else cells[split],
            )


def _parquet_rows(file: Path) -> Iterator[_Row]:
    table = open_parquet(file)
    path, label, split = _columns(file, table.schema_arrow.names)
    wanted = [table.schema_arrow.names[i] for i in (path, label, split) if i is not None]
    line = 0
    for batch in table.iter_batches(columns=wanted):
        columns = {name: batch.column(name).to_pylist() for name in wanted}
        names = columns[wanted[0]]
        labels = columns[wanted[1]] if label is not None else [None] * len(names)
        splits: Iterable[object] = columns[wanted[-1]] if split is not None else [None] * len(names)
        for name, what, which in zip(names, labels, splits, strict=True):
            line += 1
            named = "" if name is None else str(name)
            yield _row(
                file,
                line,
                named,
                "" if what is None else str(what),
                None if split is None else str(which),
            )


def _columns(file: Path, header: Sequence[str]) -> tuple[int, int | None, int | None]:
    """The columns of path, label and split; only the path is required."""
    came = [name.strip().lower() for name in header]

    def find(known: Sequence[str]) -> int | None:
        return next((came.index(name) for name in known if name in came), None)

    path = find(PATH_COLUMNS)
    if path is None:
        columns = ", ".join(name.strip() for name in header) or "none"
        raise UserError(
            f"{file} has the columns {columns}; wanted one of {', '.join(PATH_COLUMNS)}: "
            f"name the column of paths so in its first line"
        )
    return path, find(LABEL_COLUMNS), find(("split",))


def _row(file: Path, line: int, path: str, label: str, split: str | None) -> _Row:
    path = path.strip()
    if not path:
        raise UserError(f"line {line} of {file} has no path; give one or remove the line")
    part = "train" if split is None else split_of(split)
    if part is None:
        raise UserError(f"line {line} of {file} has the split {split!r}; wanted train, val or test")
    return _Row(line, path, label.strip(), part)
