"""What the tests of builds share."""

from tests.projects.docker_builds import harness  # noqa: F401
