"""How an exported network was trained, for its model card."""

from collections.abc import Iterator
from pathlib import Path

from attmask.config import PretrainConfig
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.network_names import TIMM
from attmask.exporting.scores import cell
from attmask.history import read_history
from attmask.html_report.about import nearest_recipe
from attmask.kinds import read_config
from attmask.models.importing.hub import HUB
from attmask.overrides import extra_of, fields_of
from attmask.tuning.config import TunedConfig
from attmask.tuning.results import Results

_PAPER = "https://arxiv.org/abs/2203.12719"


def training_lines(model: FrozenModel) -> Iterator[str]:
    """Data, recipe and changed settings of the run, as lines of Markdown."""
    if model.folder is None:
        kind = "timm: " if model.origin.get("weights") == "timm" else ""
        yield f"The weights are not attmask's own ({kind}`{cell(model.name.removeprefix(TIMM))}`)."
        yield "attmask has converted them and does not know how they were trained."
        return
    config = read_config(model.folder / "config.yaml")
    data = read_history(model.folder).data
    recipe, changes = nearest_recipe(config)
    trivial = {key for key, field in fields_of(type(config)) if extra_of(field)["operational"]}
    changes = [change for change in changes if change[0] not in trivial]
    origin = model.origin
    progress = [f"{name} {origin[name]:,}" for name in ("step", "epoch") if name in origin]
    yield f"- Data: {'not recorded' if data is None else cell(Path(data).name)}"
    if isinstance(config, TunedConfig):
        start = cell(Path(config.network.start).name)
        yield f"- Fine-tuned (`attmask {config.COMMAND}`) from: {start}"
    else:
        assert isinstance(config, PretrainConfig)
        strategy = f"masking strategy `{config.masking.strategy}`"
        yield f"- Pre-trained without labels by attmask, {strategy}"
        yield f"  ([What to Hide from Your Students]({_PAPER}))"
        if config.init is not None:
            yield f"- Continued from: {cell(_without_folders(config.init))}"
    yield f"- Recipe: `{recipe}` of attmask" + (", with these changes:" if changes else "")
    if changes:
        yield from ("", "| setting | recipe | here |", "|---|---|---|")
        for key, old, new in changes:
            yield f"| `{key}` | {cell(old)} | {cell(new)} |"
        yield ""
    yield f"- Weights: {', '.join([str(origin.get('weights', 'unknown')), *progress])}"


def _without_folders(named: str) -> str:
    """The name of weights: the last part of a path; a network of timm or the hub as it is."""
    return named if named.startswith((TIMM, *HUB)) else Path(named).name


def tuning_scores(model: FrozenModel) -> list[str]:
    """What the best network of a fine-tuning reached on its own held-out images."""
    if model.folder is None or model.origin.get("weights") != "best":
        return []
    found = Results.read(model.folder)
    return [] if found is None else found.lines()
