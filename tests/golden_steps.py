"""The reference's trajectory: its network, its schedules, and its steps one by one."""

import torch

from attmask.data.views import Views
from attmask.distill import Distiller, Losses
from attmask.hardware import Precision
from attmask.losses import LossConfig
from attmask.masking import High, Masker, Strategy
from attmask.models.backbone import build_backbone
from attmask.models.network import Student
from attmask.schedules import ScheduleConfig, Schedules
from attmask.step import train_step
from tests.reference import BACKBONE, HEAD, IMAGE_SIZE, tensors, weights

STEPS_PER_EPOCH = 2
SCHEDULE = ScheduleConfig(
    epochs=3,
    lr=1e-3,
    lr_warmup_epochs=1,
    momentum=0.9,
    cls_temperature_warmup_epochs=2,
    patch_temperature_warmup_epochs=2,
)
SCHEDULES = Schedules(SCHEDULE, steps_per_epoch=STEPS_PER_EPOCH, batch_size=256)
FP32 = Precision.choose("fp32", torch.device("cpu"))


def golden_distiller(strategy: Strategy | None = None) -> Distiller:
    """Student and teacher with the weights that the trajectory starts from."""
    network = Student(build_backbone(BACKBONE, image_size=IMAGE_SIZE, channels=3), HEAD)
    network.load_state_dict(weights("trajectory"))
    ratio = float(tensors("trajectory")["ratio"])
    masker = Masker(strategy or High(), (ratio, ratio), probability=1.0)
    return Distiller(network, masker, LossConfig(), drop_path=0.0, seed=0)


def golden_step(
    distiller: Distiller,
    optimizer: torch.optim.AdamW,
    step: int,
    precision: Precision = FP32,
) -> list[Losses]:
    """One step of the trajectory with its own views and rates."""
    golden = tensors("trajectory")
    views = Views(golden[f"global_{step}"], golden[f"local_{step}"])
    clip = float(golden["clip"])
    report = train_step(distiller, optimizer, views, SCHEDULES.at(step), precision, clip=clip)
    return list(report.losses)
