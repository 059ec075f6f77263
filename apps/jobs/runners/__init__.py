"""How a run is started, watched and stopped on a host. Plain Python."""
