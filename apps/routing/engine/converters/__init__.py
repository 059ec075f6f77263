"""Converters: steps that transform an item before the selector of its inbound is evaluated."""
