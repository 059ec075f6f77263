"""The download agent: a process of its own, plain Python, without Django and a database."""
