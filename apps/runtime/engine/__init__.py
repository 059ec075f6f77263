"""The part of this app that knows no Django."""
