"""One html file that needs nothing else: text, tables and figures, readable on a phone and on paper.

A report is a title and sections. A section is a heading and blocks; a chapter has sections below it. A block is a
paragraph (a plain string), ``Pre``, ``Bullets``, ``Table``, ``Picture`` or ``Row`` of pictures. All text is escaped,
figures are embedded, nothing is fetched.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

from .checks import problem


@dataclass(frozen=True)
class Pre:
    """Text shown as it is, in a fixed-width face."""

    text: str


@dataclass(frozen=True)
class Table:
    """A header, rows of the same length, and a caption. Cells are text or numbers; columns of numbers align right."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""

    def numeric(self) -> list[bool]:
        """Which columns hold numbers only."""
        return [bool(self.rows) and all(_is_number(row[j]) for row in self.rows) for j in range(len(self.header))]

    def text(self) -> str:
        """The table for a terminal."""
        lines = [[str(cell) for cell in row] for row in (self.header, *self.rows)]
        widths = [max(len(line[j]) for line in lines) for j in range(len(self.header))]
        sides = ["rjust" if right else "ljust" for right in self.numeric()]
        padded = (zip(line, widths, sides, strict=True) for line in lines)
        return "\n".join("  ".join(getattr(c, side)(width) for c, width, side in line).rstrip() for line in padded)


@dataclass(frozen=True)
class Picture:
    """A matplotlib Figure (or Axes) with words for those who cannot see it (``alt``) and a caption.

    ``file`` is the name, without its ending, of a file that holds the figure too.
    """

    figure: Any
    alt: str
    caption: str = ""
    dpi: int = 144
    file: str = ""


@dataclass(frozen=True)
class Bullets:
    """Short statements, one a line, under a line that introduces them."""

    items: Sequence[str]
    lead: str = ""


@dataclass(frozen=True)
class Row:
    """Pictures side by side where the screen is wide enough, else one below the other."""

    pictures: Sequence[Picture]


Block: TypeAlias = str | Pre | Bullets | Table | Picture | Row


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    heading: str
    blocks: Sequence[Block] = ()
    sections: Sequence[Section] = ()

    def pictures(self) -> Iterator[Picture]:
        """The pictures under the heading, those of rows among them."""
        for block in self.blocks:
            match block:
                case Picture():
                    yield block
                case Row():
                    yield from block.pictures


_WIDE = 6.5  # inches: wider figures have the whole width of the page
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #5a5a5a; --paper: #fdfdfc; --card: #f1f1ef; --line: #d5d5d2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --soft: #a9a9a5; --paper: #191a1b; --card: #242628; --line: #3c3f42; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 58rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h2.chapter { font-size: 1.45rem; margin-top: 3.2rem; border-top-width: 3px; }
h3 { font-size: 1.12rem; margin-top: 2rem; }
a { color: inherit; text-underline-offset: .15em; }
nav { font-size: .92rem; background: var(--card); border-radius: .4rem; padding: .6rem .9rem; }
nav ul { margin: .2rem 0; padding-left: 1.2rem; }
nav > ul > li { margin: .35rem 0; }
section { scroll-margin-top: .5rem; }
p { max-width: 42rem; overflow-wrap: break-word; }
pre, .scroll { overflow-x: auto; background: var(--card); border-radius: .4rem; }
.scroll { width: fit-content; max-width: 100%; }
pre { padding: .8rem; font: .8rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { white-space: normal; vertical-align: bottom; }
td.long { white-space: normal; min-width: 15rem; }
.right { text-align: right; }
@media (max-width: 40rem) { th, td { padding: .3rem .45rem; } td:first-child { white-space: normal; } }
figure { margin: 1.2rem 0; }
.row { display: flex; flex-wrap: wrap; gap: 1.2rem; }
.row figure { flex: 1 1 19rem; margin: 0; min-width: 0; }
img { display: block; width: 100%; max-width: 36rem; height: auto; padding: .5rem;
  background: #fff; border-radius: .4rem; }
img.wide { max-width: 100%; }
figcaption, .caption { color: var(--soft); font-size: .88rem; max-width: 36rem; margin: .4rem 0; }
.scroll + .caption { margin-top: 1.6rem; }
@media print { pre, .scroll { overflow: visible; } figure { break-inside: avoid; } }
"""


def write_report(
    path: str | Path, title: str, sections: Iterable[Section], lead: str = "", contents: bool = False
) -> Path:
    """Write a self-contained html file and return its path. Missing folders are made.

    Parameters
    ----------
    path : where the file goes, for example ``report/report.html``
    title : its heading
    sections : Section, in order; one with sections of its own is a chapter
    lead : one paragraph under the title
    contents : whether a table of contents stands at the top

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from fenchel.report import Section, Table, write_report
    >>> where = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> page = write_report(where, "Rates", [Section("Result", ["1 < 2", Table(["a", "b"], [[1, 2.5]])])])
    >>> "1 &lt; 2" in page.read_text(encoding="utf-8")
    True
    """
    body = [f"<h1>{escape(title)}</h1>"]
    body += [_html(lead)] if lead else []
    parts = _named(sections)
    body += [_contents(parts)] if contents else []
    for anchor, part, below in parts:
        body.append(f'<section id="{anchor}">')
        kind = ' class="chapter"' if below else ""
        body += [f"<h2{kind}>{escape(part.heading)}</h2>", *map(_html, part.blocks)]
        for name, section in below:
            body += [f'<section id="{name}">\n<h3>{escape(section.heading)}</h3>', *map(_html, section.blocks)]
            body.append("</section>")
        body.append("</section>")
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    out = Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    return out


_Parts: TypeAlias = list[tuple[str, Section, list[tuple[str, Section]]]]


def _named(parts: Iterable[Section]) -> _Parts:
    """Every part with an anchor of its own, and a chapter's sections with theirs."""
    seen: dict[str, int] = {}

    def anchor(text: str) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"
        seen[name] = seen.get(name, 0) + 1
        return name if seen[name] == 1 else f"{name}-{seen[name]}"

    out: _Parts = []
    for part in parts:
        name = anchor(part.heading)
        out.append((name, part, [(anchor(f"{name} {section.heading}"), section) for section in part.sections]))
    return out


def _contents(parts: _Parts) -> str:
    def link(anchor: str, text: str) -> str:
        return f'<a href="#{anchor}">{escape(text)}</a>'

    lines = ['<nav aria-label="Contents"><ul>']
    for anchor, part, below in parts:
        inner = "".join(f"<li>{link(name, section.heading)}</li>" for name, section in below)
        lines.append(f"<li>{link(anchor, part.heading)}{f'<ul>{inner}</ul>' if inner else ''}</li>")
    return "\n".join([*lines, "</ul></nav>"])


def _html(block: Block) -> str:
    match block:
        case str():
            return f"<p>{escape(block)}</p>"
        case Pre():
            return f'<pre tabindex="0">{escape(block.text)}</pre>'
        case Bullets():
            lead = f"<p>{escape(block.lead)}</p>\n" if block.lead else ""
            return lead + "<ul>\n" + "\n".join(f"<li>{escape(item)}</li>" for item in block.items) + "\n</ul>"
        case Table():
            return _table(block)
        case Picture():
            return _picture(block)
        case Row():
            return '<div class="row">\n' + "\n".join(_picture(p) for p in block.pictures) + "\n</div>"
    raise problem(
        "write_report", f"a block is a {type(block).__name__}", "a string, Pre, Bullets, Table, Picture or Row"
    )


def _table(table: Table) -> str:
    width = len(table.header)
    for i, row in enumerate(table.rows):
        if len(row) != width:
            raise problem("write_report", f"row {i} of a table has {len(row)} cells", f"{width}, as in its header")
    right = table.numeric()

    def cell(j: int, value: object, tag: str) -> str:
        kind = ' class="right"' if right[j] else ' class="long"' if len(str(value)) > 40 else ""
        return f"<{tag}{kind}>{escape(str(value))}</{tag}>"

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(cell(j, value, tag) for j, value in enumerate(cells)) + "</tr>"

    caption = f'<p class="caption">{escape(table.caption)}</p>\n' if table.caption else ""
    rows = "\n".join(line(row, "td") for row in table.rows)
    return (
        f'{caption}<div class="scroll" tabindex="0"><table>\n<thead>{line(table.header, "th")}</thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _is_number(cell: object) -> bool:
    """12, 0.5, -3e-4, 95 %, > 0.999 and 0.2 to 0.4 are numbers; 07316 is a name."""
    text = str(cell)
    return all(_one_number(part) for part in text.split(" to ")) if text.count(" to ") < 2 else False


def _one_number(text: str) -> bool:
    text = text.replace("%", "").strip().lstrip("<>").strip()
    try:
        float(text)
    except ValueError:
        return False
    return not (len(text) > 1 and text[0] == "0" and text[1].isdigit())


def _picture(picture: Picture) -> str:
    figure = picture.figure if hasattr(picture.figure, "savefig") else picture.figure.figure
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=picture.dpi, facecolor="white", metadata={"Software": None})
    data = base64.b64encode(png.getvalue()).decode("ascii")
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>" if picture.caption else ""
    kind = ' class="wide"' if figure.get_figwidth() > _WIDE else ""
    return f'<figure><img{kind} src="data:image/png;base64,{data}" alt="{escape(picture.alt)}">{caption}</figure>'
