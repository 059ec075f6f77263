"""What is done to an item before the selector of its inbound sees it (seed S2.22)."""
