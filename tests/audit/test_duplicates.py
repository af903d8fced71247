"""Duplicates and leakage, from facts made by hand."""

from hypothesis import given
from hypothesis import strategies as st

from attmask.audit.duplicates import Alike, Leak, duplicates, leakage
from attmask.audit.facts import Looks, PictureFacts
from attmask.data.pictures.stored import StoredFormat

FAR = [0, 0xFFFF, 0xFFFF0000, 0xFFFF00000000]


def picture(place: str, digest: int, value: int | None) -> PictureFacts:
    kind = StoredFormat("PNG", "RGB", 3, 8)
    found = Looks(kind, 8, 8, value, (0.5,) * 3, (0.3,) * 3, colourless=False)
    return PictureFacts(place, bytes([digest]), looks=found)


BROKEN = PictureFacts("broken", bytes([1]), fault="cut")


def test_the_same_bytes_are_exact_and_the_same_looks_are_near_without_counting_twice() -> None:
    seen = [
        picture("a", 1, FAR[0]),
        picture("b", 1, FAR[0]),
        picture("c", 2, FAR[0] ^ 0b1111),
        picture("d", 3, FAR[1]),
        picture("e", 4, FAR[0] ^ 0b11111),
        picture("flat", 5, None),
        picture("flat too", 6, None),
        BROKEN,
    ]
    found = duplicates(seen)
    assert found.exact == (("a", "b"),)
    assert found.near == (("a", "c", "e"),)  # e by way of c
    assert found.near_how == (("looks the same", "looks the same"),)
    assert (found.exact_surplus, found.near_surplus, found.flat) == (1, 2, 2)


def test_leakage_names_each_picture_of_val_once_and_what_it_is_in_train() -> None:
    train = [picture("a", 1, FAR[0]), picture("b", 2, FAR[1]), BROKEN]
    val = [
        picture("v", 1, FAR[0]),
        picture("w", 3, FAR[1] ^ 1),
        picture("w again", 3, FAR[1] ^ 1),
        picture("x", 4, FAR[2]),
        picture("y", 5, FAR[2] ^ 1),
        BROKEN,
    ]
    found = leakage(train, val)
    assert found.exact == (Leak("v", "a", "same bytes"),)
    assert found.near == (
        Leak("w", "b", "looks the same"),
        Leak("w again", "b", "looks the same"),
    )


def test_a_search_over_all_splits_serves_every_two_of_them() -> None:
    train = [picture("a", 1, FAR[0]), picture("b", 2, FAR[1])]
    val, test = [picture("v", 3, FAR[0] ^ 1)], [picture("t", 4, FAR[1] ^ 3), picture("u", 3, None)]
    alike = Alike([*train, *val, *test])
    assert leakage(train, val, alike) == leakage(train, val)
    assert leakage(train, test, alike).near == (
        Leak("t", "b", "looks the same"),
        Leak("u", "a", "looks the same"),
    )
    assert leakage(val, test, alike).exact == (Leak("u", "v", "same bytes"),)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
def test_val_leaks_exactly_where_its_digest_is_in_train(rows: list[tuple[int, bool]]) -> None:
    train = [picture(f"t{i}", digest, None) for i, (digest, ours) in enumerate(rows) if ours]
    val = [picture(f"v{i}", digest, None) for i, (digest, ours) in enumerate(rows) if not ours]
    found = leakage(train, val)
    known = {facts.digest for facts in train}
    assert [leak.val for leak in found.exact] == [p.place for p in val if p.digest in known]
    assert found.near == ()
