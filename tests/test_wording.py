"""One is singular, everything else plural."""

import pytest

from attmask.wording import agree, counted, duration, either


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 images"), (1, "1 image"), (2, "2 images"), (2000, "2,000 images")]
)
def test_nouns_follow_their_number(count: int, said: str) -> None:
    assert counted(count, "image") == said
    assert agree(count, "is", "are") == ("is" if count == 1 else "are")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (7200.0, "2.0 h")]
)
def test_durations_have_a_readable_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("names", "said"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_a_choice_is_told_with_an_or_before_the_last(names: list[str], said: str) -> None:
    assert either(names) == said
