from hypothesis import given
from hypothesis import strategies as st

from attmask.visualization.sheet import Column, Row, Sheet, pages


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 9))
def test_pages_have_all_rows_in_order_and_never_tear_a_group(
    sizes: list[int], max_rows: int
) -> None:
    groups = [[Row((), f"{g}.{i}") for i in range(size)] for g, size in enumerate(sizes)]
    made = pages(Sheet("title", [Column("image")], ()), groups, max_rows)
    titles = [[row.title for row in sheet.rows] for sheet in made]
    assert [title for page in titles for title in page] == [
        row.title for group in groups for row in group
    ]
    for group in groups:
        names = {row.title for row in group}
        assert sum(bool(names & set(page)) for page in titles) == 1
    assert all(len(page) <= max(max_rows, max(sizes)) for page in titles)


def test_groups_of_several_rows_stand_apart_and_single_rows_do_not() -> None:
    sheet = Sheet("", [Column("image")], ())
    (page,) = pages(sheet, [[Row(()), Row(())], [Row(()), Row(())]], 9)
    assert [row.is_apart for row in page.rows] == [False, False, True, False]
    (page,) = pages(sheet, [[Row(())], [Row(())]], 9)
    assert not any(row.is_apart for row in page.rows)
