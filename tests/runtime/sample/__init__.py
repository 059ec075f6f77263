"""An app with one daemon, for the tests of what all daemons have in common."""
