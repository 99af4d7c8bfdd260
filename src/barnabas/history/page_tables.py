"""Tables of the page: cells that know what they are sorted by, and columns that give way on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from barnabas.history.words import as_html, millis_of, moment, span


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown (text, escaped later, unless it is `markup`), and what a column is sorted by."""

    shown: str
    value: int | None = None
    markup: bool = False


def number(value: int | None) -> Cell:
    return Cell("" if value is None else f"{value:,}", value)


def duration(ms: int | None, otherwise: str = "") -> Cell:
    return Cell(otherwise if ms is None else span(ms), ms)


def instant(at: datetime | None, otherwise: str = "") -> Cell:
    """On a phone without the year and the milliseconds."""
    if at is None:
        return Cell(otherwise)
    year, rest, fraction = moment(at)[:5], moment(at)[5:19], moment(at)[19:]
    shown = f'<span class="wide">{year}</span>{rest}<span class="wide">{fraction}</span>'
    return Cell(shown, millis_of(at), markup=True)


def table(
    heads: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Cell | str]],
    *,
    name: str = "",
    bad: Sequence[bool] = (),
    sortable: bool = True,
) -> str:
    """Each head is a name and its kind: n for numbers, wide for what gives way on a phone, wrap for long text."""
    kinds = [kind for _, kind in heads]
    head = "".join(f'<th class="{kind}">{as_html(text)}</th>' for text, kind in heads)
    body = "".join(
        f'<tr class="bad">{cells(row, kinds)}</tr>'
        if index < len(bad) and bad[index]
        else f"<tr>{cells(row, kinds)}</tr>"
        for index, row in enumerate(rows)
    )
    identity = f' id="{name}"' if name else ""
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="scroll"><table{identity}{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def cells(row: Sequence[Cell | str], kinds: Sequence[str]) -> str:
    made = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
    return "".join(
        f'<td class="{kind}"'
        + (f' data-v="{cell.value}"' if cell.value is not None else "")
        + f">{cell.shown if cell.markup else as_html(cell.shown)}</td>"
        for cell, kind in zip(made, kinds, strict=True)
    )
