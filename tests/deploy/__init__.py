"""What stands in deploy/ works, or is at least what it says."""
