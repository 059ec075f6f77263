"""Management commands of access: invitations, first administrator, lockouts."""
