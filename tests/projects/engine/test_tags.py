"""How tags are read, and what images are called."""

from __future__ import annotations

import json
import re
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.projects.engine.refs import RefRefused, TagRefused, check_branch, check_commit, check_tag
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import (
    TagReading,
    TemplateRefused,
    image_name,
    parse_template,
    read_tag,
    write_tag,
)

CORPUS = Path(__file__).parents[2] / "data" / "corpus"
REFUSED_TAGS = json.loads((CORPUS / "git.json").read_text())["refused_tags"]
DEFAULT = "{release}/{name}/{version}"
COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REFERENCE = re.compile(rf"{COMPONENT}(?:/{COMPONENT})*:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}")

templates = st.permutations(["release", "name", "version"]).flatmap(
    lambda names: st.tuples(st.sampled_from("/-_"), st.sampled_from("/-_")).map(
        lambda marks: f"{{{names[0]}}}{marks[0]}{{{names[1]}}}{marks[1]}{{{names[2]}}}"
    )
)
part = st.text(alphabet=string.ascii_letters + string.digits + "._-+新版ä", min_size=1, max_size=60)
readings = st.builds(TagReading, release=part, name=part, version=part)
slugs = st.from_regex(r"[-a-zA-Z0-9_]{1,50}", fullmatch=True)


@pytest.mark.covers("S1.4", "S1.5")
@pytest.mark.parametrize(
    ("template", "tag", "read"),
    [
        (DEFAULT, "prod/news/1.2", ("prod", "news", "1.2")),
        (DEFAULT, "prod/news-site_a/1.2-rc1+5", ("prod", "news-site_a", "1.2-rc1+5")),
        ("{Release}/{Name}/{Version}", "发布/新闻/1", ("发布", "新闻", "1")),
        ("{release}-{name}-{version}", "prod-news_a-1.2", ("prod", "news_a", "1.2")),
        ("{release}_{name}_{version}", "prod_news-a_1.2", ("prod", "news-a", "1.2")),
        ("{name}/{version}-{release}", "news/1.2-prod", ("prod", "news", "1.2")),
        ("{name}-{version}", "news-1.2", ("", "news", "1.2")),
        ("{version}", "v1.0.0", ("", "", "v1.0.0")),
    ],
)
def test_tags_that_fit(template: str, tag: str, read: tuple[str, str, str]) -> None:
    reading = read_tag(template, tag)
    assert reading == TagReading(*read)
    assert write_tag(template, reading) == tag


@pytest.mark.covers("S1.5")
@pytest.mark.parametrize("template", [DEFAULT, "{release}_{name}_{version}", "{version}"])
def test_the_colon_form_only_from_those_who_can_say_it(template: str) -> None:
    read = read_tag(template, "Release-1:news:1.0", colon_allowed=True)
    assert read == TagReading("Release-1", "news", "1.0")
    with pytest.raises(RefRefused) as refusal:
        read_tag(template, "Release-1:news:1.0")
    assert (refusal.value.code, refusal.value.params["character"]) == ("ref_character", ":")


def test_the_colon_form_beside_the_template() -> None:
    assert read_tag(DEFAULT, "a/b/1", colon_allowed=True) == TagReading("a", "b", "1")
    for tag in ("a:b", "a:b:c:d", "a::c", "a:b:", ":a:b", "a:b/c:1"):
        with pytest.raises(ProjectInputError):
            read_tag(DEFAULT, tag, colon_allowed=True)


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        (DEFAULT, "v1.0"),
        (DEFAULT, "a/b"),
        (DEFAULT, "a/b/c/d"),
        (DEFAULT, "prod-news-1.0"),
        (DEFAULT, "_a/b/1"),
        (DEFAULT, "a/+b/1"),
        (DEFAULT, "a/b/" + "1" * 101),
        ("{release}-{name}-{version}", "a--1"),
    ],
)
def test_tags_that_do_not_fit(template: str, tag: str) -> None:
    with pytest.raises(TagRefused) as refusal:
        read_tag(template, tag)
    assert refusal.value.code == "tag_does_not_fit"


def test_an_ambiguous_tag_is_refused_with_two_readings() -> None:
    with pytest.raises(TagRefused) as refusal:
        read_tag("{release}-{name}-{version}", "prod-news-1.0-rc1")
    assert refusal.value.code == "tag_ambiguous"
    assert refusal.value.params["first"] == "prod | news | 1.0-rc1"
    assert refusal.value.params["second"] == "prod | news-1.0 | rc1"


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ("", "template_incomplete"),
        ("{release}/{name}/", "template_incomplete"),
        ("/{version}", "template_separator"),
        ("{release}{version}", "template_no_separator"),
        ("{release}//{version}", "template_separator"),
        ("{release}.{version}", "template_separator"),
        ("v{version}", "template_separator"),
        ("{release}:{name}:{version}", "template_colon"),
        ("{release}/{name}", "template_without_version"),
        ("{version}/{version}", "template_repeats"),
        ("{version}/{branch}", "template_unknown_name"),
        ("{version}/{}", "template_unknown_name"),
        ("{version", "template_brace"),
        ("version}", "template_separator"),
        ("{{version}}", "template_brace"),
        ("{version.__class__}", "template_unknown_name"),
        ("{version}" + "/" * 100, "template_too_long"),
    ],
)
def test_bad_templates(template: str, code: str) -> None:
    with pytest.raises(TemplateRefused) as refusal:
        parse_template(template)
    assert refusal.value.code == code


@pytest.mark.covers("S1.5")
@pytest.mark.parametrize("tag", REFUSED_TAGS)
def test_hostile_tags(tag: str) -> None:
    with pytest.raises(RefRefused):
        check_tag(tag)
    with pytest.raises(RefRefused):
        check_tag(tag, colon_allowed=True)
    with pytest.raises(RefRefused):
        read_tag("{version}", tag, colon_allowed=True)


@pytest.mark.parametrize(
    "tag",
    ["", "a//b", "/a", "a/", "a.lock", "a.lock/b", "a..b", "a/.b", "a.", "@", "a~1", "a?", "a[",
     "a\x00", "a\x7f", "\ud800", "a" * 201, "ä" * 101, "a;b", "a&b", "a>b", "a\u202eb", "a:b"],
)  # fmt: skip
def test_other_bad_tags(tag: str) -> None:
    with pytest.raises(RefRefused):
        check_tag(tag)


@given(st.text(alphabet=string.printable + "ä新\u202e\x00", max_size=12))
def test_what_is_accepted_git_accepts_too(text: str) -> None:
    try:
        check_tag(text)
    except RefRefused:
        return
    answer = subprocess.run(["git", "check-ref-format", f"refs/tags/{text}"], check=False)
    assert answer.returncode == 0


def test_branches_and_commits() -> None:
    assert check_branch("feature/x-1") == "feature/x-1"
    for branch in ("-x", "HEAD", "refs/heads/x", "a b", "", "a..b"):
        with pytest.raises(RefRefused):
            check_branch(branch)
    assert check_commit("AB" * 20) == "ab" * 20
    assert check_commit("0" * 64) == "0" * 64
    for commit in ("", "abc", "g" * 40, "a" * 41, "--help"):
        with pytest.raises(RefRefused):
            check_commit(commit)


@pytest.mark.covers("S1.5")
@given(templates, readings)
def test_what_a_template_writes_it_reads_back(template: str, reading: TagReading) -> None:
    try:
        tag = write_tag(template, reading)
    except ProjectInputError:
        return
    assert read_tag(template, tag) == reading


@given(readings)
def test_clean_readings_can_be_written(reading: TagReading) -> None:
    assume(all(re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]*", each) for each in (
        reading.release, reading.name, reading.version)))  # fmt: skip
    assert read_tag(DEFAULT, write_tag(DEFAULT, reading)) == reading


@pytest.mark.parametrize(
    ("reading", "name"),
    [
        (TagReading("prod", "news", "1.2"), "crawlyard/demo/news:prod-1.2"),
        (TagReading("", "news", "1.2"), "crawlyard/demo/news:1.2"),
        (TagReading("", "", "v1"), "crawlyard/demo:v1"),
    ],
)
def test_names_of_images(reading: TagReading, name: str) -> None:
    assert str(image_name("demo", reading)) == name


@given(slugs, readings)
def test_names_of_images_are_always_valid(slug: str, reading: TagReading) -> None:
    name = image_name(slug, reading)
    assert REFERENCE.fullmatch(str(name)), name
    assert len(name.repository) <= 255


@given(slugs, st.sampled_from("-_/"), st.lists(part, min_size=3, max_size=5))
def test_two_readings_never_share_a_name(slug: str, mark: str, parts: list[str]) -> None:
    """Every way to spread the same pieces over the three parts."""
    made = {
        TagReading(
            mark.join(parts[:first]), mark.join(parts[first:second]), mark.join(parts[second:])
        )
        for first in range(1, len(parts) - 1)
        for second in range(first + 1, len(parts))
    }
    made |= {TagReading(each.release.lower(), each.name.upper(), each.version) for each in made}
    names = {str(image_name(slug, each)) for each in made}
    assert len(names) == len(made)


def test_a_name_that_looks_like_a_hashed_one() -> None:
    hashed = image_name("demo", TagReading("a-b", "news", "1"))
    release, _, version = hashed.tag.rpartition("-")
    assert image_name("demo", TagReading(release, "news", version)) != hashed
