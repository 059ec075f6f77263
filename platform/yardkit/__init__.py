"""Plain Python parts that every process of Crawlyard shares. Nothing here imports Django."""
