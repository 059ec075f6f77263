"""Plain Python parts: de-duplication of reports, and clock skew of their senders."""
