"""Small networks whose steps are planned and computed."""

from attmask.config import PretrainConfig
from attmask.recipe import load_recipe
from attmask.run_config import override

SMALL = (
    "backbone.width=96",
    "backbone.depth=2",
    "head.prototypes=512",
    "head.hidden=256",
    "views.global_size=64",
    "views.local_size=32",
    "views.local_crops=4",
)
VARIANTS: dict[str, tuple[str, ...]] = {
    "ibot": (),
    "sinkhorn": ("loss.centring=sinkhorn",),
    "dino": ("loss.patch_weight=0", "masking.strategy=none"),
    "accumulate": ("train.accumulate=2",),
    "recompute": ("train.recompute=true",),
    "no local crops": ("views.local_crops=0",),
    "sharded": ("train.sharding=fsdp",),
    "two heads": ("head.shared=false",),
}


def small(variant: str, *more: str) -> PretrainConfig:
    """A network of two blocks with the settings of a variant."""
    return override(load_recipe("tiny"), [*SMALL, *VARIANTS[variant], *more])
