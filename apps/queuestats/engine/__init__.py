"""What needs no Django: which reports are new, and whose clock is wrong."""
