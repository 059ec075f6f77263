"""What the tests of builds share."""

from tests.projects.docker_builds import yard  # noqa: F401
