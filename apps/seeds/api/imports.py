"""Import of seeds line by line: new seeds, and lines of an export with their states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError, ValidationError

from apps.seeds.api.bodies import read_as, read_json
from apps.seeds.api.lines import Lines
from apps.seeds.api.moments import Moment, to_ms
from apps.seeds.api.service_calls import asker
from apps.seeds.api.shapes import SeedBody, seeds_of
from apps.seeds.engine.seeds import TIMELESS_DUE, URGENT_DUE
from apps.seeds.models import Frontier
from apps.seeds.services.management import manage
from apps.seeds.stores.operations import Restore
from yardkit.protocol import Seed, SeedAnswer
from yardkit.protocol.seeds import KnownSeed, SeedState

_MOST_TOLD: Final = 20
_BATCH: Final = 2048
_BATCH_BYTES: Final = 4 * 1024 * 1024
# Long, so that an import survives a restart of the seed service.
PATIENCE_SECONDS: Final = 30.0


@dataclass
class ImportCounts:
    """Counters of an import; ``problems``: the first rejected lines."""

    lines: int = 0
    new: int = 0
    duplicates: int = 0
    refused: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)

    def count(self, line: int, answer: SeedAnswer) -> None:
        """Count the result of one line."""
        if answer.code == "new":
            self.new += 1
        elif answer.code == "duplicate":
            self.duplicates += 1
        else:
            self.refuse(line, answer.code, answer.text)

    def refuse(self, line: int, code: str, text: str) -> None:
        """Count a rejected line and keep its reason."""
        self.refused += 1
        if len(self.problems) < _MOST_TOLD:
            self.problems.append({"line": line, "code": code, "text": text})


class KnownBody(msgspec.Struct, forbid_unknown_fields=True):
    """Line of an export. Key and segment are computed by the rules of the importing frontier."""

    data: str
    state: str
    segment: Moment | None = None
    begins_at: Moment | None = None
    key: str | None = None
    retry: int = 0
    max_retry: int | None = None
    added_at: Moment | None = None
    changed_at: Moment | None = None
    due_at: Moment | None = None
    urgent: bool = False
    generation: int = 0
    ext: dict[str, Any] | None = None
    owner: str | None = None
    deadline: Moment | None = None


def take_in(frontier: Frontier, lines: Lines) -> ImportCounts:
    """Add the seeds of all lines.

    Raises:
        SeedServiceAway, CallRefused: earlier lines have been added.
        ParseError, BodyTooLarge: see ``Lines``.
    """
    batch = _Batch(frontier)
    for number, line in enumerate(lines, 1):
        batch.take(number, line, plain=lines.plain)
    batch.flush()
    # Lines rejected by the service are known later than lines that are not seeds.
    batch.tally.problems.sort(key=lambda problem: problem["line"])
    return batch.tally


class _Batch:
    """Lines sent to the service in one call: either all new seeds, or all with states."""

    def __init__(self, frontier: Frontier) -> None:
        self.tally = ImportCounts()
        self._frontier = frontier
        self._client = asker(frontier, patience=PATIENCE_SECONDS)
        self._seeds: list[Seed] = []
        self._known: list[KnownSeed] = []
        self._numbers: list[int] = []
        self._bytes = 0

    def take(self, number: int, line: bytes | None, *, plain: bool) -> None:
        """Parse one line and queue its seed."""
        if line is not None:
            line = line.strip()
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line:
                return
        self.tally.lines += 1
        if line is None:
            self.tally.refuse(number, "line_too_long", _("This line is too long."))
            return
        try:
            seed = _read(self._frontier, line, plain=plain)
        except ParseError as error:
            self.tally.refuse(number, "parse_error", str(error.detail))
        except ValidationError as error:
            self.tally.refuse(number, "invalid", _error_text(error))
        except UnicodeDecodeError:
            self.tally.refuse(number, "parse_error", _("This line is not UTF-8."))
        else:
            self._put(number, seed, len(line))

    def flush(self) -> None:
        """Send the queued seeds."""
        answers: list[SeedAnswer] = []
        if self._seeds:
            answers = self._client.add(self._seeds)
        elif self._known:
            answers = manage(self._frontier, Restore(self._known), patience=PATIENCE_SECONDS)
        for number, answer in zip(self._numbers, answers, strict=True):
            self.tally.count(number, answer)
        self._seeds, self._known, self._numbers, self._bytes = [], [], [], 0

    def _put(self, number: int, seed: Seed | KnownSeed, size: int) -> None:
        of_other_kind = self._known if isinstance(seed, Seed) else self._seeds
        full = len(self._numbers) == _BATCH or self._bytes + size > _BATCH_BYTES
        if of_other_kind or full:
            self.flush()
        if isinstance(seed, Seed):
            self._seeds.append(seed)
        else:
            self._known.append(seed)
        self._numbers.append(number)
        self._bytes += size


def _read(frontier: Frontier, line: bytes, *, plain: bool) -> Seed | KnownSeed:
    if plain:
        return Seed(line.decode())
    value = read_json(line)
    if isinstance(value, dict) and "state" in value:
        return _known(frontier, read_as(KnownBody, value))
    if isinstance(value, list) or (isinstance(value, dict) and "seeds" in value):
        raise ValidationError(_("Each line must be one seed."))
    (seed,) = seeds_of(value)
    return seed


def _known(frontier: Frontier, body: KnownBody) -> KnownSeed:
    try:
        state = SeedState[body.state.upper()]
    except KeyError:
        known = ", ".join(candidate.name.lower() for candidate in SeedState)
        text = _("One of these is needed: %s.") % known
        raise ValidationError({"state": [text]}) from None
    # An exported seed is held to the same limits as a new one.
    SeedBody(body.data, None, body.max_retry, body.ext).seed("")
    due = URGENT_DUE if body.urgent else TIMELESS_DUE
    if body.due_at is not None:
        due = to_ms(body.due_at, "due_at")
    added_at = 0 if body.added_at is None else to_ms(body.added_at, "added_at")
    changed_at = added_at if body.changed_at is None else to_ms(body.changed_at, "changed_at")
    return KnownSeed(
        segment=0,
        key="",
        data=body.data,
        state=state,
        retry=body.retry,
        max_retry=frontier.max_retry if body.max_retry is None else body.max_retry,
        added_at=added_at,
        changed_at=changed_at,
        due=due,
        generation=0,
        ext=body.ext or None,
    )


def _error_text(error: ValidationError) -> str:
    detail = error.detail
    if isinstance(detail, dict):
        return "; ".join(
            f"{name}: {' '.join(map(str, problem))}" for name, problem in detail.items()
        )
    return " ".join(map(str, detail))
