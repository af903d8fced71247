"""What the documents name is there: tests, recipes, files."""

import re
from pathlib import Path

import pytest

from attmask.recipe import recipes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), ROOT / "examples" / "README.md"]


def links(page: Path) -> set[str]:
    """The files and folders that a page links to, as it writes them."""
    written = re.findall(r"\]\(([^)\s#]+)", page.read_text())
    return {link for link in written if not re.match(r"[a-z]+:", link)}


def recipe_rows(text: str) -> list[str]:
    """The names in the first column of every table of recipes."""
    tables = re.findall(r"^\| recipe \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, flags=re.MULTILINE)
    return [re.findall("`([^`]+)`", row)[0] for table in tables for row in table.splitlines()]


def test_every_test_that_the_page_on_fidelity_names_exists() -> None:
    named = set(re.findall(r"`(tests/[^`]+)`", (DOCS / "fidelity.md").read_text()))
    assert len(named) > 10
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_the_page_on_recipes_has_every_recipe_in_a_table_once_and_no_other() -> None:
    assert sorted(recipe_rows((DOCS / "recipes.md").read_text())) == recipes()


def test_every_recipe_that_the_page_on_recipes_speaks_of_exists() -> None:
    text = (DOCS / "recipes.md").read_text()
    named = set(re.findall(r"`((?:ibot|dino)[\w-]*)`", text)) | set(
        re.findall(r"(?:--recipe|extends:) ([\w-]+)(?![\w.-])", text)
    )
    assert {"cpu", "ibot-high"} <= named
    assert named - set(recipes()) == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_and_folder_that_a_page_links_to_exists(page: Path) -> None:
    assert {link for link in links(page) if not (page.parent / link).exists()} == set()


def test_links_are_found() -> None:
    assert {"docs/architecture.md", "LICENSE"} <= links(ROOT / "README.md")
