"""Where records go: a table, files of JSON lines, or a queue. No Django in here."""
