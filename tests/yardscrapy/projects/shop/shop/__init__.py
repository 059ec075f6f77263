"""A small Scrapy project, as people write them: it knows nothing of the platform."""
