"""Where the router puts items: queues and services of others, each behind one small interface."""
