"""Conversion of lines to documents and back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.joblogs.engine.lines import LogLine
from apps.joblogs.engine.words import words_of
from apps.joblogs.stores.base import Ref, StoredLine
from apps.joblogs.stores.elastic.connection import Answer, BulkOperation
from apps.joblogs.stores.elastic.stream_record import ExecutionRecord, StreamRecord, size_of


def kind_of(project: int, job: int, fingerprint: str) -> str:
    """Return the key of an error group; "" for other lines."""
    return f"{project}.{job}.{fingerprint}" if fingerprint else ""


def create_line(
    index: str, record: StreamRecord, execution: ExecutionRecord, line: LogLine
) -> BulkOperation:
    """Return the operation that stores a line unless it exists."""
    document: dict[str, Any] = {
        "@timestamp": line.at.isoformat(),
        "at": line.micros,
        "project": record.project,
        "job": record.job,
        "stream": record.stream,
        "boot": execution.boot,
        "boot_number": execution.number,
        "seq": line.seq,
        "level": line.level,
        "source": line.source,
        "text": line.text,
        "words": " ".join(words_of(line.text)),
        "bytes": size_of(line),
    }
    if line.fingerprint:
        document["fingerprint"] = line.fingerprint
        document["kind"] = kind_of(record.project, record.job, line.fingerprint)
    identity = f"{record.stream}.{execution.boot}.{line.seq}"
    return BulkOperation({"create": {"_index": index, "_id": identity}}, document)


def stored_line(hit: Answer) -> StoredLine:
    """Convert a search hit to a line."""
    source = hit["_source"]
    return StoredLine(
        project=source["project"],
        job=source["job"],
        stream=source["stream"],
        boot=source["boot"],
        ref=Ref(source["boot_number"], source["seq"]),
        at=datetime.fromisoformat(source["@timestamp"]),
        level=source["level"],
        source=source["source"],
        text=source["text"],
        fingerprint=source.get("fingerprint", ""),
    )
