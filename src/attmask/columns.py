"""Names and their values as two columns of plain text."""

import io
from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Row = tuple[str, str]


def two_columns(rows: Iterable[Row], width: int) -> str:
    """Two columns, indented, the second one wrapped; no blanks at the ends of lines."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(Padding(table, (0, 0, 0, 2)))
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
