import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.stores.names import NamesBuilder, pack

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


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


@given(st.lists(st.binary(max_size=8)))
def test_bytes_that_are_no_text_come_back_as_the_same_bytes(names: list[bytes]) -> None:
    builder = NamesBuilder()
    for name in names:
        builder.add(name)
    assert [name.encode(errors="surrogateescape") for name in builder.build()] == names


def test_many_names_take_little_more_than_their_letters() -> None:
    packed = pack(f"n{i:07}" for i in range(100_000))
    assert packed.block.nbytes + packed.ends.nbytes == 1_600_000
