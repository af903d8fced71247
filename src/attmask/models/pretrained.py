"""timm's pretrained networks, from the local cache or the hub, with a one-line error."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import timm
from torch import nn

from attmask.errors import UserError

log = logging.getLogger(__name__)


def create_pretrained(name: str, *, instead: str, **settings: Any) -> nn.Module:
    """Build timm's network with pretrained weights; an error without them advises `instead`."""
    log.info("loading timm's weights of %s, from the hub if they are not on this machine", name)
    try:
        with _quiet_hub():
            return timm.create_model(name, pretrained=True, **settings)
    except OSError as fault:
        raise UserError(
            f"the weights of timm's {name} are not on this machine and cannot be fetched; "
            f"connect to the internet once, or {instead}"
        ) from fault


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Silence the hub's client, which logs two lines for every attempt."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
