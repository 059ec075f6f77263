"""The demo: its own data folder, a sample site, a sample job, and all daemons."""
