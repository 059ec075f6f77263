"""What a seed is: its key, its segment, its states. Plain Python."""
