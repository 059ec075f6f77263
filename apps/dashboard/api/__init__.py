"""REST API of system health, dead letters, outbox, daemons and periodic tasks."""
