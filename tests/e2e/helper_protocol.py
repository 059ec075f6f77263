"""The other end of ``helper_process``: imported by processes that are to start quickly."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def answer_questions(answer: Callable[[str, dict[str, Any]], Any]) -> None:
    """The clerk's own part, until nobody asks any more."""
    import django

    django.setup()
    answers = sys.stdout
    # Whatever else is printed must not be taken for an answer.
    sys.stdout = sys.stderr
    for line in sys.stdin:
        question, arguments = json.loads(line)
        try:
            told = {"answer": answer(question, arguments)}
        except Exception as error:  # noqa: BLE001 - the test is told
            traceback.print_exc()
            told = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(told) + "\n")
        answers.flush()
