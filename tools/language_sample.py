"""Draw a random sample of docstrings, UI texts and pages of docs for a reader who is new here.

``python -m tools.language_sample --seed 7`` prints 60 docstrings (with the name and signature of
what they describe, without the code), 60 UI texts (English and Chinese) and the names of 20 pages.
The reader says what each one means; goals: 55, 58 and 19 correct.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator

from tools.compile_messages import read_po
from tools.requirement_marks import ROOT

FOLDERS = ("apps", "platform")
CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"


def docstrings() -> Iterator[str]:
    """Yield every docstring of the product behind the name of its module, class or function."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "migrations" in path.parts:
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node, name in _named(tree, module):
                text = ast.get_docstring(node)
                if text:
                    yield f"{name}\n    {text.replace(chr(10), chr(10) + '    ')}"


def _named(
    node: ast.Module | ast.ClassDef, name: str
) -> Iterator[tuple[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    yield node, name
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _named(child, f"{name}.{child.name}")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, f"{name}.{child.name}({ast.unparse(child.args)})"


def texts() -> Iterator[str]:
    """Yield the translated texts of the pages, English and Chinese."""
    for key, translation in read_po(CATALOGUE).items():
        if key:
            english = key.rpartition("\x04")[2].replace("\0", " | ")
            yield f"{english}\n    {translation.replace(chr(0), ' | ')}"


def pages() -> list[str]:
    """Return the pages of the documentation, without the requirement texts."""
    found = [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]
    names = sorted(str(path.relative_to(ROOT)) for path in found)
    return [name for name in names if not re.search(r"requirements|coverage|seeds/", name)]


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--docstrings", type=int, default=60)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--pages", type=int, default=20)
    options = parser.parse_args()
    source = random.Random(options.seed)  # noqa: S311 - a sample, no secret
    for title, everything, count in (
        ("Docstrings", list(docstrings()), options.docstrings),
        ("UI texts", list(texts()), options.texts),
        ("Pages", pages(), options.pages),
    ):
        print(f"# {title} ({count} of {len(everything)})\n")
        for number, text in enumerate(source.sample(everything, min(count, len(everything))), 1):
            print(f"{number}. {text}\n")


if __name__ == "__main__":
    main()
