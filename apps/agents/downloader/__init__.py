"""The download agent: a process of plain Python, without Django and a database."""
