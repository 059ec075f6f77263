"""Log lines in tables of their days (UTC): what the SQL engines share.

``executions`` (one row for each stream and boot), ``holdings`` (lines and bytes by execution, day
and level) and ``days`` are the same in both; so are the main columns of ``lines_20261121``.
"""
