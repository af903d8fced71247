"""timm's pretrained networks: from the local cache or the hub, with one line where both fail."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import timm
from torch import nn

from attmask.errors import UserError

log = logging.getLogger(__name__)


def create_pretrained(name: str, *, instead: str, **settings: Any) -> nn.Module:
    """A network of timm with its pretrained weights; `instead` is what to do without them."""
    log.info("loading timm's weights of %s, from the hub if they are not on this machine", name)
    try:
        with _quiet_hub():
            return timm.create_model(name, pretrained=True, **settings)
    except OSError as fault:
        raise UserError(
            f"the weights of timm's {name} are not on this machine and cannot be fetched; connect "
            f"to the internet once, or {instead}"
        ) from fault


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """The hub's client logs two lines for every attempt; the error at the end says it all."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
