"""Recipes: named configs in YAML, one for each row of the paper, with their source."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.overrides import checked, parse_yaml, unknown
from attmask.run_config import AnyRun, RunConfig
from attmask.settings import Config, setting

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class PaperRow(Config):
    """Where the paper reports a recipe, and the figures it gives."""

    row: str = setting("", "table and row")
    figures: dict[str, float] = setting({}, "measure -> per cent")


class Ablation(Config):
    """A variant of a recipe, as overrides."""

    overrides: tuple[str, ...] = setting((), "key=value, ...")
    note: str = setting("", "what is varied, and where the paper reports it")
    result: dict[str, float] = setting({}, "measure -> per cent in the paper")


class About(Config):
    """The description of a recipe."""

    summary: str = setting("", "one line")
    paper: PaperRow | None = setting(None, "the row of the paper, if it is one")
    time_factor: float | None = setting(
        None, "training time in units of one 224-pixel view: 2 + L (local size / global size)²"
    )
    command: str = setting("", "how to run it")
    ablations: tuple[Ablation, ...] = setting((), "variants in the paper")


@dataclass(frozen=True)
class Recipe(Generic[AnyRun]):
    """A named config with its description."""

    name: str
    about: About
    config: AnyRun


def recipes(kind: type[RunConfig] = PretrainConfig) -> list[str]:
    """The names of the recipes for a kind of training that come with the package."""
    files = _shelf(kind).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_recipe(name_or_path: str | Path) -> PretrainConfig:
    """The config of a pre-training recipe, by its name or the path of a YAML file."""
    return read_recipe(name_or_path).config


def read_recipe(name_or_path: str | Path) -> Recipe[PretrainConfig]:
    """A pre-training recipe with its description, by its name or the path of a YAML file."""
    return recipe_for(PretrainConfig, name_or_path)


def recipe_for(kind: type[AnyRun], name_or_path: str | Path) -> Recipe[AnyRun]:
    """A recipe for a kind of training, by its name or the path of a YAML file."""
    values = _read(kind, str(name_or_path), Path(), ())
    about = checked(About, values.pop("about", {}), f"recipe {name_or_path}, about: ")
    config = checked(kind, values, f"recipe {name_or_path}: ")
    return Recipe(Path(name_or_path).stem, about, config)


def recipe_among(kinds: Sequence[type[RunConfig]], name_or_path: str | Path) -> Recipe[RunConfig]:
    """A recipe for one of several kinds of training: a name decides, or the `kind` in a file."""
    name = str(name_or_path)
    known = [each for kind in kinds for each in recipes(kind)]
    if not _is_path(name) and name not in known:
        raise UserError(_other_kind(kinds[0], name) or unknown("recipe", name, known))
    return recipe_for(_kind_of(kinds, name, Path(), ()), name_or_path)


def _kind_of(
    kinds: Sequence[type[RunConfig]], name: str, folder: Path, seen: tuple[str, ...]
) -> type[RunConfig]:
    """The kind of a recipe, which may state it or inherit it; the first where nothing says it."""
    if not _is_path(name):
        return next((kind for kind in kinds if name in recipes(kind)), kinds[0])
    path = folder / name
    values = parse_yaml(path.read_bytes(), name) if path.is_file() and name not in seen else None
    if not isinstance(values, dict):
        return kinds[0]  # whoever reads it finds the fault
    stated = next((kind for kind in kinds if values.get("kind") == kind.KIND), None)
    if stated is not None or "extends" not in values:
        return stated or kinds[0]
    return _kind_of(kinds, str(values["extends"]), path.parent, (*seen, name))


def _is_path(name: str) -> bool:
    return Path(name).suffix in (".yaml", ".yml") or len(Path(name).parts) > 1


def _shelf(kind: type[RunConfig]) -> "Traversable":
    shelf = resources.files("attmask") / "recipes"
    return shelf if kind is PretrainConfig else shelf / kind.KIND


def _read(kind: type[RunConfig], name: str, folder: Path, seen: tuple[str, ...]) -> dict[str, Any]:
    """The raw values of a recipe on top of those that it extends."""
    if _is_path(name):
        path = folder / name
        if not path.is_file():
            raise UserError(f"there is no file {path}; give the path of a YAML file")
        folder, identity, text = path.parent, str(path.resolve()), path.read_bytes()
    elif name in recipes(kind):
        identity = name
        text = (_shelf(kind) / f"{name}.yaml").read_bytes()
    else:
        raise UserError(_other_kind(kind, name) or unknown("recipe", name, recipes(kind)))
    if identity in seen:
        raise UserError(f"recipe {name} extends itself; remove one `extends`")
    values = parse_yaml(text, name) or {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"recipe {name} is not a list of `setting: value`")
    if "extends" not in values:
        return values
    base = _read(kind, str(values.pop("extends")), folder, (*seen, identity))
    base.pop("about", None)  # a description belongs to one recipe
    return _merge(base, values)


def _other_kind(kind: type[RunConfig], name: str) -> str | None:
    """The line for a recipe of another command."""
    shelf = resources.files("attmask") / "recipes"
    if kind is not PretrainConfig:
        return f"{name} is a recipe of attmask pretrain" if name in recipes() else None
    folders = (folder for folder in shelf.iterdir() if folder.is_dir())
    if any((folder / f"{name}.yaml").is_file() for folder in folders):
        return f"{name} is a recipe of attmask finetune"
    return None


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` on top of `below`, group by group."""
    merged = below | above
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            merged[key] = _merge(below[key], above[key])
    return merged
