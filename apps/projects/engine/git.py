"""Access to git: the tags of a remote, and the files of one tag.

Only this module and ``git_process`` use GitPython. A tag is fetched by its full name into a bare
repository and read as an archive. There is no working copy, so that symbolic links, filters and
hooks of an untrusted repository have no effect on this machine.
"""

from __future__ import annotations

import contextlib
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from apps.projects.engine.addresses import RemoteAddress, check_clone_url
from apps.projects.engine.git_process import Credentials, GitFailed, GuardedGit, Watch
from apps.projects.engine.refs import check_tag
from yardkit.addresses import Resolve, resolve_name

__all__ = [
    "FetchedTag",
    "GitFailed",
    "GitRemote",
    "RemoteTag",
    "fetch_tag",
    "list_tags",
    "remote_session",
]

LIST_SECONDS: Final = 20.0
MAX_TAGS: Final = 10_000
DEFAULT_USERNAME: Final = "oauth2"
_READ_SECONDS: Final = 60.0
# Attributes in the repository must not exclude or rewrite files of the archive.
_ATTRIBUTES: Final = "* -export-ignore -export-subst -filter -ident -text\n"


@dataclass(frozen=True)
class GitRemote:
    """Repository on a git server. ``allowed_networks``: networks besides public addresses.

    ``known_hosts`` stores the host keys of ssh servers at the first connection.
    """

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    allowed_networks: Sequence[str] = ()
    known_hosts: Path | None = None
    resolve: Resolve = field(default=resolve_name, repr=False)

    def checked(self) -> RemoteAddress:
        """Return the URL, resolved and checked at this time. Raises ``AddressProblem``."""
        return check_clone_url(
            self.url, allowed_networks=self.allowed_networks, resolve=self.resolve
        )

    @property
    def credentials(self) -> Credentials:
        """Credentials for askpass; servers that require only a token accept any user name."""
        if any(character in self.username + self.password for character in "\n\r\0"):
            raise GitFailed("git_password_characters")
        username = self.username or (DEFAULT_USERNAME if self.password else "")
        return Credentials(username, self.password)


@dataclass(frozen=True, slots=True)
class RemoteTag:
    """Tag of a remote, with its commit."""

    name: str
    commit: str


@dataclass(frozen=True)
class FetchedTag:
    """Commit of a tag in the bare repository at ``folder``.

    ``tag_object``: ID of the annotated tag; for a lightweight tag the ID of the commit.
    """

    git: GuardedGit
    folder: Path
    commit: str
    tag_object: str

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """Return a regular file of the commit; None if it does not exist. Raises ``GitFailed``."""
        listing = self.git.run(
            "--literal-pathspecs",
            *("ls-tree", "-z", "--full-tree", self.commit, "--", posixpath.normpath(path)),
            folder=self.folder,
            timeout=_READ_SECONDS,
        )
        if not listing:
            return None
        mode, _kind, blob = listing.partition(b"\t")[0].decode().split()
        if not mode.startswith("100"):
            raise GitFailed("git_no_plain_file", path=path)
        size = int(self.git.run("cat-file", "-s", blob, folder=self.folder, timeout=_READ_SECONDS))
        if size > max_bytes:
            raise GitFailed("git_file_too_large", path=path, limit=max_bytes)
        return self.git.run(
            "cat-file", "blob", blob, folder=self.folder, timeout=_READ_SECONDS, max_bytes=size
        )

    @contextlib.contextmanager
    def archive(self, *, timeout: float, watch: Watch | None = None) -> Iterator[IO[bytes]]:
        """Return all files of the commit as a tar stream, in git's order. Raises ``GitFailed``."""
        with self.git.stream(
            *("archive", "--format=tar", self.commit),
            folder=self.folder,
            timeout=timeout,
            watch=watch,
        ) as stream:
            yield stream

    def committed_at(self) -> int:
        """Commit time in Unix seconds."""
        output = self.git.run(
            *("show", "--no-patch", "--format=%ct", self.commit),
            folder=self.folder,
            timeout=_READ_SECONDS,
        )
        return max(0, int(output.split()[0]))


@contextlib.contextmanager
def remote_session(remote: GitRemote, home: Path) -> Iterator[tuple[GuardedGit, RemoteAddress]]:
    """Return git, pinned to the addresses that the remote's name resolves to at this time.

    Raises ``AddressProblem``.
    """
    address = remote.checked()
    yield (
        GuardedGit(
            home, address=address, credentials=remote.credentials, known_hosts=remote.known_hosts
        ),
        address,
    )


def list_tags(remote: GitRemote, *, timeout: float = LIST_SECONDS) -> list[RemoteTag]:
    """Return the tags of a remote, highest version first, at most ``MAX_TAGS``.

    Raises ``AddressProblem`` or ``GitFailed``; the messages do not contain the password.
    """
    with tempfile.TemporaryDirectory(prefix="crawlyard-git-") as made:
        home = Path(made)
        with remote_session(remote, home) as (git, address):
            output = git.run(
                *("ls-remote", "--tags", "--sort=-version:refname", "--", address.url),
                folder=home,
                timeout=timeout,
            )
    commits: dict[str, str] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        commit, _tab, ref = line.partition("\t")
        name = ref.removeprefix("refs/tags/")
        if name.endswith("^{}"):
            # The commit of an annotated tag is on a separate line.
            commits[name.removesuffix("^{}")] = commit
        elif name and len(commits) < MAX_TAGS:
            commits.setdefault(name, commit)
    return [RemoteTag(name, commit) for name, commit in commits.items()]


def fetch_tag(
    remote: GitRemote,
    tag: str,
    *,
    folder: Path,
    timeout: float,
    max_bytes: int,
    watch: Watch | None = None,
) -> FetchedTag:
    """Fetch the commit of ``tag``, without history, into the empty ``folder``.

    ``watch`` is called regularly; its exceptions abort the fetch. Raises ``RefRefused``,
    ``AddressProblem``, ``GitFailed``.
    """
    check_tag(tag)
    home, bare = folder / "home", folder / "repository.git"
    home.mkdir(mode=0o700, parents=True)
    ref = f"refs/tags/{tag}"
    with remote_session(remote, home) as (git, address):
        git.run("init", "--quiet", "--bare", "--template=", str(bare), folder=home, timeout=30.0)
        (bare / "info").mkdir(exist_ok=True)
        (bare / "info" / "attributes").write_text(_ATTRIBUTES)

        def watch_size() -> None:
            if watch is not None:
                watch()
            if _size_of(bare) > max_bytes:
                raise GitFailed("git_too_large", limit=max_bytes)

        git.run(
            *("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"),
            *("--", address.url, f"+{ref}:{ref}"),
            folder=bare,
            timeout=timeout,
            watch=watch_size,
        )
        watch_size()
    # No credentials are needed after the fetch.
    local = GuardedGit(home)
    try:
        commit = _id_of(local, bare, f"{ref}^{{commit}}")
    except GitFailed as error:
        # A tag may also point to a blob or a tree.
        raise GitFailed("git_no_commit") from error
    return FetchedTag(local, bare, commit, _id_of(local, bare, ref))


def _id_of(git: GuardedGit, bare: Path, name: str) -> str:
    output = git.run(
        *("rev-parse", "--verify", "--quiet", "--end-of-options", name),
        folder=bare,
        timeout=_READ_SECONDS,
    )
    return output.decode("ascii").strip()


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total
