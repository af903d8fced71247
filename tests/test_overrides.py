import pytest

from attmask.errors import UserError
from attmask.overrides import (
    assigned,
    checked,
    describe,
    parse_yaml,
    shortened,
    text_of,
    unknown,
    with_values,
)
from attmask.settings import Config, setting


class Inner(Config):
    rate: float = setting(0.1, "how fast", paper="0.3", ge=0)


class Outer(Config):
    name: str = setting("a", "what it is called")
    inner: Inner = setting(Inner(), "a group")


def test_an_assignment_is_a_key_and_a_yaml_value() -> None:
    assert assigned("a.b=1e-4", "x=1") == ("a.b", 1e-4)
    assert assigned("a=[0.1, 3]", "x=1") == ("a", [0.1, 3])
    assert assigned("a=x=y", "x=1") == ("a", "x=y")
    with pytest.raises(UserError, match=r"'a' is not key=value, such as x=1"):
        assigned("a", "x=1")


def test_values_are_replaced_inside_groups_and_checked() -> None:
    changed = with_values(Outer(), [("inner.rate", 2), ("name", "b")])
    assert (changed.inner.rate, changed.name) == (2.0, "b")
    with pytest.raises(UserError, match=r"^knn\.inner\.rate=-1: should be greater than"):
        with_values(Outer(), [("inner.rate", -1)], "knn.")
    with pytest.raises(UserError, match=r"no setting 'inner\.rat'; did you mean inner\.rate\?"):
        with_values(Outer(), [("inner.rat", 1)])


def test_a_setting_is_shown_as_it_would_be_given() -> None:
    lines = describe(Outer())
    assert [(line.key, line.value, line.paper) for line in lines] == [
        ("name", "a", ""),
        ("inner.rate", "0.1", "0.3"),
    ]
    assert with_values(Outer(), [assigned(f"{x.key}={x.value}", "") for x in lines]) == Outer()


@pytest.mark.parametrize("value", ["a b", "1", "null", "", [1, 2], None, 0.5, "ä=ö"])
def test_text_comes_back_as_the_value(value: object) -> None:
    assert parse_yaml(text_of(value), "here") == value


def test_an_unknown_name_is_answered_with_near_ones_or_with_where_they_are_listed() -> None:
    assert unknown("task", "knnn", ["knn", "linear"]).endswith("did you mean knn?")
    assert unknown("task", "zzz", ["knn"]).endswith("`attmask tasks` lists them")


def test_a_key_that_comes_twice_and_broken_yaml_are_refused() -> None:
    with pytest.raises(UserError, match="the key a appears twice"):
        parse_yaml("a: 1\na: 2", "file")
    with pytest.raises(UserError, match="'file' is not YAML"):
        parse_yaml("[1, ", "file")


def test_what_is_wrong_is_said_in_one_line_for_all_settings() -> None:
    with pytest.raises(UserError) as caught:
        checked(Outer, {"name": 3, "inner": {"rate": "fast"}}, "here: ")
    assert str(caught.value).startswith("here: name=3: ")
    assert "; inner.rate=fast: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!!bool x", "'x'"),
        ("!!timestamp x", "NoneType"),
        ("2020-13-01", "month must be in 1..12"),
        ("!!python/object/apply:os.abort []", "could not determine a constructor"),
        ("[" * 5000, "nested more than 20 deep"),
        ("&a [*a]", "aliases are not read, repeat the value"),
        ("{a: &a [x, x], b: [*a, *a, *a, *a]}", "aliases are not read"),
        ("9" * 5000, "Exceeds the limit"),
    ],
)
def test_yaml_that_breaks_its_parser_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        assigned(f"a={text}", "x=1")
    line = str(caught.value)
    assert line.startswith("'a=")
    assert reason in line
    assert len(line) < 300
    assert line.isprintable()


def test_many_keys_are_checked_in_linear_time() -> None:
    values = parse_yaml("\n".join(f"k{i}: 1" for i in range(20_000)), "here")
    assert len(values) == 20_000


def test_a_long_value_is_cut_and_many_problems_are_counted() -> None:
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 77 + "..."
    with pytest.raises(UserError) as caught:
        checked(Outer, {"name": "x", "inner": {"rate": "y" * 5000}}, "")
    assert len(str(caught.value)) < 200
    with pytest.raises(UserError, match=r"; and 92 more problems$"):
        checked(Outer, {f"k{i}": 1 for i in range(100)}, "")
    assert len(unknown("setting", "z" * 5000, ["a"])) < 200


def test_a_mapping_with_keys_that_json_does_not_have_is_shown() -> None:
    assert text_of(parse_yaml("{2020-01-01: 1}", "here")) == "{datetime.date(2020, 1, 1): 1}"
