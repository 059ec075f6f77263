"""Runner daemon: assigns waiting runs to hosts, and starts, watches and ends runs of its host."""

from apps.jobs.daemon.runner import RunnerDaemon

__all__ = ["RunnerDaemon"]
