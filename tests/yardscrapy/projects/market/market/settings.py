"""Settings of a project as people write them: their own log format, pipelines, extensions."""

BOT_NAME = "market"
SPIDER_MODULES = ["market.spiders"]
LOG_FORMAT = "<%(message)s>"
LOG_DATEFORMAT = "%H h %M"
RETRY_TIMES = 2
DOWNLOAD_DELAY = 0
ITEM_PIPELINES = {"market.pipelines.Checked": 300}
