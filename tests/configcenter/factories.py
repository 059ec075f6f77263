"""Sample configuration kind and factories of its versions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db.models import Model

from apps.configcenter.engine.kinds import ConfigKind, DataProblem, Problem
from apps.configcenter.engine.plain import Data
from apps.configcenter.models import Activation, Configuration, ConfigVersion
from apps.configcenter.services import save_version
from apps.runtime.daemon import Identity
from apps.runtime.models import Daemon
from apps.runtime.services import register_daemon

KIND = "sample"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class SampleKind(ConfigKind):
    """Kind with an integer ``limit``: negative is an error, 0 a warning."""

    name = KIND
    title = "Samples"

    def check(self, data: Data) -> Iterable[Problem]:
        limit = data.get("limit", 1)
        if not isinstance(limit, int):
            yield DataProblem("limit", "no_number", "a whole number is needed")
        elif limit < 0:
            yield DataProblem("limit", "negative", f"{limit} is less than nothing")
        elif limit == 0:
            yield DataProblem("limit", "zero", "nothing will go through", warning=True)

    def summary(self, data: Data) -> str:
        return f"limit {data.get('limit', 1)}"


def save(project: Model, limit: int, *, kind: str = KIND, **options: Any) -> ConfigVersion:
    """Save a version with this limit."""
    data = options.pop("data", {"limit": limit})
    return save_version(
        kind=kind, project_id=project.pk, data=data, **({"actor": None, "now": NOW} | options)
    ).version


def make_version(project: Model) -> ConfigVersion:
    """Create a version of an unregistered kind, for read-only tests."""
    configuration, _created = Configuration.objects.get_or_create(
        kind="gone", project_id=project.pk, defaults={"newest": 1}
    )
    version = ConfigVersion.objects.filter(configuration=configuration).first()
    return version or ConfigVersion.objects.create(
        configuration=configuration, number=1, content='{"a":1}', digest="0" * 64
    )


def make_activation(project: Model) -> Activation:
    """Create such a version and an activation of it."""
    version = make_version(project)
    Configuration.objects.filter(pk=version.configuration_id).update(active=version)
    return Activation.objects.create(configuration=version.configuration, version=version)


def fresh(version: ConfigVersion) -> Configuration:
    """Reload the version's configuration."""
    return Configuration.objects.select_related("active").get(pk=version.configuration_id)


def make_process(name: str, kind: str = "router") -> tuple[Identity, Daemon]:
    """Create a process with a heartbeat row."""
    identity = Identity(kind=kind, name=name)
    daemon = register_daemon(
        kind=kind, name=name, boot=identity.boot, host=identity.host, pid=identity.pid
    )
    return identity, daemon
