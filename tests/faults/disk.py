"""A disk that loses in a power cut whatever was not flushed: data, names, or only some of both."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.faults.shim import Call, Kind


@dataclass(eq=False)
class File:
    """What was written, and what of it is safe."""

    content: bytearray = field(default_factory=bytearray)
    safe: bytes = b""


@dataclass(eq=False)
class Folder:
    """The names that are seen, and those that are safe."""

    names: dict[str, "Node"] = field(default_factory=dict)
    safe: dict[str, "Node"] = field(default_factory=dict)


Node: TypeAlias = File | Folder


@dataclass(eq=False)
class Change:
    """Names that change at once: one that is new, one that is gone, or both in a rename."""

    parts: list[tuple[Folder, str, Node | None]]

    @property
    def removes(self) -> bool:
        """Whether something finished is removed or renamed away."""
        return any(node is None and not name.startswith(".") for _, name, node in self.parts)


@dataclass(frozen=True)
class Loss:
    """What of the things that were not flushed a power cut leaves."""

    name: str
    leaves_change: Callable[[Change], bool]
    content: Callable[[File], bytes]


def _half(file: File) -> bytes:
    return bytes(file.content[: len(file.content) // 2])


def _zeros(file: File) -> bytes:
    return bytes(len(file.content))


def _chance(seed: int) -> Loss:
    """Any part of the names and of the data."""
    chance = random.Random(seed)
    contents = (lambda file: file.safe, lambda file: bytes(file.content), _half, _zeros)
    return Loss(
        f"chance {seed}",
        lambda change: chance.random() < 0.5,
        lambda file: chance.choice(contents)(file),
    )


def losses(seeds: Iterable[int]) -> list[Loss]:
    """The worst that can be, and some in between."""
    return [
        Loss("everything", lambda change: False, lambda file: file.safe),
        Loss("nothing", lambda change: True, lambda file: bytes(file.content)),
        Loss("data", lambda change: True, lambda file: file.safe),
        Loss("data, replaced by zeros", lambda change: True, _zeros),
        Loss("all but removals", lambda change: change.removes, lambda file: file.safe),
        Loss("removals", lambda change: not change.removes, lambda file: _half(file)),
        *map(_chance, seeds),
    ]


class Disk:
    """The files below a folder, call after call."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = Folder()
        self.pending: list[Change] = []
        self._files: dict[int, File] = {}

    def apply(self, call: Call) -> None:
        """Do what the process did."""
        if call.kind == Kind.OPEN:
            self._open(call)
        elif call.kind == Kind.WRITE:
            content = self._files[call.inode].content
            content.extend(bytes(max(0, call.offset - len(content))))
            content[call.offset : call.offset + len(call.data)] = call.data
        elif call.kind == Kind.TRUNCATE:
            content = self._files[call.inode].content
            del content[call.offset :]
            content.extend(bytes(call.offset - len(content)))
        elif call.kind == Kind.FLUSH:
            self._flush(call)
        elif call.kind == Kind.RENAME:
            (old, name), (new, other) = self._place(call.first), self._place(call.second)
            self._change((old, name, None), (new, other, old.names[name]))
        elif call.kind in (Kind.UNLINK, Kind.RMDIR):
            self._change((*self._place(call.first), None))
        elif call.kind == Kind.MKDIR:
            self._change((*self._place(call.first), Folder()))
        else:
            assert call.kind == Kind.MARK, f"{call.kind.name} is not modelled"

    def after_power_cut(self, loss: Loss) -> dict[str, bytes | None]:
        """What is found when the power is back: contents by path; None for a folder."""
        names: dict[Folder, dict[str, Node]] = {}
        for change in self.pending:
            if loss.leaves_change(change):
                for folder, name, node in change.parts:
                    left = names.setdefault(folder, dict(folder.safe))
                    left.pop(name, None)
                    if node is not None:
                        left[name] = node
        found: dict[str, bytes | None] = {}

        def walk(folder: Folder, path: str) -> None:
            for name, node in names.get(folder, folder.safe).items():
                if isinstance(node, Folder):
                    found[path + name] = None
                    walk(node, f"{path}{name}/")
                else:
                    is_safe = node.safe == node.content
                    found[path + name] = node.safe if is_safe else loss.content(node)

        walk(self.top, "")
        return found

    def _open(self, call: Call) -> None:
        folder, name = self._place(call.first)
        if call.created:
            self._files[call.inode] = File()
            self._change((folder, name, self._files[call.inode]))
        elif call.offset:
            self._files[call.inode].content.clear()

    def _flush(self, call: Call) -> None:
        node = self.top if Path(call.first) == self.root else self._node(call.first)
        if isinstance(node, File):
            node.safe = bytes(node.content)
            return
        for change in self.pending:
            change.parts = [part for part in change.parts if part[0] is not node]
        self.pending = [change for change in self.pending if change.parts]
        node.safe = dict(node.names)

    def _node(self, path: str) -> Node:
        folder, name = self._place(path)
        return folder.names[name]

    def _place(self, path: str) -> tuple[Folder, str]:
        *above, name = Path(path).relative_to(self.root).parts
        folder = self.top
        for part in above:
            inner = folder.names[part]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, name

    def _change(self, *parts: tuple[Folder, str, Node | None]) -> None:
        for folder, name, node in parts:
            folder.names.pop(name, None)
            if node is not None:
                folder.names[name] = node
        self.pending.append(Change(list(parts)))


def write(found: dict[str, bytes | None], folder: Path) -> None:
    """Put what a power cut has left into a real folder."""
    folder.mkdir(parents=True)
    for name, content in sorted(found.items()):
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
