"""What only a server with row locks can show; run by test_on_postgres.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import connection, transaction

from apps.access.errors import LastAdmin
from apps.access.models import User
from apps.access.services.accounts import change_account
from tests.access.factories import make_superuser

pytestmark = pytest.mark.django_db(transaction=True)


def without_right(user: User) -> Callable[[], User]:
    def work() -> User:
        try:
            return change_account(actor=None, user=user, values={"is_superuser": False})
        finally:
            connection.close()

    return work


def test_of_two_who_take_the_right_from_each_other_one_is_refused() -> None:
    first, second = make_superuser(), make_superuser()
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            change_account(actor=None, user=first, values={"is_superuser": False})
            other = pool.submit(without_right(second))
            # Who does not wait for the end of this is done by then.
            with suppress(TimeoutError):
                other.result(1.0)
        with pytest.raises(LastAdmin):
            other.result(30.0)
    assert User.objects.get(is_superuser=True) == second
