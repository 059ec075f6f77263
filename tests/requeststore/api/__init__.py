"""Tests of REST of the request store."""
