"""Tests of the admin of the request store."""
