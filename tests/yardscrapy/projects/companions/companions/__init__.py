"""A project with the handlers of scrapy-playwright and scrapy-impersonate."""
