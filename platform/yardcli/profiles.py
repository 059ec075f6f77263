"""Server and token: from the environment, else from a profile in a private file.

The file is ``$XDG_CONFIG_HOME/crawlyard/profiles.json`` (``~/.config`` by default).
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from yardcli.errors import CommandFailed, Exits, usage

DEFAULT = "default"
URL, TOKEN, PROFILE = "CRAWLYARD_URL", "CRAWLYARD_TOKEN", "CRAWLYARD_PROFILE"


@dataclass(frozen=True)
class Login:
    """URL of a server, such as ``https://yard.example.com``, and a token for it."""

    server: str
    token: str = field(repr=False)


@dataclass
class Profiles:
    """Content of the file."""

    current: str = DEFAULT
    logins: dict[str, Login] = field(default_factory=dict)


def path_of_profiles(environ: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "crawlyard" / "profiles.json"


def read_profiles(environ: Mapping[str, str]) -> Profiles:
    """Read the file; empty if it does not exist. Raises ``CommandFailed``."""
    path = path_of_profiles(environ)
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            print(f"warning: {path} holds tokens and others may read it", file=sys.stderr)  # noqa: T201
        raw = json.loads(path.read_bytes())
        logins = {
            name: Login(str(fields["server"]), str(fields["token"]))
            for name, fields in raw["profiles"].items()
        }
        return Profiles(str(raw["current"]), logins)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise usage(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise usage(f"{path} is damaged; delete it and log in again") from error


def write_profiles(environ: Mapping[str, str], profiles: Profiles) -> Path:
    """Replace the file with mode 0600. Raises ``CommandFailed``."""
    path = path_of_profiles(environ)
    plain = {
        "current": profiles.current,
        "profiles": {
            name: {"server": profile_login.server, "token": profile_login.token}
            for name, profile_login in sorted(profiles.logins.items())
        },
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created with mode 600, so that others can never read it.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".profiles-")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(plain, file, indent=2)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise usage(f"{path}: {error.strerror}") from error
    return path


def chosen_login(environ: Mapping[str, str], profile: str | None) -> Login:
    """Return the login to use. A profile's token is sent to that profile's server only.

    Raises ``CommandFailed``.
    """
    url, token = environ.get(URL, ""), environ.get(TOKEN, "")
    if url and token and profile is None:
        return Login(checked_server(url), token)
    profiles = read_profiles(environ)
    name = profile or environ.get(PROFILE) or profiles.current
    login = profiles.logins.get(name)
    if login is None and (profile or environ.get(PROFILE)):
        known = ", ".join(sorted(profiles.logins)) or "none"
        raise usage(f"there is no profile {name}; known: {known}")
    if profile is not None and login is not None:
        return login
    if url and (login is None or checked_server(url) != login.server):
        raise CommandFailed(Exits.AUTH, f"{URL} is set; set {TOKEN} too")
    if login is None:
        raise CommandFailed(Exits.AUTH, "you are not logged in; see: crawlyard login --help")
    return Login(login.server, token or login.token)


def checked_server(text: str) -> str:
    """Return ``https://host[:port][/path]`` without a final slash. Raises ``CommandFailed``."""
    try:
        parts = urlsplit(text.strip())
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.username is not None or parts.query or parts.fragment:
        raise usage(f"not the address of a server, such as https://yard.example.com: {text!r}")
    server = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    return server.removesuffix("/api/v1").removesuffix("/admin")
