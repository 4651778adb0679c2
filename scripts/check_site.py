#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks a built site: nothing is loaded from elsewhere, and all links within it lead somewhere.

mkdocs looks at the links of Markdown; this looks at what a browser gets, so also at those of the theme and of raw HTML.
Links to other sites are counted, not fetched."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself; `a` it follows only when asked.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}
# Links of a page that say what it is; nothing is fetched for them.
NAMES = {"canonical", "license"}


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        for name, value in values.items():
            is_loaded = (tag, name) in LOADED and values.get("rel") not in NAMES
            if is_loaded or (tag, name) == ("a", "href"):
                self.links.append((value, is_loaded))


def fault(site: Path, pages: dict[Path, Page], page: Path, link: str, is_loaded: bool) -> str | None:
    """What is wrong with a link, if anything."""
    parts = urlsplit(link)
    if parts.scheme in ("data", "mailto", "javascript"):
        return None
    if parts.scheme or parts.netloc:
        return "is loaded from elsewhere" if is_loaded else None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        return "leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "names an anchor that is not there"
    return None


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    pages.pop(site / "404.html", None)  # its links begin at the root of a server
    faults = 0
    elsewhere = 0
    for path, page in pages.items():
        for link, is_loaded in page.links:
            what = fault(site, pages, path, link, is_loaded)
            elsewhere += bool(urlsplit(link).netloc)
            if what:
                print(f"{path.relative_to(site)}: {link} {what}", file=sys.stderr)
                faults += 1
    if not pages:
        print(f"{site}: no pages", file=sys.stderr)
    elif not faults:
        links = sum(len(page.links) for page in pages.values())
        print(f"site: {len(pages)} pages, {links} links, {elsewhere} of them to other sites (not followed)")
    return 1 if faults or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
