"""What ``manage.py bench NAME`` measures of the whole, beside a peer in the same run."""
