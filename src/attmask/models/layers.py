"""The layers of a network with a ViT as its backbone, as timm's layer decay wants them."""

from typing import Any


def layers_of_backbone() -> dict[str, Any]:
    """The embedding, the blocks, and what has no name here, which comes last.

    So the final norm learns like the head, as in iBOT; in timm's own networks it belongs to the
    last block.
    """
    return {
        "stem": r"^backbone\.vit\.(?:cls_token|pos_embed|reg_token|patch_embed|norm_pre)",
        "blocks": r"^backbone\.vit\.blocks\.(\d+)",
    }
