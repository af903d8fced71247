"""Two columns of text."""

from attmask.columns import two_columns


def test_the_second_column_is_wrapped_and_lines_have_no_blanks_at_their_ends() -> None:
    text = two_columns([("name", "one two three four five"), ("n", "")], width=22)
    assert text.splitlines() == ["  name  one two three", "        four five", "  n"]
