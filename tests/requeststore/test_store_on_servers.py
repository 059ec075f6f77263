"""The yard and its upkeep on PostgreSQL nodes and Redis lists: the same tests once more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from django.conf import LazySettings

from apps.requeststore.services.store import close_shared_request_store
from tests.plugins.stores import lend_empty_database
from tests.requeststore.test_accounting import test_stored_is_new_taken_processed_and_expired
from tests.requeststore.test_maintenance import (
    _fresh,
    failing,
    test_cut_off_anywhere_each_request_is_counted_exactly_once,
    test_entries_that_a_queue_has_lost_are_queued_again,
    test_what_nobody_processed_in_time_is_counted_and_shown,
    test_who_dies_with_requests_in_hand_loses_none,
)
from tests.requeststore.test_store import (
    test_a_page_is_merged_over_all_shards,
    test_a_submission_that_was_cut_off_is_completed_by_its_ids,
    test_entries_that_are_none_of_ours_get_a_code_each,
    test_requests_are_stored_by_their_split_and_queued_in_their_order,
    test_what_is_given_back_is_queued_when_its_time_has_come,
    test_what_is_taken_is_finished_with_its_flag,
)
from tests.requeststore.test_store_configuration import (
    test_old_ids_stay_reachable_whatever_is_saved,
)

pytestmark = [pytest.mark.django_db, pytest.mark.services, pytest.mark.slow("15 s")]

__all__ = [
    "_fresh",
    "failing",
    "test_a_page_is_merged_over_all_shards",
    "test_a_submission_that_was_cut_off_is_completed_by_its_ids",
    "test_cut_off_anywhere_each_request_is_counted_exactly_once",
    "test_entries_that_a_queue_has_lost_are_queued_again",
    "test_entries_that_are_none_of_ours_get_a_code_each",
    "test_old_ids_stay_reachable_whatever_is_saved",
    "test_requests_are_stored_by_their_split_and_queued_in_their_order",
    "test_stored_is_new_taken_processed_and_expired",
    "test_what_is_given_back_is_queued_when_its_time_has_come",
    "test_what_is_taken_is_finished_with_its_flag",
    "test_what_nobody_processed_in_time_is_counted_and_shown",
    "test_who_dies_with_requests_in_hand_loses_none",
]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """Two databases, each a node of its own."""
    with lend_empty_database() as one, lend_empty_database() as two:
        yield {"default": one, "second": two}


@pytest.fixture
def request_nodes(
    servers: dict[str, str], redis_url: str, settings: LazySettings, sqlite_broker_url: str
) -> Iterator[dict[str, str]]:
    """In place of the embedded ones."""
    settings.REQUESTS_NODES = servers
    settings.REDIS_URL = redis_url
    # Numbers of projects come again with each test, and so would the names made of them.
    own = f"t{secrets.token_hex(4)}"
    settings.REDIS_PREFIX = settings.REQUESTS_PREFIX = own
    settings.BROKER_URL = sqlite_broker_url
    close_shared_request_store()
    yield servers
    close_shared_request_store()
