"""Plain-Python parts: cron, placement, retry rules, job files, the graph of links."""
