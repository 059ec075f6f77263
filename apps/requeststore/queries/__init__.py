"""Reads of this app that a page or an answer needs."""
