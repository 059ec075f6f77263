import pytest
from django.core.management.base import CommandError

from apps.projects.management.arguments import project_named
from tests.access.factories import make_project

pytestmark = pytest.mark.django_db


def test_a_short_name_of_digits_comes_before_an_id() -> None:
    other = make_project()
    named = make_project(slug=str(other.pk))
    assert project_named(str(other.pk)) == named
    assert project_named(str(named.pk)) == named


def test_what_is_meant_is_guessed() -> None:
    make_project(slug="shop")
    with pytest.raises(CommandError, match="there is no project 'shpo'; is shop meant") as refused:
        project_named("shpo")
    assert refused.value.returncode == 2
