"""The plain-Python parts: cron, placement, retry rules, the graph of links."""
