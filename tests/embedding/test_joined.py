from pathlib import Path

import numpy as np
import pytest

from attmask.embedding import joined as module
from attmask.embedding.joined import Joined
from attmask.embedding.parts import Parts
from tests.embedding.embedders import tiny_embedder
from tests.embedding.test_parts import put


@pytest.mark.parametrize("size", [1, 5, 7, 100])
def test_blocks_have_equally_many_rows_whatever_the_parts_are(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    images = tiny_embedder(scenes).images
    parts = Parts(tmp_path)
    for rows in (range(3), range(3, 48), range(48, 60), range(60, 68)):
        put(parts, rows, unread=tuple(row for row in (4, 59) if row in rows))
    monkeypatch.setattr(module, "_ROWS_OF_A_BLOCK", size)
    joined = Joined(parts, images, (1,), "float32")
    kept = [row for row in range(68) if row not in (4, 59)]
    blocks = list(joined.blocks())
    assert joined.rows == 66
    assert [len(block.entries) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert np.concatenate([block.features for block in blocks])[:, 0].tolist() == kept
    entries = [images.piece(row).entry(row) for row in kept]
    assert [entry for block in blocks for entry in block.entries] == entries
    labels = np.concatenate([block.labels for block in blocks]).tolist()
    assert labels == [entry.label for entry in entries]


def test_a_block_of_large_rows_is_small(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(Parts(tmp_path), range(68))
    monkeypatch.setattr(module, "_BYTES_OF_A_BLOCK", 30)
    joined = Joined(Parts(tmp_path), tiny_embedder(scenes).images, (1,), "float32")
    assert [len(block.entries) for block in joined.blocks()] == [7] * 9 + [5]
