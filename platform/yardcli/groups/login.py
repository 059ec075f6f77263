"""``crawlyard login``, ``logout``, ``whoami`` and ``profiles``."""

from __future__ import annotations

import os
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from yardcli.client import Client
from yardcli.context import Output, Profile, api, list_shown, one_shown, profile_in_use
from yardcli.errors import CommandFailed, Exits, usage
from yardcli.output import note, say
from yardcli.profiles import (
    DEFAULT,
    PROFILE,
    TOKEN,
    URL,
    Login,
    checked_server,
    read_profiles,
    write_profiles,
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def add_to(app: typer.Typer) -> None:
    """Add the commands, which belong to no group."""
    app.command()(login)
    app.command()(logout)
    app.command()(whoami)
    app.command()(profiles)


def login(
    server: Annotated[
        str | None, typer.Argument(help="Such as https://yard.example.com; asked for if missing.")
    ] = None,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from standard input.")
    ] = False,
    profile: Profile = None,
) -> None:
    """Store a server and a token after verifying that they work.

    Make the token in the browser: your name, then API tokens.
    """
    name = profile_in_use() or os.environ.get(PROFILE) or DEFAULT
    if server is None:
        if token_stdin:
            raise usage("--token-stdin: name the server too")
        server = typer.prompt("Server")
    address = checked_server(server)
    parts = urlsplit(address)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        note("warning: over http the token can be read on its way")
    if token_stdin:
        token = sys.stdin.readline().strip()
    else:
        # Never an argument: arguments are visible in the list of processes.
        token = typer.prompt("Token", hide_input=True).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise usage("that is no token")
    made = Login(address, token)
    client = Client(made)
    try:
        me = client.get("me")
    finally:
        client.close()
    stored = read_profiles(os.environ)
    stored.logins[name] = made
    stored.current = name
    path = write_profiles(os.environ, stored)
    note(f"{me['username']} at {address}, kept as {name} in {path}")
    for variable in (URL, TOKEN):
        if os.environ.get(variable):
            note(f"warning: {variable} is set and goes before what is kept")


def logout(profile: Profile = None) -> None:
    """Forget a login. The token stays valid: revoke it where you made it."""
    stored = read_profiles(os.environ)
    name = profile_in_use() or os.environ.get(PROFILE) or stored.current
    if stored.logins.pop(name, None) is None:
        raise CommandFailed(Exits.NOT_FOUND, f"there is no login {name}")
    if stored.current == name:
        stored.current = min(stored.logins, default=DEFAULT)
    write_profiles(os.environ, stored)
    note(f"forgotten: {name}")


def whoami(output: Output = None, profile: Profile = None) -> None:
    """Show the user and permissions of the token."""
    one_shown(api().get("me"))


def profiles(
    use: Annotated[
        str | None, typer.Option("--use", help="Make this profile the default.", show_default=False)
    ] = None,
    output: Output = None,
) -> None:
    """List stored logins."""
    stored = read_profiles(os.environ)
    if use is not None:
        if use not in stored.logins:
            raise CommandFailed(Exits.NOT_FOUND, f"there is no login {use}")
        stored.current = use
        write_profiles(os.environ, stored)
        say(use)
        return
    rows = [
        {"profile": name, "server": credentials.server, "current": name == stored.current}
        for name, credentials in sorted(stored.logins.items())
    ]
    list_shown(rows, ("profile", "server", "current"))
