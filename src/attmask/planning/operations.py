"""The floating-point operations of a step: PyTorch's counter on fake tensors.

Matrix products and convolutions count, a multiplication and an addition as two; the rest of a step
(norms, softmax, optimiser) does not. What is computed twice counts twice: attention scores, which
fused attention computes again for gradients, and blocks under `train.recompute`.
"""

from torch.utils.flop_counter import FlopCounterMode

from attmask.config import PretrainConfig
from attmask.hardware import Format
from attmask.planning.masks import expected_masks
from attmask.planning.rehearsal import ChooseMasks, Rehearsal


def operations(
    config: PretrainConfig,
    *,
    processes: int,
    precision: Format,
    fused: bool | None,
    masks: ChooseMasks = expected_masks,
) -> int:
    """Count those of one process in a step with masks of the expected size."""
    rehearsal = Rehearsal(
        config,
        images=config.train.batch_size // processes,
        precision=precision,
        fused=fused,
        masks=masks,
    )
    with rehearsal.mode, FlopCounterMode(display=False) as counter:
        rehearsal.step()
    return int(counter.get_total_flops())
