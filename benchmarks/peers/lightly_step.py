"""lightly's own modules, composed as its iBOT example composes them (extra `bench`)."""

import timm
import torch
from lightly.loss import DINOLoss, IBOTPatchLoss
from lightly.models.modules import DINOProjectionHead, MaskedVisionTransformerTIMM
from lightly.models.utils import update_momentum
from torch import Tensor, nn


class Network(nn.Module):
    """Its masked timm backbone with its projection head, shared by `[CLS]` and patches."""

    def __init__(self, prototypes: int, drop_path: float) -> None:
        super().__init__()
        vit = timm.create_model(
            "vit_small_patch16_224", num_classes=0, dynamic_img_size=True, drop_path_rate=drop_path
        )
        self.backbone = MaskedVisionTransformerTIMM(vit=vit)
        self.head = DINOProjectionHead(384, 2048, 256, prototypes, norm_last_layer=False)


class LightlyStep:
    """A whole training step on given views and masks."""

    def __init__(self, prototypes: int) -> None:
        self.student = Network(prototypes, drop_path=0.1)
        self.teacher = Network(prototypes, drop_path=0.0).requires_grad_(False).eval()
        self.dino = DINOLoss(prototypes, teacher_temp=0.04, warmup_teacher_temp_epochs=0)
        self.ibot = IBOTPatchLoss(prototypes)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=1e-4)

    def loss(self, whole: Tensor, local: Tensor, mask: Tensor) -> Tensor:
        """Its two losses; heads see `[CLS]` and masked patches only."""
        student, teacher = self.student, self.teacher
        images = len(whole) // 2
        every = torch.cat([torch.zeros(len(mask), 1, dtype=torch.bool), mask], dim=1)
        with torch.no_grad():
            seen = teacher.backbone.encode(whole)
            cls_target, patch_target = teacher.head(seen[:, 0]), teacher.head(seen[every])
        guess = student.backbone.encode(whole, mask=every)
        near = student.backbone.encode(local)
        cls = torch.cat([student.head(guess[:, 0]), student.head(near[:, 0])])
        side = round(mask.shape[1] ** 0.5)
        cls_part: Tensor = self.dino(list(cls_target.split(images)), list(cls.split(images)))
        patch_part: Tensor = self.ibot(
            teacher_out=patch_target,
            student_out=student.head(guess[every]),
            mask=mask.view(len(mask), side, side),
        )
        return cls_part + patch_part

    def update(self) -> None:
        """Clip, optimise, move the teacher."""
        nn.utils.clip_grad_norm_(self.student.parameters(), 3.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        update_momentum(self.student, self.teacher, m=0.996)
