"""manage.py accounts: print an account for each daemon, for RabbitMQ, Redis or PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.accounts import DAEMONS, postgresql, rabbitmq, redis_acl, secrets_of

FILES = "files"
SERVERS = ("rabbitmq", "redis", "postgresql")
_PASSWORD: Final = re.compile(r"[A-Za-z0-9._~-]{16,}")


class Command(BaseCommand):
    """Print commands for the server's administrator. No server is changed."""

    help = "Print least-privilege accounts, one for each daemon."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("server", choices=(*SERVERS, FILES))
        parser.add_argument(
            "--passwords",
            type=Path,
            required=True,
            help="folder with a password file for each daemon; missing ones are created",
        )
        parser.add_argument(
            "--prefix", default="crawlyard", help="prefix of names: crawlyard_center, ..."
        )
        parser.add_argument("--vhost", default="crawlyard", help="RabbitMQ's vhost")
        parser.add_argument("--from", type=Path, help="files: folder of shared secrets")
        parser.add_argument("--into", type=Path, help="files: target folder")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status 2 when the folder cannot be used."""
        try:
            passwords = {name: _password(options["passwords"] / name) for name in DAEMONS}
        except (OSError, ValueError) as error:
            raise CommandError(f"--passwords: {error}", returncode=2) from error
        prefix = options["prefix"]
        if options["server"] == FILES:
            if not (options["from"] and options["into"]):
                raise CommandError("files: --from and --into are needed", returncode=2)
            try:
                _write_files(options["from"], options["into"], prefix, passwords)
            except (OSError, ValueError) as error:
                raise CommandError(f"files: {error}", returncode=2) from error
            return
        if options["server"] == "rabbitmq":
            made = rabbitmq(installation=prefix, vhost=options["vhost"], passwords=passwords)
            self.stdout.write(json.dumps(made, indent=2))
            return
        lines = (
            redis_acl(installation=prefix, prefix=settings.REDIS_PREFIX, passwords=passwords)
            if options["server"] == "redis"
            else postgresql(installation=prefix, passwords=passwords)
        )
        self.stdout.write("\n".join(lines))


def _write_files(source: Path, target: Path, prefix: str, passwords: dict[str, str]) -> None:
    """Write ``target/center/broker_url`` and so on from the shared ``source/broker_url``."""
    paths = [path for path in source.iterdir() if path.is_file()]
    shared = {path.name: path.read_text(encoding="utf-8").strip() for path in paths}
    made = {
        name: secrets_of(name, installation=prefix, password=password, shared=shared)
        for name, password in passwords.items()
    }
    for name, files in made.items():
        folder = target / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Files from an earlier run that the daemon must not have any more.
        for old in set(folder.iterdir()) - {folder / file for file in files}:
            old.unlink()
        for file, content in files.items():
            (folder / file).write_text(content, encoding="utf-8")
            (folder / file).chmod(0o600)


def _password(path: Path) -> str:
    """Return the password in the file; generate one if the file does not exist.

    Raises ``ValueError`` for a password that a server would misread.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        password = path.read_text(encoding="utf-8").strip()
        # Used inside SQL quotes, between blanks of an ACL file, and in URLs.
        if not _PASSWORD.fullmatch(password):
            raise ValueError(
                f"{path} holds no password of 16 letters, digits, '-', '_', '.' or '~' or more; "
                "delete it, and a new one is made"
            ) from None
        return password
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        password = secrets.token_urlsafe(24)
        file.write(password)
    return password
