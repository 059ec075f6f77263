"""Store of download requests: durable, sharded, with expiry and look-up by ID."""
