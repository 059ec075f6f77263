"""manage.py config: import, export, compare and activate versions of configurations."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.access.errors import DomainError
from apps.configcenter import services
from apps.configcenter.engine.plain import MAX_BYTES, Data
from apps.configcenter.errors import AlreadyActive
from apps.configcenter.models import Configuration, ConfigVersion
from apps.configcenter.queries import rollouts_of
from apps.projects.management.arguments import project_named
from apps.projects.models import Project
from apps.runtime.errors import DATABASE_ERRORS
from yardkit.errors import first_line

FAILED: Final = 1
BAD_INPUT: Final = 2
MOST_LISTED: Final = 50
UNPROCESSABLE: Final = 422


class Command(BaseCommand):
    """One verb for each call; errors are printed one a line."""

    help = "Apply, export, compare, activate and revert configurations."
    # For pipes: only the answer is written to stdout.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        apply = _verb(verbs, "apply", "save a file as a version and activate it")
        apply.add_argument("file", metavar="FILE", help="- is standard input")
        apply.add_argument("--dry-run", action="store_true", help="preview")
        apply.add_argument("--no-activate", action="store_true", help="only save")
        _note(apply)
        export = _verb(verbs, "export", "print a version as its file")
        _number(export, "--version", "by default the active one, else the newest")
        listing = _verb(
            verbs, "list", "active versions, and the processes that run them", needs=False
        )
        listing.add_argument("--versions", action="store_true", help="all versions")
        diff = _verb(verbs, "diff", "what changes between two versions")
        diff.add_argument("old", type=_positive, nargs="?", help="by default the active one")
        diff.add_argument("new", type=_positive, nargs="?", help="by default the newest")
        activate = _verb(verbs, "activate", "activate a version in all processes")
        activate.add_argument("number", type=_positive)
        _note(activate)
        revert = _verb(verbs, "revert", "go back to a version that was active before")
        _number(revert, "--to", "by default the one that was active before")
        _note(revert)
        _note(_verb(verbs, "deactivate", "stop all processes from using any version"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status 0 when done, 1 when refused, 2 for an invalid argument or file."""
        verbs: dict[str, Callable[[dict[str, Any]], None]] = {
            "apply": self._apply,
            "export": self._export,
            "list": self._list,
            "diff": self._diff,
            "activate": self._activate,
            "revert": self._revert,
            "deactivate": self._deactivate,
        }
        try:
            verbs[options["verb"]](options)
        except DomainError as error:
            status = BAD_INPUT if error.status == UNPROCESSABLE else FAILED
            lines = [str(message) for texts in error.fields.values() for message in texts]
            if status == FAILED or not lines:
                lines = [str(error)]
            raise CommandError("\n".join(lines), returncode=status) from error
        except DATABASE_ERRORS as error:
            line = first_line(error)
            raise CommandError(f"DATABASE_URL: {line}", returncode=FAILED) from error

    # --- verbs ----------------------------------------------------------------------------------

    def _apply(self, options: dict[str, Any]) -> None:
        kind = _kind(options["kind"])
        project = _owner(options)
        data = _read(kind, options["file"])
        configuration = _configuration(kind.name, project)
        tried = services.check_data(kind_name=kind.name, data=data, configuration=configuration)
        places = {} if options["file"] == "-" else kind.places(Path(options["file"]))
        for problem in tried.problems:
            if problem.warning:
                line = places.get(problem.place.partition("]")[0] + "]")
                self.stderr.write(f"warning: {line}: {problem}" if line else f"warning: {problem}")
        errors = services.errors_of(tried.problems)
        if errors:
            raise CommandError("\n".join(str(error) for error in errors), returncode=BAD_INPUT)
        changes, newest = tried.changes, configuration.newest if configuration else 0
        if options["dry_run"]:
            self._lines(changes)
            will = f"would be v{newest + 1}" if not tried.same else "no change"
            self.stdout.write(f"{kind.name} of {_slug(project)}: {will}; nothing was saved")
            return
        saved = services.save_version(
            kind=kind.name,
            project_id=None if project is None else project.pk,
            data=data,
            now=timezone.now(),
            note=options["note"],
            # Another process may have saved a version since the check above.
            based_on=newest,
            **_actor(),
        )
        self._lines(changes)
        name = f"{kind.name} of {_slug(project)}: v{saved.version.number}"
        self.stdout.write(f"{name} saved" if saved.created else f"{name} holds the same already")
        if not options["no_activate"]:
            self._switch_on(saved.version, name, options)

    def _switch_on(self, version: ConfigVersion, name: str, options: dict[str, Any]) -> None:
        try:
            services.activate(version=version, now=timezone.now(), note=options["note"], **_actor())
        except AlreadyActive:
            self.stdout.write(f"{name} is active already")
        else:
            self.stdout.write(f"{name} is active")

    def _export(self, options: dict[str, Any]) -> None:
        configuration = _existing(options)
        number = options["version"] or _active(configuration) or configuration.newest
        version = _version(configuration, number)
        self.stdout.write(services.shown_by(configuration.kind).write(version.data), ending="")

    def _list(self, options: dict[str, Any]) -> None:
        if options["versions"]:
            if not (options["kind"] and (options["project"] or options["platform"])):
                text = "--versions: name a KIND and a --project, or --platform"
                raise CommandError(text, returncode=BAD_INPUT)
            self._list_versions(_existing(options))
            return
        rows = Configuration.objects.select_related("active", "project")
        if options["kind"]:
            rows = rows.filter(kind=options["kind"])
        if options["project"] or options["platform"]:
            rows = rows.filter(project=_owner(options))
        configurations = list(rows.order_by("kind", "project__slug"))
        rollouts = rollouts_of(configurations)
        for row in configurations:
            rollout = rollouts[row.pk]
            active = f"v{rollout.active} active" if rollout.active else "none active"
            self.stdout.write(
                f"{row.kind}\t{_slug(row.project)}\t{active}\tv{row.newest} newest"
                f"\t{rollout.on} of {rollout.of} processes run it"
            )

    def _list_versions(self, configuration: Configuration) -> None:
        versions = configuration.versions.defer("content").order_by("-number")
        for version in versions[:MOST_LISTED]:
            mark = "*" if version.pk == configuration.active_id else " "
            at = timezone.localtime(version.created_at).strftime("%Y-%m-%d %H:%M:%S")
            self.stdout.write(
                f"{mark} v{version.number}\t{at}\t{version.author_label}"
                f"\t{version.summary}\t{_one_line(version.note)}"
            )

    def _diff(self, options: dict[str, Any]) -> None:
        configuration = _existing(options)
        old = options["old"] or _active(configuration)
        new = options["new"] or configuration.newest
        before = _version(configuration, old).data if old else {}
        after = _version(configuration, new).data
        kind = services.shown_by(configuration.kind)
        self._lines(kind.diff(before, after))

    def _activate(self, options: dict[str, Any]) -> None:
        configuration = _existing(options)
        version = _version(configuration, options["number"])
        name = f"{configuration.kind} of {_slug(configuration.project)}: v{version.number}"
        self._switch_on(version, name, options)

    def _revert(self, options: dict[str, Any]) -> None:
        configuration = _existing(options)
        done = services.revert(
            configuration=configuration,
            to=options["to"],
            now=timezone.now(),
            note=options["note"],
            **_actor(),
        )
        number = done.version.number if done.version is not None else 0
        self.stdout.write(
            f"{configuration.kind} of {_slug(configuration.project)}: v{number} is active again"
        )

    def _deactivate(self, options: dict[str, Any]) -> None:
        configuration = _existing(options)
        services.deactivate(
            configuration=configuration, now=timezone.now(), note=options["note"], **_actor()
        )
        self.stdout.write(
            f"{configuration.kind} of {_slug(configuration.project)}: no version is active"
        )

    def _lines(self, changes: Iterable[object]) -> None:
        for change in changes:
            self.stdout.write(str(change))


# --- arguments ----------------------------------------------------------------------------------


def _verb(verbs: Any, name: str, text: str, *, needs: bool = True) -> CommandParser:
    parser: CommandParser = verbs.add_parser(name, help=text, description=text)
    many = None if needs else "?"
    parser.add_argument("kind", metavar="KIND", help="such as routing", nargs=many)
    owner = parser.add_mutually_exclusive_group(required=needs)
    owner.add_argument("--project", metavar="P", help="the project's short name or id")
    owner.add_argument("--platform", action="store_true", help="configuration of the platform")
    return parser


def _note(parser: CommandParser) -> None:
    parser.add_argument(
        "--note", default="", help="reason, kept with the version and the audit trail"
    )


def _number(parser: CommandParser, option: str, text: str) -> None:
    # ``--version`` is an option of every Django command; below a verb it names a configuration
    # version.
    parser.add_argument(option, type=_positive, metavar="N", help=text)


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r}: the number of a version is needed")
    return number


def _kind(name: str) -> services.ConfigKind:
    known = [kind.name for kind in services.all_kinds()]
    if name not in known:
        text = f"there is no kind {name!r}; there are: {', '.join(known) or 'none'}"
        raise CommandError(text, returncode=BAD_INPUT)
    return services.kind_named(name)


def _owner(options: dict[str, Any]) -> Project | None:
    """Return the project, or None for the platform."""
    return None if options["platform"] else project_named(options["project"])


def _slug(project: Project | None) -> str:
    return "the platform" if project is None else project.slug


def _configuration(kind: str, project: Project | None) -> Configuration | None:
    rows = Configuration.objects.select_related("active", "project")
    return rows.filter(kind=kind, project=project, newest__gte=1).first()


def _existing(options: dict[str, Any]) -> Configuration:
    project = _owner(options)
    configuration = _configuration(options["kind"], project)
    if configuration is None:
        text = f"{options['kind']} of {_slug(project)}: there is no version"
        raise CommandError(text, returncode=BAD_INPUT)
    return configuration


def _version(configuration: Configuration, number: int) -> ConfigVersion:
    version_row = configuration.versions.filter(number=number).first()
    if version_row is None:
        text = f"there is no v{number}; the newest is v{configuration.newest}"
        raise CommandError(text, returncode=BAD_INPUT)
    return version_row


def _active(configuration: Configuration) -> int:
    return configuration.active.number if configuration.active is not None else 0


def _read(kind: services.ConfigKind, file: str) -> Data:
    try:
        if file == "-":
            return kind.read(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
        return kind.read_file(Path(file))
    except services.Unreadable as error:
        lines = "\n".join(str(problem) for problem in error.problems)
        raise CommandError(lines, returncode=BAD_INPUT) from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", returncode=BAD_INPUT) from error


def _actor() -> dict[str, Any]:
    try:
        who = getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container's user may have a number but no name.
        who = "unknown"
    return {"actor": None, "actor_label": f"{who} (manage.py config)"}


def _one_line(text: str) -> str:
    return " ".join(text.split())
