"""``crawlyard://`` as ``FILES_STORE`` or ``IMAGES_STORE``: files are kept with the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from scrapy.settings import BaseSettings

from yardkit.items.files import is_content_type
from yardspider.files import RunFile

SCHEME: Final = "crawlyard"
_STORES: Final = ("FILES_STORE", "IMAGES_STORE")


def keeps_files(settings: BaseSettings) -> bool:
    """Return whether a media pipeline of the project stores with the run."""
    return any(str(settings.get(name) or "").startswith(f"{SCHEME}:") for name in _STORES)


def register_store(put_file: Callable[[RunFile], None]) -> None:
    """Register the scheme at Scrapy's media pipelines."""
    from scrapy.pipelines.files import FilesPipeline

    class RunFilesStore:
        """Store of a media pipeline: files are named as the pipeline names them."""

        def __init__(self, uri: str) -> None:
            # Nothing but the scheme: the item names the file by its path, so there is no folder.
            pass

        def persist_file(
            self,
            path: str,
            buf: BinaryIO,
            info: object,
            meta: Mapping[str, Any] | None = None,
            headers: Mapping[str, str] | None = None,
        ) -> None:
            buf.seek(0)
            content_type = (headers or {}).get("Content-Type")
            if content_type and not is_content_type(content_type):
                content_type = None
            put_file(RunFile(path, buf.read(), content_type))

        def stat_file(self, path: str, info: object) -> dict[str, Any]:
            """Return that there is no such file: a run does not see the files of earlier ones."""
            return {}

    stores: dict[str, Any] = FilesPipeline.STORE_SCHEMES
    stores[SCHEME] = RunFilesStore
