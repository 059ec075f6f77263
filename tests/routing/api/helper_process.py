"""Sets up what a web process serves, in a process of its own: its database is another one.

python -m tests.routing.api.helper_process person            prints a superuser's token
python -m tests.routing.api.helper_process rules SLUG BIND PORT
python -m tests.routing.api.helper_process off SLUG
"""

from __future__ import annotations

import sys

import django

django.setup()

from django.utils import timezone  # noqa: E402 - the apps come first

from apps.access.models import User  # noqa: E402
from apps.access.services import create_token  # noqa: E402
from apps.configcenter.models import Configuration  # noqa: E402
from apps.configcenter.services import deactivate  # noqa: E402
from apps.projects.models import Project  # noqa: E402
from apps.routing.engine.rules import Server  # noqa: E402
from tests.routing.api.active_rules import activate_rules  # noqa: E402


def person() -> None:
    """Create a superuser and print the secret of a token."""
    user = User.objects.create_superuser("boss", password="correct horse battery")
    made = create_token(actor=user, user=user, name="test", scopes=["*:write"])
    print(made.secret)


def rules(slug: str, bind: str, port: str) -> None:
    """Activate rules with an HTTP server; print the project's ID."""
    project, _made = Project.objects.get_or_create(slug=slug, defaults={"name": slug})
    activate_rules(project, server=Server(bind, int(port)))
    print(project.pk)


def off(slug: str) -> None:
    """Deactivate the rules."""
    row = Configuration.objects.get(project__slug=slug)
    deactivate(configuration=row, actor=None, now=timezone.now())


if __name__ == "__main__":
    {"person": person, "rules": rules, "off": off}[sys.argv[1]](*sys.argv[2:])
