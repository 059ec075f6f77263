"""Log lines in one table per day (UTC): code shared by the SQL engines.

``executions`` (one row per stream and execution), ``holdings`` (lines and bytes by execution, day
and level) and ``days`` are the same in both; so are the main columns of ``lines_20261121``.
"""
