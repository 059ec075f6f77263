"""The center's hot path: liveness and dispatch. Plain Python, no database."""
