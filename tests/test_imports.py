"""The import table of docs/architecture.md, read from there and enforced on the source."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "attmask"
HEADER = "| module | may import from attmask |"


@dataclass(frozen=True)
class Row:
    """One line of the table: who, what they may import, and what is excepted."""

    modules: tuple[str, ...]
    allowed: tuple[str, ...]
    excepted: tuple[str, ...]


def _matches(module: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def read_table(text: str) -> list[Row]:
    _, found, below = text.partition(HEADER)
    assert found, f"docs/architecture.md has no table that starts with {HEADER!r}"
    rows = []
    for line in below.splitlines()[2:]:
        if not line.startswith("|"):
            break
        left, right = line.strip("|").split("|")[:2]
        allowed, _, excepted = right.partition(" but ")
        cells = (re.findall(r"`([^`]+)`", cell) for cell in (left, allowed, excepted))
        rows.append(Row(*(tuple(cell) for cell in cells)))
        assert rows[-1].allowed or "nothing" in allowed, f"cannot read the row {line!r}"
    return rows


def may_import(table: list[Row], module: str, target: str) -> bool:
    """The row `*` names the ground floor: open to all, and importing nothing itself."""
    ground = next((row.allowed for row in table if row.modules == ("*",)), ())
    if module in ground:
        return False
    rows = [row for row in table if _matches(module, row.modules)]
    return any(_matches(target, row.allowed) for row in rows) and not any(
        _matches(target, row.excepted) for row in rows
    )


def modules(package: Path) -> dict[str, Path]:
    """`models/backbone` and the like; a folder's own file is `models/__init__`."""
    return {
        path.relative_to(package).with_suffix("").as_posix(): path
        for path in sorted(package.rglob("*.py"))
    }


def _resolve(dotted: str, known: dict[str, Path]) -> str | None:
    parts = dotted.split(".")[1:]
    candidates = ["/".join(parts), "/".join([*parts, "__init__"])]
    return next((name for name in candidates if name in known), None)


def _imported(tree: ast.AST, module: str, known: dict[str, Path]) -> Iterator[str]:
    parents = [PACKAGE, *module.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from attmask.data import views` imports a module, `import draw` a name in it.
            inner = [f"{base}.{alias.name}" for alias in node.names]
            dotted = [name if _resolve(name, known) else base for name in inner]
        else:
            continue
        for name in dotted:
            if name.split(".")[0] == PACKAGE:
                yield _resolve(name, known) or name


def import_graph(package: Path) -> dict[str, set[str]]:
    known = modules(package)
    return {
        module: set(_imported(ast.parse(path.read_text()), module, known))
        for module, path in known.items()
    }


def violations(table: list[Row], graph: dict[str, set[str]]) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, targets in graph.items()
        for target in sorted(targets)
        if not may_import(table, module, target)
    ]


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return read_table((ROOT / "docs" / "architecture.md").read_text())


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return import_graph(ROOT / "src" / PACKAGE)


def test_every_import_is_allowed_by_the_table(table: list[Row], graph: dict[str, set[str]]) -> None:
    assert violations(table, graph) == []


def test_every_module_has_a_row(table: list[Row], graph: dict[str, set[str]]) -> None:
    named = [row for row in table if row.modules != ("*",)]
    lost = [module for module in graph if not any(_matches(module, row.modules) for row in named)]
    assert lost == [], "give these a row in the table of docs/architecture.md"


def test_no_module_imports_itself_in_a_circle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_table_says_what_the_design_rests_on(table: list[Row]) -> None:
    assert may_import(table, "masking", "randomness")
    assert may_import(table, "data/loader", "distributed")
    assert may_import(table, "cli", "train")
    assert not may_import(table, "masking", "models/backbone")
    assert not may_import(table, "data/views", "distributed")
    assert not may_import(table, "models/heads", "data/views")
    assert not may_import(table, "evaluation/knn", "train")
    assert not may_import(table, "evaluation/knn", "distill")
    assert not may_import(table, "checkpoint", "models/backbone")
    assert not may_import(table, "__init__", "cli")
    assert not may_import(table, "settings", "errors")


@pytest.mark.parametrize(
    "line",
    [
        "import attmask.train",
        "from attmask import train",
        "from attmask.train import pretrain",
        "from .. import train",
        "from ..train import pretrain",
        "def f():\n    from attmask.train import pretrain",
    ],
)
def test_a_forbidden_import_is_found_in_every_spelling(
    line: str, table: list[Row], tmp_path: Path
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "__init__.py").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "models" / "heads.py").write_text(f"import torch\n{line}\n")
    assert violations(table, import_graph(tmp_path)) == ["models/heads imports train"]


def test_own_folder_and_ground_floor_are_free(table: list[Row], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("errors.py", "models/__init__.py", "models/backbone.py"):
        (tmp_path / name).touch()
    (tmp_path / "models" / "heads.py").write_text(
        "from attmask.errors import UserError\nfrom .backbone import Tokens\n"
    )
    assert violations(table, import_graph(tmp_path)) == []


def test_a_reader_finds_every_module_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = text[text.index("## The modules") : text.index("## Who may import whom")]
    names = set(re.findall(r"`([\w/]+)`", listed))
    folders = tuple(name for name in names if name.endswith("/"))
    known = [
        name
        for name in modules(ROOT / "src" / PACKAGE)
        if not name.endswith("__init__") and name != "__main__" and not name.startswith(folders)
    ]
    # Those of one folder are named in full once, then below it: `evaluation/a`, `features/b`.
    missing = [name for name in known if not {name, name.removeprefix("evaluation/")} & names]
    assert missing == []
