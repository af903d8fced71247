"""iBOT's step written plainly: the whole attention matrix in every block, the head on all tokens
of global crops and on `[CLS]` of local ones, losses in the format that autocast gives them, one
small operation a parameter in clipping and moving average."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEPTH, WIDTH, HEADS, PATCH = 12, 384, 6, 16


class Block(nn.Module):
    """Attention with its matrix written out, then the MLP; drop path by a factor an image."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = drop

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """All tokens, and the attention matrix."""
        images, tokens, _ = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(images, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attention = ((q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5).softmax(dim=-1)
        mixed = (attention @ v).transpose(1, 2).reshape(images, tokens, WIDTH)
        x = x + self._dropped(self.proj(mixed))
        x = x + self._dropped(self.fc2(F.gelu(self.fc1(self.norm2(x)))))
        return x, attention

    def _dropped(self, branch: Tensor) -> Tensor:
        if self.drop == 0 or not self.training:
            return branch
        kept = (torch.rand(len(branch), 1, 1) >= self.drop).to(branch.dtype)
        return branch / (1 - self.drop) * kept


class ViT(nn.Module):
    """ViT-S/16 for 224 pixels, with a mask token."""

    def __init__(self, drop_path: float) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.mask_token = nn.Parameter(torch.zeros(1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 197, WIDTH) * 0.02)
        rates = torch.linspace(0, drop_path, DEPTH).tolist()
        self.blocks = nn.ModuleList([Block(rate) for rate in rates])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, images: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All tokens after the norm, and the last block's attention matrix."""
        x = self.embed(images).flatten(2).transpose(1, 2)
        if mask is not None:
            x = torch.where(mask[..., None], self.mask_token.to(x.dtype), x)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self._positions(x.shape[1])
        attention = x
        for block in self.blocks:
            x, attention = block(x)
        return self.norm(x), attention

    def _positions(self, patches: int) -> Tensor:
        if patches == self.positions.shape[1] - 1:
            return self.positions
        side = math.isqrt(patches)
        grid = self.positions[:, 1:].reshape(1, 14, 14, WIDTH).permute(0, 3, 1, 2)
        resized = F.interpolate(grid, scale_factor=(side + 0.1) / 14, mode="bicubic")
        return torch.cat([self.positions[:, :1], resized.flatten(2).transpose(1, 2)], dim=1)


class Head(nn.Module):
    """Three layers, the unit sphere, K prototypes."""

    def __init__(self, prototypes: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2048),
            nn.GELU(),
            nn.Linear(2048, 2048),
            nn.GELU(),
            nn.Linear(2048, 256),
        )
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(256, prototypes, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every token."""
        scores: Tensor = self.last(F.normalize(self.mlp(x), dim=-1))
        return scores


class TextbookStep:
    """A whole training step on given views and masks."""

    def __init__(self, prototypes: int) -> None:
        self.student = nn.ModuleList([ViT(drop_path=0.1), Head(prototypes)])
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        self.centre = torch.zeros(prototypes)
        self.patch_centre = torch.zeros(prototypes)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=1e-4, foreach=False)

    def loss(self, whole: Tensor, local: Tensor, mask: Tensor) -> Tensor:
        """Teacher and student on all tokens of global crops, and both losses."""
        (vit, head), (teacher_vit, teacher_head) = self.student, self.teacher
        with torch.no_grad():
            seen, attention = teacher_vit(whole)
            attention[:, :, 0, 1:].mean(dim=1).argsort(dim=1)  # what AttMask sorts
            target = teacher_head(seen)
        guess = head(vit(whole, mask)[0])
        near = head(vit(local)[0][:, 0])
        targets = [((part - self.centre) / 0.04).softmax(dim=-1) for part in target[:, 0].chunk(2)]
        patch_targets = ((target[:, 1:] - self.patch_centre) / 0.04).softmax(dim=-1)
        guesses = [*guess[:, 0].chunk(2), *near.chunk(len(near) // (len(whole) // 2))]
        pairs = [
            torch.sum(-seen_by * (guessed / 0.1).log_softmax(dim=-1), dim=-1).mean()
            for u, seen_by in enumerate(targets)
            for v, guessed in enumerate(guesses)
            if u != v
        ]
        each = torch.sum(-patch_targets * (guess[:, 1:] / 0.1).log_softmax(dim=-1), dim=-1)
        hidden = mask.float()
        patch = ((each * hidden).sum(dim=-1) / hidden.sum(dim=-1).clamp(min=1)).mean()
        self.centre = 0.9 * self.centre + 0.1 * target[:, 0].mean(dim=0)
        self.patch_centre = 0.9 * self.patch_centre + 0.1 * target[:, 1:].mean(dim=(0, 1))
        return torch.stack(pairs).mean() + patch

    def update(self) -> None:
        """Clip each parameter, optimise, move the teacher."""
        for parameter in self.student.parameters():
            if parameter.grad is not None:
                coefficient = 3.0 / (parameter.grad.norm().item() + 1e-6)
                if coefficient < 1:
                    parameter.grad.mul_(coefficient)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
            for teacher, student in pairs:
                teacher.mul_(0.996).add_(student, alpha=0.004)
