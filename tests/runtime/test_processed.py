"""A message is dealt with once by each consumer."""

from __future__ import annotations

import pytest
from django.db import transaction

from apps.runtime.models import ProcessedMessage
from apps.runtime.services import claim_message

pytestmark = pytest.mark.django_db


def test_the_second_time_is_known() -> None:
    assert claim_message(consumer="statistics", message_id="m1")
    assert not claim_message(consumer="statistics", message_id="m1")
    assert claim_message(consumer="center", message_id="m1")
    assert claim_message(consumer="statistics", message_id="m2")


def test_a_claim_lives_and_dies_with_the_effect_it_guards() -> None:
    with transaction.atomic():
        assert claim_message(consumer="statistics", message_id="m1")
        transaction.set_rollback(True)
    assert claim_message(consumer="statistics", message_id="m1")


def test_a_refused_claim_leaves_the_transaction_usable() -> None:
    claim_message(consumer="statistics", message_id="m1")
    with transaction.atomic():
        assert not claim_message(consumer="statistics", message_id="m1")
        assert claim_message(consumer="statistics", message_id="m2")
    assert ProcessedMessage.objects.count() == 2


def test_messages_without_an_id_are_all_new() -> None:
    assert claim_message(consumer="statistics", message_id="")
    assert claim_message(consumer="statistics", message_id="")
