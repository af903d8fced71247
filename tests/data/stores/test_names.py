import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.stores.names import A_PAGE, Names, NamesBuilder, pack
from attmask.errors import UserError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(st.lists(TEXT))
def test_packed_names_read_as_the_list_they_were_made_of(texts: list[str]) -> None:
    packed = pack(texts)
    assert list(packed) == texts
    assert len(packed) == len(texts)
    assert packed[1:3] == texts[1:3]
    assert list(pickle.loads(pickle.dumps(packed))) == texts
    if texts:
        assert packed[-1] == texts[-1]


@pytest.mark.parametrize("index", [2, -3])
def test_a_name_that_is_not_there_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        pack(["a", "b"])[index]


@given(st.lists(st.binary(max_size=8).map(lambda name: name.replace(b"\0", b"1"))))
def test_bytes_that_are_no_text_come_back_as_the_same_bytes(names: list[bytes]) -> None:
    builder = NamesBuilder()
    for name in names:
        builder.add(name)
    assert [name.encode(errors="surrogateescape") for name in builder.build()] == names


def test_names_that_resemble_each_other_take_a_quarter_of_their_letters() -> None:
    names = [f"n{i % 100:08}/n{i % 100:08}_{i:08}.JPEG" for i in range(100_000)]
    packed = pack(names)
    assert packed.block.nbytes + packed.ends.nbytes < 28 * len(names) / 3
    assert [packed[i] for i in range(0, len(names), 997)] == names[::997]


def test_names_in_any_order_are_those_of_their_rows() -> None:
    names = [f"{i}.png" for i in range(3 * A_PAGE + 5)]
    rows = np.random.default_rng(0).permutation(len(names))
    assert list(pack(names).take(rows)) == [names[row] for row in rows]


def test_a_name_that_would_cut_a_page_is_an_error() -> None:
    with pytest.raises(UserError, match=r"the name 'b\\x00c' holds a zero byte"):
        pack(["a", "b\0c"])


def test_a_damaged_page_is_an_error_of_the_disk() -> None:
    packed = pack(["a.png", "b.png"])
    damaged = Names(np.zeros_like(packed.block), packed.ends, len(packed))
    with pytest.raises(OSError, match="the index of the images is damaged"):
        damaged[0]
    with pytest.raises(ValueError, match="cannot hold 33"):
        Names(packed.block, packed.ends, 33)
