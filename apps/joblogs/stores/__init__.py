"""Where log lines are kept: one port, an adapter for each engine. No Django here."""
