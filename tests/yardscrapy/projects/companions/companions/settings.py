"""Settings of a project that knows nothing of the platform."""

BOT_NAME = "companions"
SPIDER_MODULES = ["companions.spiders"]
TWISTED_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
# Companions bring the headers of their browsers.
USER_AGENT = None
DEFAULT_REQUEST_HEADERS: dict[str, str] = {}
PLAYWRIGHT_LAUNCH_OPTIONS = {"args": ["--no-sandbox", "--disable-gpu"]}
