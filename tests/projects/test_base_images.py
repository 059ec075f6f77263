"""Which images a Dockerfile may build on."""

from __future__ import annotations

import time

import pytest

from apps.projects.engine.builder import BuildStepFailed
from apps.projects.engine.builder.context import labelled
from apps.projects.engine.builder.references import Base, check_references, check_triggers, pinned
from apps.projects.reasons import text_of

FOREIGN = "dockerfile_image_foreign"
UNKNOWN = "dockerfile_image_unknown"
ID = "dockerfile_image_id"
ARGUMENTS = {"BASE": "python:3.12", "OTHER": "crawlyard/shop/base:1", "P": "crawlyard"}
SHA = "sha256:" + "a" * 64


def check(text: str) -> list[Base]:
    return check_references(labelled(text.encode(), "o")[0], "crawlyard/news/feeds", ARGUMENTS)


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.12-slim",
        "FROM scratch",
        "FROM --platform=linux/amd64 python AS one\nFROM one\nCOPY --from=ONE /a /a",
        "FROM python\nFROM python\nCOPY --chown=a:b --from=0 /a /a",
        "FROM python AS abcdef\nFROM abcdef\nCOPY --from=abcdef /a /a",
        "FROM crawlyard/news/base:1",
        "FROM docker.io/crawlyard/news/base:1",
        f"FROM python@{SHA}",
        "FROM registry.example:5000/crawlyard/shop/base:1",
        "ARG BASE\nFROM $BASE",
        "ARG BASE=crawlyard/shop/base\nFROM ${BASE}",
        'ARG V="3.12" IMAGE=python\nARG WHOLE=$IMAGE:${V}\nFROM $WHOLE-slim',
        "FROM python:${VERSION:-3.12}",
        "FROM \\\n# why\n\n  python \\\n  AS one",
        "# escape=`\nFROM `\n  python",
        "FROM python\nRUN echo \\\nFROM crawlyard/shop/base",
        'FROM python\nCOPY --from=busybox ["a b", "c"]\nCOPY "x" /--from=crawlyard/shop/base',
        "FROM python\nARG OTHER\nRUN echo $OTHER",
    ],
)
def test_images_of_others_and_ones_own_may_be_used(text: str) -> None:
    check(text)


@pytest.mark.covers("S1.4")
@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("FROM crawlyard/shop/base:1", 1, FOREIGN),
        ("from crawlyard/shop/base", 1, FOREIGN),
        ("FROM docker.io/crawlyard/shop/base", 1, FOREIGN),
        ("FROM index.docker.io/crawlyard/shop/base", 1, FOREIGN),
        (f"FROM crawlyard/shop/base@{SHA}", 1, FOREIGN),
        ("FROM crawlyard/newsroom/base", 1, FOREIGN),
        ("FROM crawlyard/shop:1", 1, FOREIGN),
        ("FROM python\n\nCOPY --from=crawlyard/shop/base /a /a", 3, FOREIGN),
        ("FROM python\nfrom python\ncopy --chown=a --from=crawlyard/shop/x / /", 3, FOREIGN),
        ("FROM python\nONBUILD COPY --from=crawlyard/shop/x / /", 2, FOREIGN),
        ("FROM python\nFROM \\\n # why\n craw\\\nlyard/shop/x", 2, FOREIGN),
        ("# escape=`\nFROM `\n crawlyard/shop/x", 2, FOREIGN),
        ("# a b = c\n# escape=`\nFROM x\nRUN y `\nFROM crawlyard/shop/x", 5, FOREIGN),
        ("FROM x\nRUN y \\\\\nFROM crawlyard/shop/x", 3, FOREIGN),
        ("ARG OTHER=python\nFROM $OTHER", 2, FOREIGN),
        ("ARG A=yard/shop\nFROM crawl${A}/x", 2, FOREIGN),
        ("ARG P\nARG Q=$P/shop\nFROM ${Q}/x", 3, FOREIGN),
        ("ARG A=''\nFROM crawl${A:+x}yard/shop/x", 2, FOREIGN),
        ("FROM ${A:-crawlyard/shop/x}", 1, FOREIGN),
        ("FROM $OTHER", 1, UNKNOWN),
        ("ARG NEVER\nFROM python:$NEVER", 2, UNKNOWN),
        ("ARG A=${B:-$C}\nFROM $A", 2, UNKNOWN),
        ("ARG A=x\\y\nFROM $A", 2, UNKNOWN),
        ("FROM ${A#x}", 1, UNKNOWN),
        ('FROM "python"', 1, UNKNOWN),
        ("FROM --platform=$NEVER python", 1, UNKNOWN),
        ("FROM crawl\\yard/shop/x", 1, UNKNOWN),
        ("FROM python\nARG A=python\nFROM $A", 3, UNKNOWN),
        ("FROM python\nCOPY --from=$BASE / /", 2, UNKNOWN),
        ('FROM python\nCOPY --chown="a b" --from=crawlyard/shop/x / /', 2, UNKNOWN),
        ("FROM python\nCOPY --fr\\om=crawlyard/shop/x / /", 2, UNKNOWN),
        (f"FROM {SHA}", 1, ID),
        ("FROM sha256:abc", 1, ID),
        (f"FROM {'a' * 64}", 1, ID),
        ("FROM 0123abc", 1, ID),
        ("FROM python\nCOPY --from=beef12 / /", 2, ID),
        ("FROM python AS beef12\nCOPY --from=beef12 / /", 2, ID),
        ("FROM python\nCOPY --from=1 / /", 2, ID),
        ("ARG A=beef12\nFROM $A", 2, ID),
    ],
)
def test_an_image_of_another_project_is_refused_with_its_line(
    text: str, line: int, code: str
) -> None:
    with pytest.raises(BuildStepFailed) as caught:
        check(text)
    assert (caught.value.code, caught.value.params["line"]) == (code, line)
    assert text_of(caught.value).startswith(f"Line {line} of the Dockerfile names")


def test_the_engine_is_told_ids_in_the_place_of_names() -> None:
    text = (
        "# escape=`\nARG BASE\nFROM --platform=linux/amd64 `\n# why\n  ${BASE} `\n AS one\nRUN a\n"
        "FROM one\nCOPY --from=one /a /a\nFROM scratch\nfrom crawlyard/news/base\nRUN b"
    )
    labelled_text = labelled(text.encode(), "o")[0]
    bases = check(text)
    assert [(each.line, each.image, each.platform) for each in bases] == [
        (3, "python:3.12", "linux/amd64"),
        (11, "crawlyard/news/base", ""),
    ]
    ids = {each: f"sha256:{number}" for number, each in enumerate(bases)}
    label = 'LABEL crawlyard.layer="o"'
    assert pinned(labelled_text, bases, ids).decode().splitlines() == [
        *("# escape=`", "ARG BASE", "FROM --platform=linux/amd64 sha256:0 AS one", label, "RUN a"),
        *("FROM one", label, "COPY --from=one /a /a", "FROM scratch", label),
        *("FROM sha256:1", label, "RUN b"),
    ]


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("line", ["A b", "FROM x", "# escape="])
def test_a_long_dockerfile_is_judged_in_proportion(line: str) -> None:
    began = time.process_time()
    check("FROM x\n" + f"{line}\n" * 30_000)
    assert time.process_time() - began < 8


def test_values_that_grow_with_each_line_are_given_up() -> None:
    growing = "".join(f"ARG A{n + 1}={f'${{A{n}}}' * 10}\n" for n in range(6))
    with pytest.raises(BuildStepFailed) as caught:
        check(f"ARG A0=aaaaaaaaaa\n{growing}FROM ${{A6}}")
    assert caught.value.code == UNKNOWN


@pytest.mark.parametrize(
    "text", ["FROM x\nRUN y \\\\\nFROM python", "# a b = c\n# escape=`\nFROM x\nRUN y `\nFROM z"]
)
def test_what_may_be_an_image_or_not_is_refused(text: str) -> None:
    with pytest.raises(BuildStepFailed) as caught:
        check(text)
    assert caught.value.code == UNKNOWN


BASE = Base(4, 5, 6, (), "maker/base:1", ())


@pytest.mark.parametrize(
    "trigger",
    [
        "COPY --from=crawlyard/shop/x / /stolen",
        "add --chown=a --FROM=python / /",
        "COPY --from=0 / /",
        'COPY --fr"om"=crawlyard/shop/x / /',
        "COPY --fr\\om=crawlyard/shop/x / /",
        "# escape=`\nCO`\nPY --from=x / /",
        "RUN a\nCOPY --from=x / /",
    ],
)
def test_what_an_image_makes_others_copy_is_refused(trigger: str) -> None:
    with pytest.raises(BuildStepFailed) as caught:
        check_triggers(["RUN true", trigger], BASE)
    assert caught.value.code == "dockerfile_trigger"
    assert "maker/base:1 in line 4" in text_of(caught.value)


def test_other_triggers_are_the_makers_business() -> None:
    check_triggers(["COPY . /app", "RUN pip install --from x\n", "ADD --chown=1 a b"], BASE)
