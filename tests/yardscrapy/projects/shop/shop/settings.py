"""Settings of the project."""

BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
USER_AGENT = "shop-bot/1.0"
LOG_LEVEL = "INFO"
RETRY_TIMES = 1
CONCURRENT_REQUESTS_PER_DOMAIN = 16
FEED_EXPORT_ENCODING = "utf-8"
