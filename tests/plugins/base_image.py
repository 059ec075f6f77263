"""A Docker base image made of the Python that runs these tests: no registry is needed for it.

The image holds the interpreter, its standard library, pip, the shared libraries that wheels
expect, a shell (busybox), git and the certificates. User 10001 is there for images built from it.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pip

BUSYBOX = Path("/bin/busybox")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_SKIPPED = frozenset(
    {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "__pycache__"}
    | {"site-packages", "dist-packages"}
)
# Of git what a clone over HTTP needs.
GIT = Path("/usr/bin/git")
_GIT_CORE = "/usr/lib/git-core"
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nspider:x:10001:10001:spider:/home/spider:/bin/sh\n"
_GROUP = b"root:x:0:\nspider:x:10001:\n"
# What a manylinux wheel may use without bringing it along.
_EXPECTED_LIBRARIES = (
    "libc.so.6",
    "libm.so.6",
    "librt.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "libutil.so.1",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libnss_files.so.2",
    "libnss_dns.so.2",
)


def make_base_image(client: docker.DockerClient) -> str:
    """Import the image unless the engine has it already; returns its name with tag."""
    mark = hashlib.sha256(f"{sys.version} {sys.base_prefix} {pip.__version__} 2".encode())
    name, tag = "crawlyard-test-base", mark.hexdigest()[:12]
    if not client.images.list(name=f"{name}:{tag}"):
        client.api.import_image_from_data(
            _archive(),
            repository=name,
            tag=tag,
            changes=[
                "ENV PATH=/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 LANG=C.UTF-8 "
                "LD_LIBRARY_PATH=/usr/local/lib",
                'CMD ["python3"]',
                "LABEL crawlyard.base=test",
            ],
        )
    return f"{name}:{tag}"


def _archive() -> bytes:
    prefix = Path(sys.base_prefix).resolve()
    # Debian's own Python finds its packages only where Debian puts it.
    target = "/usr" if prefix == Path("/usr") else "/usr/local"
    packages = "/usr/lib/python3/dist-packages"
    if target == "/usr/local":
        packages = f"/usr/local/lib/{_VERSION}/site-packages"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        image = _Image(archive)
        for folder in ("proc", "sys", "dev", "etc", "root", "app", "run", "var", "home/spider"):
            image.folder(folder)
        image.folder("tmp", 0o1777)
        program = (prefix / "bin" / _VERSION).resolve()
        image.file(program, f"{target}/bin/{_VERSION}")
        for alias in ("python3", "python"):
            image.link(f"{target}/bin/{alias}", _VERSION)
        for source in _files(prefix / "lib" / _VERSION):
            image.file(
                source, f"{target}/lib/{_VERSION}/{source.relative_to(prefix / 'lib' / _VERSION)}"
            )
        installed = Path(pip.__path__[0])
        for source in _files(installed):
            image.file(source, f"{packages}/pip/{source.relative_to(installed)}")
        image.shell()
        image.git()
        image.libraries(prefix)
        image.text("/etc/passwd", _PASSWD)
        image.text("/etc/group", _GROUP)
        image.text("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
        image.file(CERTIFICATES, str(CERTIFICATES))
    return buffer.getvalue()


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(names):
            if not name.endswith((".pyc", ".a")):
                yield Path(folder, name)


class _Image:
    """What goes into the archive, each path once."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._seen: set[str] = set()
        self._binaries: list[Path] = []

    def file(self, source: Path, target: str) -> None:
        name = target.lstrip("/")
        if name in self._seen or not source.exists():
            return
        self._seen.add(name)
        real = source.resolve()
        self._archive.add(str(real), arcname=name, recursive=False)
        if ".so" in real.name or real.name == _VERSION or real.name.startswith("git"):
            self._binaries.append(real)

    def folder(self, name: str, mode: int = 0o755) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        if name == "home/spider":
            info.uid = info.gid = 10001
        self._archive.addfile(info)

    def text(self, target: str, content: bytes) -> None:
        info = tarfile.TarInfo(target.lstrip("/"))
        info.size, info.mode = len(content), 0o644
        self._archive.addfile(info, io.BytesIO(content))

    def link(self, target: str, to: str) -> None:
        info = tarfile.TarInfo(target.lstrip("/"))
        info.type, info.linkname = tarfile.SYMTYPE, to
        self._archive.addfile(info)

    def shell(self) -> None:
        self.file(BUSYBOX, "/bin/busybox")
        listed = subprocess.run(
            [BUSYBOX, "--list"], capture_output=True, text=True, check=True
        ).stdout.split()
        for name in listed:
            if name != "busybox":
                self.link(f"/bin/{name}", "busybox")

    def git(self) -> None:
        self.file(GIT, str(GIT))
        self.link(f"{_GIT_CORE}/git", str(GIT))
        for name in ("git-remote-http", "git-remote-https"):
            self.file(Path(_GIT_CORE, name), f"{_GIT_CORE}/{name}")

    def libraries(self, prefix: Path) -> None:
        wanted: set[Path] = set()
        for binary in list(self._binaries):
            wanted |= _needed_by(binary)
        folder = _library_folder()
        wanted |= {folder / name for name in _EXPECTED_LIBRARIES if (folder / name).exists()}
        for library in sorted(wanted):
            if library.is_relative_to(prefix) and prefix != Path("/usr"):
                self.file(library, f"/usr/local/lib/{library.name}")
            else:
                self.file(library, str(library))


def _needed_by(binary: Path) -> set[Path]:
    out = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"(?:=> )?(/\S+) \(0x", out)}


def _library_folder() -> Path:
    libc = next(
        path for path in _needed_by(Path(shutil.which("ls") or "/bin/ls")) if "libc.so" in path.name
    )
    return libc.parent
