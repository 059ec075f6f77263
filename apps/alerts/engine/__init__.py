"""Plain Python: rules, their conditions, quiet hours, the texts of notices. No Django."""
