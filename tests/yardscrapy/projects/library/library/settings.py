"""Settings as `scrapy startproject` makes them, slow on purpose."""

SPIDER_MODULES = ["library.spiders"]
ROBOTSTXT_OBEY = True
DOWNLOAD_DELAY = 30
