"""Every link and picture of the built site that stays on it leads somewhere: ``python docs/check_links.py FOLDER``.

Files and anchors are checked; addresses of other sites are not. No page holds a path of the machine that built it.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {given[name] or "" for name in ("id", "name") if name in given}
        wanted = {"a": "href", "img": "src", "link": "href", "script": "src"}.get(tag)
        if wanted and given.get(wanted):
            self.targets.add(str(given[wanted]))


def broken(folder: Path) -> list[str]:
    """``page: target`` for each target that is not there."""
    folder = folder.resolve()
    found = (path for path in folder.rglob("*.html") if not path.relative_to(folder).parts[0].startswith("_"))
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in found}
    out = []
    for path, page in pages.items():
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            missing = not place.exists() or (place in pages and unquote(parts.fragment) not in pages[place].anchors)
            if missing:
                out.append(f"{path.relative_to(folder)}: {target}")
    return out


def with_paths(folder: Path) -> list[str]:
    """``page: path`` for each page that holds the folder of this repository, of this Python or of the user."""
    places = {str(place) for place in (Path(__file__).resolve().parent.parent, Path(sys.prefix), Path.home())}
    places |= {place + "/" for place in places if place.count("/") == 1}
    places = {place for place in places if place.count("/") > 1}
    return [
        f"{path.relative_to(folder)}: {place}"
        for path in sorted(folder.rglob("*.html"))
        for place in sorted(places)
        if place in path.read_text(encoding="utf-8")
    ]


if __name__ == "__main__":
    found = broken(Path(sys.argv[1])) + with_paths(Path(sys.argv[1]))
    print("\n".join(found) or "every link of the site leads somewhere, and no page holds a path of this machine")
    sys.exit(bool(found))
