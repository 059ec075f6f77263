"""Log stores: one interface, one adapter per engine. No Django."""
