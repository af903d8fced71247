"""A network in training, with its moving average and the engine that shares its gradients."""

from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float64
from timm.utils import ModelEmaV3
from torch import nn

from attmask import distributed
from attmask.distill import Engine
from attmask.models.backbone import Backbone, drop_path_rates
from attmask.models.blocks import drop_path

AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)


class Tuner(nn.Module, Generic[AnyNetwork]):
    """A network with a backbone in training, and its moving average if there is one."""

    network: AnyNetwork

    def __init__(
        self, network: AnyNetwork, *, drop_path: float, ema: float | None, seed: int
    ) -> None:
        super().__init__()
        self.network = network
        self.ema = None if ema is None else ModelEmaV3(network, decay=ema, use_warmup=True)
        self.seed = seed
        self._drop_path_rates = drop_path_rates(self.backbone, drop_path)
        self._engine: Engine = lambda *inputs, share_gradients, **settings: network(
            *inputs, **settings
        )

    @property
    def backbone(self) -> Backbone:
        """The backbone of the network."""
        backbone = self.network.get_submodule("backbone")
        assert isinstance(backbone, Backbone)
        return backbone

    @property
    def is_sharded(self) -> bool:
        """Whether each process has a part of the weights only."""
        return any(map(distributed.is_sharded, self.network.parameters()))

    def wrap(self, engine: Engine) -> None:
        """Call the network through an engine such as DDP; names of weights stay as they are."""
        self._engine = engine

    def call(self, *inputs: Any, share_gradients: bool, **settings: Any) -> Any:
        """Call the network through its engine."""
        return self._engine(*inputs, share_gradients=share_gradients, **settings)

    @property
    def evaluated(self) -> AnyNetwork:
        """The network that is evaluated: the moving average, if there is one."""
        if self.ema is None:
            return self.network
        averaged = self.ema.module
        assert isinstance(averaged, type(self.network))
        return averaged

    def kept_branches(
        self, images: int, *, step: int, first_image: int
    ) -> Float64[np.ndarray, "L 2 B"] | None:
        """The drop path of some images of a step; None if nothing is dropped."""
        if not self._drop_path_rates.any():
            return None
        places = np.arange(first_image, first_image + images)
        return drop_path(
            self._drop_path_rates,
            seed=self.seed,
            step=step,
            images=places,
            views=np.zeros_like(places),
        )
