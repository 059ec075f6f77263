"""Politeness: rate, concurrency and robots.txt limits of hosts. Plain Python."""
