"""REST API of jobs, runs, schedules and hosts."""
