"""The operations of a step are those that a count by hand gives."""

import pytest

from attmask.config import PretrainConfig
from attmask.hardware import Format
from attmask.mask import Grid
from attmask.masking import Masker
from attmask.planning.masks import CountedMasks
from attmask.planning.operations import operations
from tests.planning.configs import small

FORMATS: tuple[Format, Format] = ("bf16", "fp32")
HIDDEN_IMAGES, MOST = 3, 20  # of each view of a micro-batch


def fixed_masks(masker: Masker, images: int, grid: Grid) -> CountedMasks:
    """20 patches of three images of a view, none of DINO without masks."""
    most = 0 if type(masker.strategy).__name__ == "Nothing" else MOST
    return CountedMasks(masker.strategy, total=HIDDEN_IMAGES * most, most=most)


def product(rows: int, inner: int, columns: int) -> int:
    """A product of matrices: a multiplication and an addition for each element of the sum."""
    return 2 * rows * inner * columns


class ByHand:
    """The operations of one micro-batch, written down from the architecture.

    Gradients of a product are two products of the same size, one for each factor; the pixels need
    none. Fused attention has two products (scores, values) and, for gradients, five: the scores
    again, and one for each factor of both.
    """

    def __init__(self, config: PretrainConfig, images: int, *, fused: bool) -> None:
        self.config, self.images, self.fused = config, images, fused
        patch, views = config.backbone.patch, config.views
        self.width, self.depth = config.backbone.width or 0, config.backbone.depth or 0
        self.patch_values = config.data.channels * patch**2
        self.global_patches = (views.global_size // patch) ** 2
        self.local_patches = (views.local_size // patch) ** 2
        self.reads_patches = config.loss.patch_weight > 0
        self.most = 0 if config.masking.strategy == "none" else MOST
        self.hidden = 2 * HIDDEN_IMAGES * self.most if self.reads_patches else 0

    def embedding(self, crops: int, patches: int) -> int:
        return product(crops * patches, self.patch_values, self.width)

    def attention(self, crops: int, queries: int, tokens: int) -> int:
        return 2 * product(crops * queries, self.width, tokens)

    def linear_of_block(self, crops: int, tokens: int) -> int:
        rows, width = crops * tokens, self.width
        return product(rows, width, 3 * width) + self.after_attention(rows)

    def after_attention(self, rows: int) -> int:
        width = self.width
        return product(rows, width, width) + 2 * product(rows, width, 4 * width)

    def linear_of_last_block(self, crops: int, queries: int, tokens: int, chosen: int) -> int:
        width = self.width
        q = product(crops * queries, width, width)
        kv = product(crops * tokens, width, 2 * width)
        return q + kv + self.after_attention(chosen)

    def head(self, rows: int) -> int:
        """To the point on the sphere."""
        head = self.config.head
        inner = product(rows, head.hidden, head.hidden)
        return (
            product(rows, self.width, head.hidden)
            + inner
            + product(rows, head.hidden, head.bottleneck)
        )

    def logits(self, rows: int) -> int:
        return product(rows, self.config.head.bottleneck, self.config.head.prototypes)

    def teacher(self) -> int:
        crops, patches = 2 * self.images, self.global_patches
        tokens, width = patches + 1, self.width
        trunk = self.linear_of_block(crops, tokens) + self.attention(crops, tokens, tokens)
        row = product(crops, width, width) + product(crops * tokens, width, width)
        row += product(crops, width, tokens)
        count = self.embedding(crops, patches) + (self.depth - 1) * trunk + row
        count += self.head(crops) + self.logits(crops)
        if not self.reads_patches:  # the last block for [CLS] alone
            return (
                count
                + self.linear_of_last_block(crops, 1, tokens, crops)
                + self.attention(crops, 1, tokens)
            )
        count += trunk + self.logits(self.hidden)
        if self.config.loss.centring == "sinkhorn":
            return count + self.head(self.hidden)
        return count + self.head(crops * patches) + self.logits(1)  # the mean of all patches

    def student(self, crops: int, patches: int, queries: int, chosen: int) -> int:
        """Forward and backward."""
        tokens = patches + 1
        block, attention = self.linear_of_block(crops, tokens), self.attention
        linear = (self.depth - 1) * block
        linear += self.linear_of_last_block(crops, queries, tokens, chosen)
        linear += self.head(chosen) + self.logits(chosen)
        mixed = (self.depth - 1) * attention(crops, tokens, tokens)
        mixed += attention(crops, queries, tokens)
        again = 0
        if self.config.train.recompute:
            # All of a block but its last product, whose result no gradient needs.
            last = product(crops * tokens, 4 * self.width, self.width)
            again = (self.depth - 1) * (block - last + attention(crops, tokens, tokens))
        backward = 5 * mixed // 2 if self.fused else 2 * mixed
        return 2 * self.embedding(crops, patches) + 3 * linear + mixed + backward + again

    def loss(self, views: int) -> int:
        """The products of the teacher's two views and the student's, forward and backward."""
        return 2 * product(2, self.images * self.config.head.prototypes, views)

    def total(self) -> int:
        crops, local = 2 * self.images, self.config.views.local_crops
        queries = self.most + 1 if self.reads_patches else 1
        count = self.teacher() + self.loss(2)
        count += self.student(crops, self.global_patches, queries, crops + self.hidden)
        if local:
            count += self.loss(local)
            count += self.student(local * self.images, self.local_patches, 1, local * self.images)
        return count


@pytest.mark.parametrize(
    ("variant", "fused"),
    [
        ("ibot", True),
        ("dino", True),
        pytest.param("recompute", True, marks=pytest.mark.slow),
        pytest.param("ibot", False, marks=pytest.mark.slow),
        pytest.param("sinkhorn", True, marks=pytest.mark.slow),
        pytest.param("accumulate", True, marks=pytest.mark.slow),
        pytest.param("no local crops", True, marks=pytest.mark.slow),
    ],
)
def test_the_operations_of_a_step_equal_a_count_by_hand(variant: str, fused: bool) -> None:
    config = small(variant, "backbone.drop_path=0")
    parts = config.train.accumulate
    counted = operations(config, processes=2, precision="fp32", fused=fused, masks=fixed_masks)
    by_hand = ByHand(config, config.train.batch_size // 2 // parts, fused=fused)
    assert counted == parts * by_hand.total()


@pytest.mark.slow
def test_the_operations_do_not_depend_on_the_number_format() -> None:
    half, single = (
        operations(small("ibot"), processes=1, precision=precision, fused=True)
        for precision in FORMATS
    )
    assert half == single


@pytest.mark.slow
def test_a_dropped_branch_is_not_counted() -> None:
    whole, less = (
        operations(
            small("ibot", "backbone.depth=4", f"backbone.drop_path={rate}"),
            processes=1,
            precision="fp32",
            fused=True,
        )
        for rate in (0, 0.8)
    )
    assert 0.6 * whole < less < 0.88 * whole
