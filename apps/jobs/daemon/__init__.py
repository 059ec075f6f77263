"""Runner daemon: assigns waiting runs to hosts, starts those of this host, watches and ends
them.
"""

from apps.jobs.daemon.runner import RunnerDaemon

__all__ = ["RunnerDaemon"]
