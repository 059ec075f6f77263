"""Manifest of a backup with checksums, and verification against it."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from crawlyard.backup.errors import Damaged

FORMAT: Final = 1
NAME: Final = "manifest.json"
# Checksum of the manifest itself, in the format of sha256sum.
SUM_NAME: Final = "manifest.json.sha256"
# Size of separately checksummed blocks, so that damage is located this precisely.
BLOCK_BYTES: Final = 16 * 1024 * 1024


class BackupFile(msgspec.Struct, frozen=True):
    """File of a backup. ``path`` is relative to the backup; ``part`` names its part."""

    path: str
    part: str
    bytes: int
    sha256: str
    blocks: list[str]


class KeyFingerprint(msgspec.Struct, frozen=True):
    """Fingerprint of a key that opens ``secrets`` of the sealed values."""

    setting: str
    fingerprint: str
    secrets: int = 0


class PartNote(msgspec.Struct, frozen=True):
    """State of a store at the time of the backup."""

    name: str
    kind: str
    setting: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a backup. ``migrations``: ``app.name`` of each applied migration."""

    format: int = FORMAT
    version: str
    created_at: str
    migrations: list[str]
    keys: list[KeyFingerprint]
    parts: list[PartNote]
    outside: dict[str, str]
    files: list[BackupFile]

    @property
    def total_bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def files_of(self, part: str) -> list[BackupFile]:
        return [file for file in self.files if file.part == part]


def fingerprint(key: str) -> str:
    """Return the fingerprint of a key; keys are random and long, so it reveals nothing."""
    return hashlib.sha256(b"crawlyard key " + key.encode()).hexdigest()[:16]


def described(root: Path, path: Path, part: str) -> BackupFile:
    """Return the entry of a file in the backup at ``root``, with its checksums."""
    whole, blocks, size = hashlib.sha256(), [], 0
    with path.open("rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            whole.update(block)
            blocks.append(hashlib.sha256(block).hexdigest())
            size += len(block)
    relative = path.relative_to(root).as_posix()
    return BackupFile(relative, part, size, whole.hexdigest(), blocks)


def written(manifest: Manifest) -> tuple[bytes, bytes]:
    """Return the encoded manifest and the file with its checksum."""
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    return body, f"{hashlib.sha256(body).hexdigest()}  {NAME}\n".encode()


def read(root: Path) -> Manifest:
    """Return the manifest of a backup. Raises ``Damaged``."""
    try:
        body, digest = (root / NAME).read_bytes(), (root / SUM_NAME).read_bytes()
    except OSError as error:
        raise Damaged(f"{root} is no whole backup: {error.filename}: {error.strerror}") from None
    if digest.split()[:1] != [hashlib.sha256(body).hexdigest().encode()]:
        raise Damaged(f"{root / NAME} is not what was written: its checksum differs")
    try:
        form = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["format"]
        if bytes(form) != str(FORMAT).encode():
            raise Damaged(
                f"{root / NAME} is of format {bytes(form).decode()}, this version reads {FORMAT}"
            )
        return msgspec.json.decode(body, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise Damaged(f"{root / NAME} is no manifest: {error}") from None


def verify(root: Path, manifest: Manifest) -> None:
    """Check every file against its checksums. Raises ``Damaged`` with file and position."""
    parts = {part.name for part in manifest.parts}
    for file in manifest.files:
        plain = PurePosixPath(file.path)
        if plain.is_absolute() or ".." in plain.parts or file.part not in parts:
            raise Damaged(f"{root / NAME}: {file.path!r} is no file of a backup")
        _verify_file(root / file.path, file)


def _verify_file(path: Path, file: BackupFile) -> None:
    try:
        size = path.stat().st_size
        if size < file.bytes:
            raise Damaged(f"{path} is cut: {size} bytes, {file.bytes} were written")
        if size > file.bytes:
            raise Damaged(f"{path} is too long: {size} bytes, {file.bytes} were written")
        with path.open("rb") as opened:
            for number, digest in enumerate(file.blocks):
                if hashlib.sha256(opened.read(BLOCK_BYTES)).hexdigest() != digest:
                    first = number * BLOCK_BYTES
                    last = min(first + BLOCK_BYTES, file.bytes) - 1
                    raise Damaged(
                        f"{path} is damaged: bytes {first} to {last} are not what was written"
                    )
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}") from None
