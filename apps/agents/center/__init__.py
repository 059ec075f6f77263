"""Threads of the center: liveness, dispatch, politeness. Plain Python, no database."""
