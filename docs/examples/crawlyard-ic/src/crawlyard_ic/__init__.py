"""Converters for the logs of company register spiders."""
