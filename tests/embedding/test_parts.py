from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attmask.embedding import parts as module
from attmask.embedding.embedder import ReadRows
from attmask.embedding.parts import Parts, PartWriter, differences, stored
from attmask.errors import UserError


def put(parts: Parts, rows: range, unread: tuple[int, ...] = ()) -> None:
    """A part whose features are the numbers of their rows."""
    readable = np.array([row not in unread for row in rows])
    features = np.array([row for row in rows if row not in unread], dtype=np.float32)[:, None]
    parts.write(rows, readable, features, [f"/x/{row}\tno picture" for row in unread])


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=6))
def test_what_is_done_and_what_is_missing_are_all_rows_once(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]
) -> None:
    parts = Parts(tmp_path_factory.mktemp("parts"))
    for first, length in spans:
        put(parts, range(first, first + length), unread=(first,))
    done = [row for part in parts.done() for row in part.rows]
    missing = [row for gap in parts.missing(range(40)) for row in gap]
    assert sorted(done + missing) == list(range(40)), "also where parts overlap"
    for part in parts.done():
        rows, features = parts.kept(part)
        assert rows.tolist() == features[:, 0].tolist()
        assert set(rows.tolist()) <= set(part.rows)


def test_a_part_knows_the_images_that_cannot_be_read(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    put(parts, range(4, 8), unread=(5,))
    put(parts, range(4))
    assert list(parts.unreadable()) == ["/x/5\tno picture"]
    assert [parts.unread(part).tolist() for part in parts.done()] == [[], [5]]
    rows, features = parts.kept(parts.done()[1])
    assert (rows.tolist(), features.tolist()) == ([4, 6, 7], [[4.0], [6.0], [7.0]])


def test_parts_of_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    key = {"network": "a" * 64, "crop": {"size": 32}, "dtype": "float32"}
    parts.begin(key)
    parts.begin(key)
    assert parts.belongs_to(key)
    other = {"network": "b" * 64, "crop": {"size": 64}, "dtype": "float32"}
    assert not parts.belongs_to(other)
    with pytest.raises(UserError, match=r"\(crop.size: 64, there 32; other network\); remove it"):
        parts.begin(other)
    assert differences(key, key) == ""


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    put(parts, range(4))
    (part,) = parts.done()
    part.file.write_bytes(part.file.read_bytes()[:100])
    for work in (lambda: parts.kept(part), lambda: list(parts.unreadable())):
        with pytest.raises(UserError, match=r"rows-0+-0+4.npz is damaged \(.*\); remove it, then"):
            work()


def test_a_folder_with_an_index_alone_is_removed(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts")
    with parts.without_a_lone_index():
        parts.folder.mkdir()
        (parts.folder / "index.npz").touch()
    assert not parts.folder.exists()
    with parts.without_a_lone_index():
        parts.begin({"dtype": "float32"})
        (parts.folder / "index.npz").touch()
    assert len(list(parts.folder.iterdir())) == 2


def batch(rows: range) -> ReadRows:
    features = torch.tensor([[float(row)] for row in rows])
    return ReadRows(rows, np.ones(len(rows), dtype=np.bool_), features)


def test_a_part_is_written_when_it_is_old_or_large_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    writer = PartWriter(parts, "float32")
    writer.add(batch(range(4)), [])
    assert parts.done() == []
    monkeypatch.setattr(module, "SECONDS_OF_A_PART", 0.0)
    writer.add(batch(range(4, 8)), [])
    assert [part.rows for part in parts.done()] == [range(8)]
    monkeypatch.setattr(module, "SECONDS_OF_A_PART", 100.0)
    monkeypatch.setattr(module, "_BYTES_OF_A_PART", 32)
    writer.add(batch(range(8, 12)), [])
    writer.add(batch(range(12, 16)), [])
    writer.add(batch(range(16, 18)), [])
    assert [part.rows for part in parts.done()][1:] == [range(8, 16)]
    writer.flush()
    writer.flush()
    assert [part.rows for part in parts.done()][2:] == [range(16, 18)]


def test_features_are_rounded_to_the_number_format_of_the_file() -> None:
    features = torch.tensor([[1.0009765625, -3.14159]])
    assert stored(features, "float32").tolist() == features.tolist()
    assert stored(features, "float16").tolist() == features.half().tolist()
    bits = torch.from_numpy(stored(features, "bfloat16").view(np.int16)).view(torch.bfloat16)
    assert bits.tolist() == features.bfloat16().tolist()
    with pytest.raises(UserError, match="a feature of 100000 is beyond float16; use --dtype"):
        stored(torch.tensor([[1e5]]), "float16")
