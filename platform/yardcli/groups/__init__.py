"""The groups of commands, one module each."""
