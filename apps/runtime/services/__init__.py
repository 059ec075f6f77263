"""Services of this app, and the broker connection of the process."""

from apps.runtime.queries import database_now, is_live, live_daemons, stale_daemons
from apps.runtime.services.broker import before_broker_closes, close_shared_broker, shared_broker
from apps.runtime.services.daemons import (
    beat,
    forget_daemon,
    free_daemon_name,
    is_gone,
    register_daemon,
)
from apps.runtime.services.dead_letters import (
    drop_dead_letter,
    requeue_dead_letter,
    store_dead_letters,
    subscribe_dead_letters,
)
from apps.runtime.services.events import emit, stop_events
from apps.runtime.services.housekeeping import Pruned, prune
from apps.runtime.services.leases import (
    DatabaseHighWater,
    hold_lease,
    lease_worker,
    release_lease,
    renew_lease,
    steady_for,
)
from apps.runtime.services.outbox import drop_outbox_message, enqueue, retry_outbox_message
from apps.runtime.services.processed import claim_message
from apps.runtime.services.relay import relay_outbox, stop_relay, wake_relay
from apps.runtime.services.transactions import in_short_transaction

__all__ = [
    "DatabaseHighWater",
    "Pruned",
    "beat",
    "before_broker_closes",
    "claim_message",
    "close_shared_broker",
    "database_now",
    "drop_dead_letter",
    "drop_outbox_message",
    "emit",
    "enqueue",
    "forget_daemon",
    "free_daemon_name",
    "hold_lease",
    "in_short_transaction",
    "is_gone",
    "is_live",
    "lease_worker",
    "live_daemons",
    "prune",
    "register_daemon",
    "relay_outbox",
    "release_lease",
    "renew_lease",
    "requeue_dead_letter",
    "retry_outbox_message",
    "shared_broker",
    "stale_daemons",
    "steady_for",
    "stop_events",
    "stop_relay",
    "store_dead_letters",
    "subscribe_dead_letters",
    "wake_relay",
]
