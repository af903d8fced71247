"""AttMask in a plain DINO loop, with torch and timm.

    python examples/dino_loop.py

DINO compares the [CLS] tokens of a student and a teacher on two views of an image. AttMask hides
patches of the student's views; the lines marked (1) to (3) are all that it adds.
"""

import copy

import torch
import torch.nn.functional as F
from generated import IMAGE_SIZE, PATCH_SIZE, Scenes, TwoViews
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.data import DataLoader

import attmask

PROTOTYPES, TEACHER_TEMPERATURE, STUDENT_TEMPERATURE, MOMENTUM = 256, 0.04, 0.1, 0.99


class Network(nn.Module):
    """A ViT of timm that can hide patches, with a small projection head."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = VisionTransformer(
            IMAGE_SIZE, PATCH_SIZE, embed_dim=96, depth=4, num_heads=3, num_classes=0
        )
        self.head = nn.Sequential(nn.Linear(96, 192), nn.GELU(), nn.Linear(192, PROTOTYPES))
        self.mask_token = nn.Parameter(torch.zeros(96))

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits over prototypes; patches where the mask is True are hidden."""
        patches = self.vit.patch_embed(images)
        if mask is not None:
            patches = torch.where(mask[..., None], self.mask_token, patches)
        tokens = self.vit.norm(self.vit.blocks(self.vit._pos_embed(patches)))
        logits: Tensor = self.head(tokens[:, 0])
        return logits


def main(steps: int = 60, batch_size: int = 32) -> list[float]:
    """Train, and return the loss of each step."""
    torch.manual_seed(0)
    student = Network()
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    center = torch.zeros(PROTOTYPES)
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
    views = TwoViews(Scenes(batch_size * 4), batch_size * 4)
    loader = DataLoader(views, batch_size, shuffle=True, drop_last=True)

    # (1) Hide the most attended 10 to 50 % of the patches, in half of the views.
    masker = attmask.Masker(attmask.High(), ratio=(0.1, 0.5), probability=0.5)

    losses: list[float] = []
    while len(losses) < steps:
        for pair in loader:
            targets, guesses = [], []
            for number, view in enumerate(pair):
                # (2) The teacher's [CLS] attention, read during the pass that DINO makes anyway.
                with torch.no_grad(), attmask.watch_cls_attention(teacher) as watched:
                    targets.append(teacher(view))
                mask = masker(watched.mean, step=len(losses), view=number)
                guesses.append(student(view, mask))  # (3) The student sees the masked view.

            loss = torch.zeros(())
            for target, guess in zip(targets, reversed(guesses), strict=True):  # across views
                wanted = F.softmax((target - center) / TEACHER_TEMPERATURE, dim=-1)
                loss = loss + F.cross_entropy(guess / STUDENT_TEMPERATURE, wanted) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            with torch.no_grad():
                center.lerp_(torch.cat(targets).mean(dim=0), 0.1)
                for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                    old.lerp_(new, 1 - MOMENTUM)
            losses.append(loss.item())
            if len(losses) % 10 == 0:
                print(f"step {len(losses):3d}  loss {losses[-1]:.3f}")
            if len(losses) == steps:
                break
    return losses


if __name__ == "__main__":
    main()
