"""The spiders of an image: stored with a build, shown on its page and over REST."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.engine.builder import BuiltImage
from apps.projects.engine.builder.description import MAX_BYTES, NotDescribed, read_description
from apps.projects.engine.tags import ImageName
from apps.projects.models import Image, ImageDescription
from apps.projects.services.build_states import succeed_build
from apps.projects.states import BuildState
from tests.access.factories import Api, enter, make_user
from tests.projects.build_factories import NOW, make_build, make_image

NAME = ImageName("crawlyard/yard/news", "prod-1.0")
SPIDER: dict[str, Any] = {
    "name": "books",
    "class": "shop.spiders.Books",
    "description": "Books of a <shop>.",
    "arguments": [
        {
            "name": "pages",
            "type": "int",
            "default": 3,
            "required": False,
            "description": "Most pages.",
        },
        {
            "name": "api_key",
            "type": "str",
            "default": "canary-1",
            "required": False,
            "description": "",
        },
    ],
    "settings": {"DOWNLOAD_DELAY": 2, "SHOP_PASSWORD": "canary-2"},
}
DESCRIPTION: dict[str, Any] = {
    "version": 1,
    "kind": "scrapy",
    "spiders": [SPIDER],
    "settings": {"BOT_NAME": "shop", "AWS_SECRET_ACCESS_KEY": "canary-3"},
    "errors": [{"module": "shop.spiders.broken", "error": "no module 'x'"}],
}


def built(**fields: Any) -> BuiltImage:
    return BuiltImage("sha256:" + "b" * 64, 1000, {}, "c" * 40, **fields)


def succeeded(description: dict[str, Any] | None = DESCRIPTION, warning: str = "") -> Image:
    build = make_build(state=BuildState.RUNNING)
    image = succeed_build(
        build=build, image=NAME, built=built(description=description, warning=warning), now=NOW
    )
    assert image is not None
    return image


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_a_build_stores_what_its_image_describes_without_secrets() -> None:
    image = succeeded()
    stored = ImageDescription.objects.get(image=image)
    assert stored.kind == "scrapy"
    assert stored.names == ["books"]
    assert stored.settings["BOT_NAME"] == "shop"
    assert stored.spiders[0]["arguments"][0]["default"] == 3
    assert "canary" not in str([stored.spiders, stored.settings])
    assert stored.spider("books") == stored.spiders[0]
    assert stored.spider("Books") is None


@pytest.mark.django_db
def test_a_later_build_of_the_tag_replaces_the_description() -> None:
    image = succeeded()
    again = make_build(project=image.project, state=BuildState.RUNNING)
    succeed_build(build=again, image=NAME, built=built(warning="no answer"), now=NOW)
    assert not ImageDescription.objects.exists()
    again.refresh_from_db()
    assert (again.state, again.warning) == ("succeeded", "no answer")


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_rest_tells_the_kind_and_the_spiders() -> None:
    image = succeeded()
    other = make_image(project=image.project, tag="plain")
    api = Api(make_user(roles={image.project: Role.VIEWER}))
    kinds = {row["id"]: row["kind"] for row in api.get("/api/v1/images").json()["results"]}
    assert kinds == {image.pk: "scrapy", other.pk: None}
    described = api.get(f"/api/v1/images/{image.pk}/description").json()
    assert described["spiders"][0]["name"] == "books"
    assert described["module_errors"] == DESCRIPTION["errors"]
    assert api.get(f"/api/v1/images/{other.pk}/description").status_code == 404
    assert Api(make_user()).get(f"/api/v1/images/{image.pk}/description").status_code == 404
    assert api.get(f"/api/v1/builds/{image.build_id}").json()["warning"] == ""


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_the_pages_of_build_and_image_show_the_spiders() -> None:
    image = succeeded()
    client = enter(make_user(roles={image.project: Role.VIEWER}))
    for address in (
        f"/admin/projects/build/{image.build_id}/change/",
        f"/admin/projects/image/{image.pk}/change/",
    ):
        page = client.get(address).content.decode()
        assert "<code>books</code>" in page
        assert "Books of a &lt;shop&gt;." in page
        assert "shop.spiders.broken" in page
        assert "BOT_NAME = shop" in page
        assert "canary" not in page


@pytest.mark.django_db
def test_the_page_of_a_build_shows_why_there_is_no_description() -> None:
    image = succeeded(None, warning="exit status 1: <no>")
    client = enter(make_user(roles={image.project: Role.VIEWER}))
    page = client.get(f"/admin/projects/build/{image.build_id}/change/").content.decode()
    assert "does not describe its spiders: exit status 1: &lt;no&gt;" in page


def test_what_no_database_can_store_is_left_out() -> None:
    raw = b'{"version": 1, "kind": "scrapy", "settings": {"a\\u0000": "b\\u0000c"}, "later": 1}'
    assert read_description(b"noise\n" + raw + b"\n").settings == {"a": "bc"}
    for bad in (b'{"version": 1, "kind": "scrapy", "settings": {"a": "\\ud800"}}', b"", b"\xff"):
        with pytest.raises(NotDescribed):
            read_description(bad)
    with pytest.raises(NotDescribed, match="larger"):
        read_description(b" " * (MAX_BYTES + 1))
