"""AttMask in lightly's iBOT: lightly's masked ViT, heads and losses, our masks.

    pip install 'attmask[examples]'
    python examples/lightly_ibot.py

lightly's own example draws masks with `random_block_mask`, before the teacher has seen the images.
Here the teacher looks first, and its [CLS] attention decides; see (1) and (2).
"""

import timm
import torch
from generated import IMAGE_SIZE, PATCH_SIZE, Scenes, TwoViews
from lightly.loss import DINOLoss, IBOTPatchLoss
from lightly.models.modules import DINOProjectionHead, MaskedVisionTransformerTIMM
from lightly.models.utils import update_momentum
from torch import nn
from torch.utils.data import DataLoader

import attmask

PROTOTYPES, SIDE = 256, IMAGE_SIZE // PATCH_SIZE


class Network(nn.Module):
    """lightly's masked ViT and one head for [CLS] and patches."""

    def __init__(self) -> None:
        super().__init__()
        vit = timm.create_model(
            "vit_tiny_patch16_224",
            img_size=IMAGE_SIZE,
            patch_size=PATCH_SIZE,
            embed_dim=96,
            depth=4,
            num_heads=3,
            num_classes=0,
        )
        self.backbone = MaskedVisionTransformerTIMM(vit)
        self.head = DINOProjectionHead(96, 192, 64, PROTOTYPES, norm_last_layer=False)


def main(steps: int = 40, batch_size: int = 32) -> list[float]:
    """Train, and return the loss of each step."""
    torch.manual_seed(0)
    student, teacher = Network(), Network().requires_grad_(False).eval()
    teacher.load_state_dict(student.state_dict())
    cls_loss = DINOLoss(PROTOTYPES, warmup_teacher_temp_epochs=0)
    patch_loss = IBOTPatchLoss(PROTOTYPES)
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
    views = TwoViews(Scenes(batch_size * 4), batch_size * 4)
    loader = DataLoader(views, batch_size, shuffle=True, drop_last=True)

    # (1) In place of random_block_mask: hide the most attended patches in half of the views.
    masker = attmask.Masker(attmask.High(), ratio=(0.1, 0.5), probability=0.5)

    losses: list[float] = []
    while len(losses) < steps:
        for pair in loader:
            whole = torch.cat(pair)  # both views of all images
            # (2) The teacher's pass gives its tokens and, on the way, its [CLS] attention.
            with torch.no_grad(), attmask.watch_cls_attention(teacher.backbone) as watched:
                seen = teacher.backbone.encode(whole)
            mask = masker(watched.mean, step=len(losses))  # 2B x N, True is hidden
            no_cls = torch.zeros(len(mask), 1, dtype=torch.bool)
            tokens = torch.cat([no_cls, mask], dim=1)  # lightly's masks have a place for [CLS]

            with torch.no_grad():
                cls_target, patch_target = teacher.head(seen[:, 0]), teacher.head(seen[tokens])
            guess = student.backbone.encode(whole, mask=tokens)
            loss = cls_loss(
                teacher_out=list(cls_target.chunk(2)),
                student_out=list(student.head(guess[:, 0]).chunk(2)),
            ) + patch_loss(
                teacher_out=patch_target,
                student_out=student.head(guess[tokens]),
                mask=mask.unflatten(1, (SIDE, SIDE)),
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 3.0)
            optimizer.step()
            update_momentum(student, teacher, m=0.99)

            losses.append(loss.item())
            if len(losses) % 10 == 0:
                print(f"step {len(losses):3d}  loss {losses[-1]:.3f}")
            if len(losses) == steps:
                break
    return losses


if __name__ == "__main__":
    main()
