"""Settings from environment variables. docs/settings.md lists every name."""

from __future__ import annotations

import zoneinfo
from pathlib import Path
from urllib.parse import quote, urlsplit

from crawlyard.settings.cache import caches
from crawlyard.settings.database import database
from crawlyard.settings.login import AUTH_PASSWORD_VALIDATORS as AUTH_PASSWORD_VALIDATORS
from crawlyard.settings.login import (
    directory,
    login_limits,
    oidc_client,
    session_limits,
    who_needs_a_code,
)
from crawlyard.settings.logs import logging_settings, logs_url
from crawlyard.settings.mail import mail
from crawlyard.settings.objects import objects
from crawlyard.settings.paths import (
    ROOT,
    check_secret_key,
    data_folder,
    key_from_file,
    new_secret_key,
)
from crawlyard.settings.placeholders import read_placeholders
from crawlyard.settings.requests import RequestNodes, request_prefix, scale_webhook
from crawlyard.settings.routing import anonymous_networks, networks, routing_servers
from crawlyard.settings.schema import SPECTACULAR_SETTINGS as SPECTACULAR_SETTINGS
from crawlyard.settings.tasks import HOUSEKEEPING, celery_broker
from crawlyard.settings.theme import admin_theme
from crawlyard.settings.volumes import run_volumes
from yardkit import topology
from yardkit.addresses import parse_networks
from yardkit.env import Env, EnvError
from yardkit.secretbox import generate_key
from yardspider.scaffold import version as sdk_version

env = Env()

DATA_DIR: Path = data_folder(env.path("CRAWLYARD_DATA", default=ROOT / "data").resolve())

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.secret("SECRET_KEY", default="") or key_from_file(
    DATA_DIR / "secret_key", new_secret_key()
)
check_secret_key(SECRET_KEY, debug=DEBUG)
# The first key encrypts, all keys decrypt: rotation without downtime.
SECRETBOX_KEYS = env.secret("SECRETBOX_KEYS", default="").replace(",", " ").split() or [
    key_from_file(DATA_DIR / "secretbox_key", generate_key())
]
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
if "*" in ALLOWED_HOSTS and not DEBUG:
    raise EnvError("ALLOWED_HOSTS: '*' accepts any Host header; list the names of this server")
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

# --- every store is a URL -------------------------------------------------------------------

DATABASE_URL = env.secret("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'crawlyard.sqlite3'}")
BROKER_URL = env.secret("BROKER_URL", default=f"sqlite:///{DATA_DIR / 'broker.sqlite3'}")
REDIS_URL = env.secret("REDIS_URL", default="")
if REDIS_URL and not REDIS_URL.startswith(("redis://", "rediss://", "unix://")):
    raise EnvError("REDIS_URL: not understood; use redis://host:6379/0")
if "," in urlsplit(REDIS_URL).netloc.rpartition("@")[2]:
    raise EnvError("REDIS_URL: names several hosts, only one is supported")
REDIS_PREFIX = env.str("REDIS_PREFIX", default="crawlyard")
RUNNER_URL = env.str("RUNNER_URL", default="process://")

# --- seeds ----------------------------------------------------------------------------------

SEEDS_URL = env.secret("SEEDS_URL", default=f"rocksdb://{quote(str(DATA_DIR / 'seeds'))}")
if not SEEDS_URL.startswith(("rocksdb:///", "postgresql://", "postgres://")):
    raise EnvError("SEEDS_URL: not understood; use rocksdb:///folder or postgresql://host/name")

# --- stored requests ------------------------------------------------------------------------

# The storage node "default": a folder of SQLite files, PostgreSQL or MongoDB.
REQUESTS_URL = env.secret("REQUESTS_URL", default=f"sqlite://{quote(str(DATA_DIR / 'requests'))}")
# Further nodes for settings of a biz: node2=mongodb://..., node3=...
REQUESTS_NODES = RequestNodes(env, REQUESTS_URL)
# Prefix of databases of bizzes.
REQUESTS_PREFIX = request_prefix(env)
# Database for tables of records; by default the main database.
RECORDS_URL = env.secret("RECORDS_URL", default="") or DATABASE_URL
RECORDS_DIR: Path = env.path("RECORDS_DIR", default=DATA_DIR / "records")
# Bizzes that a fetcher serves: NAME or PROJECT/NAME; empty: all.
FETCHER_BIZZES = env.list("FETCHER_BIZZES", default=[])
# Limits of one fetcher: requests in flight, and bytes of kept pages that wait for their upload.
FETCHER_CONCURRENCY = env.int("FETCHER_CONCURRENCY", default=200, minimum=1, maximum=10_000)
FETCHER_PAGES_BYTES = env.int("FETCHER_PAGES_BYTES", default=1024**3, minimum=0)
# Limit of fetchers that `up` starts or requests from an autoscaler, and the autoscaler's webhook.
FETCHERS_MAX = env.int("FETCHERS_MAX", default=4, minimum=1, maximum=1000)
SCALE_WEBHOOK_URL, SCALE_WEBHOOK_SECRET = scale_webhook(env)

# --- data -----------------------------------------------------------------------------------

_objects = objects(env, DATA_DIR / "objects")
OBJECTS_URL, OBJECTS_ACCESS_KEY, OBJECTS_SECRET_KEY, OBJECTS_PUBLIC_URL, OBJECTS_LISTEN = _objects
# Catalog of Iceberg tables, a REST catalog such as Polaris or Nessie; empty: in the database.
ICEBERG_CATALOG_URL = env.secret("ICEBERG_CATALOG_URL", default="")
# Age at which the data of a run is deleted, unless its dataset says otherwise; 0: never.
DATA_DAYS = env.int("DATA_DAYS", default=0, minimum=0, maximum=36500)
RUN_REQUESTS_DAYS = env.int("RUN_REQUESTS_DAYS", default=30, minimum=0, maximum=36500)

# Networks (CIDR) that deliveries may reach besides public addresses.
DELIVERY_ALLOWED_NETWORKS = env.list("DELIVERY_ALLOWED_NETWORKS", default=[])

# --- sources --------------------------------------------------------------------------------

# Networks (CIDR) of record APIs besides public addresses.
SOURCES_ALLOWED_NETWORKS = env.list("SOURCES_ALLOWED_NETWORKS", default=[])
# Limit of sources that one collector imports concurrently.
SOURCES_AT_ONCE = env.int("SOURCES_AT_ONCE", default=50, minimum=1, maximum=1000)

# --- agents ---------------------------------------------------------------------------------

# Time range of the agents' charts.
AGENT_HISTORY_HOURS = env.int("AGENT_HISTORY_HOURS", default=24, minimum=1, maximum=24 * 90)

# --- logs -----------------------------------------------------------------------------------

# The log store: PostgreSQL where the database is one, else a folder with SQLite; or Elasticsearch.
LOGS_URL = logs_url(env, database=DATABASE_URL, folder=DATA_DIR / "logs")
# Age at which log lines of runs and builds are deleted.
LOG_DAYS = env.int("LOG_DAYS", default=30, minimum=2, maximum=3650)
# Age for DEBUG, INFO and lines without a level; 0: the same as the others.
LOG_QUIET_DAYS = env.int("LOG_QUIET_DAYS", default=0, minimum=0, maximum=3650)
# Limit of text in bytes for each job; beyond it the oldest lines are deleted. 0: unlimited.
LOG_MAX_BYTES = env.int("LOG_MAX_BYTES", default=0, minimum=0)

# --- alerts ---------------------------------------------------------------------------------

_mail = mail(env, DATA_DIR)
EMAIL_BACKEND = _mail.backend
EMAIL_FILE_PATH = _mail.folder or None
EMAIL_HOST, EMAIL_PORT = _mail.host, _mail.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail.user, _mail.password
EMAIL_USE_SSL, EMAIL_USE_TLS = _mail.is_ssl, _mail.is_tls
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = _mail.sender
# Time after its end at which an incident is deleted, with its history and notices.
ALERT_DAYS = env.int("ALERT_DAYS", default=365, minimum=1, maximum=3650)
# Networks (CIDR) that channels may reach besides public addresses.
ALERTS_ALLOWED_NETWORKS = env.list("ALERTS_ALLOWED_NETWORKS", default=[])
try:
    parse_networks(ALERTS_ALLOWED_NETWORKS)
except ValueError as error:
    raise EnvError("ALERTS_ALLOWED_NETWORKS", str(error), "use networks as 10.8.0.0/16") from error

# --- politeness at the center ---------------------------------------------------------------

# For each host, across all agents and runs; 0 is unlimited.
HOST_REQUESTS_PER_SECOND = env.float("HOST_REQUESTS_PER_SECOND", default=10.0, minimum=0.0)
HOST_CONCURRENCY = env.int("HOST_CONCURRENCY", default=8, minimum=0)
ROBOTS_CACHE_SECONDS = env.float("ROBOTS_CACHE_SECONDS", default=3600.0, minimum=0.0)
HELD_LIMIT = env.int("HELD_LIMIT", default=10_000, minimum=1)

# --- routing --------------------------------------------------------------------------------

# {name} in rules -> its value; below the built-in ones of apps.routing.placeholders.
ROUTING_PLACEHOLDERS = read_placeholders(env.secret("ROUTING_PLACEHOLDERS", default="{}"))
# Folders below which rules may write failure files.
ROUTING_FAILURE_DIRS = [
    Path(folder)
    for folder in env.list("ROUTING_FAILURE_DIRS", default=[str(DATA_DIR / "failures")])
]
if not all(folder.is_absolute() for folder in ROUTING_FAILURE_DIRS):
    raise EnvError("ROUTING_FAILURE_DIRS: a path is not whole; use ones such as /var/lib/failures")

# Threads of a router that process batches; one on SQLite, which has one writer at a time.
ROUTING_WORKERS = env.int("ROUTING_WORKERS", default=2, minimum=1, maximum=32)
# Folder below which file inbounds may read.
ROUTING_FILES_DIR: Path = env.path("ROUTING_FILES_DIR", default=DATA_DIR / "routing" / "files")
# Networks (CIDR) that HTTP outbounds may reach besides public addresses.
ROUTING_ALLOWED_NETWORKS = env.list("ROUTING_ALLOWED_NETWORKS", default=[])
# Time after which a finished task is deleted; it stays in the counts.
ROUTING_LEDGER_DAYS = env.int("ROUTING_LEDGER_DAYS", default=7, minimum=1, maximum=3650)
# Networks whose clients may use taskHUB's paths without a token.
COMPAT_ANONYMOUS_FROM = anonymous_networks(env)
# Ports on which the ``server`` of a rule set may listen.
ROUTING_SERVERS = routing_servers(env)

# --- metrics ----------------------------------------------------------------------------------

# Token for scraping /metrics without an account; 16 characters or more.
METRICS_TOKEN = env.secret("METRICS_TOKEN", default="")
if METRICS_TOKEN and len(METRICS_TOKEN) < 16:
    raise EnvError("METRICS_TOKEN: too short; use 16 characters or more")
# Networks whose clients may scrape /metrics without a token.
METRICS_FROM = networks("METRICS_FROM", env.list("METRICS_FROM", default=[]))

# --- deletion ---------------------------------------------------------------------------------

# Time for which deleted projects and jobs can be restored.
DELETED_DAYS = env.int("DELETED_DAYS", default=30, minimum=1, maximum=3650)

# --- projects, webhooks, builds ---------------------------------------------------------------

# Base URL of webhooks, as git servers reach this installation.
PUBLIC_URL = env.str("PUBLIC_URL", default="http://127.0.0.1:8000").rstrip("/")
WEBHOOK_MAX_BYTES = env.int("WEBHOOK_MAX_BYTES", default=25 * 1024 * 1024, minimum=1024)
# Age at which webhook deliveries are deleted; until then they can be replayed.
DELIVERY_DAYS = env.int("DELIVERY_DAYS", default=90, minimum=1, maximum=3650)
# Networks (CIDR) of git servers and registries besides public addresses.
GIT_ALLOWED_NETWORKS = env.list("GIT_ALLOWED_NETWORKS", default=[])
BUILDS_DIR = DATA_DIR / "builds"
# Docker Engine of the build worker.
DOCKER_URL = env.str("DOCKER_URL", default="unix:///var/run/docker.sock")
# Network of the steps of a build: none, host, bridge or a name.
BUILD_NETWORK = env.str("BUILD_NETWORK", default="bridge")
BUILD_MEMORY_BYTES = env.int("BUILD_MEMORY_BYTES", default=2 * 1024**3, minimum=64 * 1024**2)
# Base image of repositories with scrapy.cfg and without a Dockerfile; `make scrapy-image` makes it.
SCRAPY_BASE_IMAGE = env.str("SCRAPY_BASE_IMAGE", default=f"crawlyard-scrapy:{sdk_version()}")

# --- runs -------------------------------------------------------------------------------------

# Broker URL for runs: inside a container 127.0.0.1 is the container itself.
RUN_BROKER_URL = env.secret("RUN_BROKER_URL", default=BROKER_URL)
# RabbitMQ's management API with an administrator's login: each run gets its own account. Used by
# runners only.
BROKER_MANAGEMENT_URL = env.secret("BROKER_MANAGEMENT_URL", default="")
# Network of the containers of runs: bridge, host, none or a name.
RUN_NETWORK = env.str("RUN_NETWORK", default="bridge")
RUN_VOLUMES = run_volumes(env.str("RUN_VOLUMES", default=""))
# Default limits of a run's container.
RUN_CPUS = env.float("RUN_CPUS", default=1.0, minimum=0.01)
RUN_MEMORY_BYTES = env.int("RUN_MEMORY_BYTES", default=1024**3, minimum=16 * 1024**2)
RUN_PIDS = env.int("RUN_PIDS", default=256, minimum=8)
# A host above these limits gets no new run.
RUN_MAX_CPU_PERCENT = env.float("RUN_MAX_CPU_PERCENT", default=90.0, minimum=1.0)
RUN_MIN_MEMORY = env.int("RUN_MIN_MEMORY", default=150 * 1024**2, minimum=0)
RUNS_DIR = DATA_DIR / "runs"
# Folder of modules that a job may name as its spider.
SPIDERS_DIR: Path = env.path("SPIDERS_DIR", default=DATA_DIR / "spiders")
SPIDER_PYTHON_PATH = (str(ROOT / "platform"), str(SPIDERS_DIR))

DATABASES = {"default": database(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = caches(REDIS_URL, REDIS_PREFIX)

# --- Celery -----------------------------------------------------------------------------------

CELERY_BROKER_URL, CELERY_BROKER_TRANSPORT_OPTIONS = celery_broker(BROKER_URL, DATA_DIR)
DEFERRED_TASKS_APP = "crawlyard.celery.app"
CELERY_TASK_DEFAULT_QUEUE = topology.TASKS
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_ALWAYS_EAGER = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_TIMEOUT = 4.0
# No retries here: the sender retries, or a sweep repeats the work.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TIMEZONE = "UTC"
# No queues for results and remote control, which are not used.
CELERY_RESULT_EXPIRES = None
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_DETECT_QUORUM_QUEUES = False
CELERY_BEAT_SCHEDULER = "crawlyard.beat:LeaderScheduler"
CELERY_BEAT_SCHEDULE = HOUSEKEEPING

# --- Django ---------------------------------------------------------------------------------

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "django_celery_beat",
    "axes",
    "crawlyard",
    "apps.dashboard",
    "apps.alerts",
    "apps.routing",
    "apps.requeststore",
    "apps.sources",
    "apps.joblogs",
    "apps.datasets",
    "apps.queuestats",
    "apps.agents",
    "apps.jobs",
    "apps.seeds",
    "apps.projects",
    "apps.configcenter",
    "apps.access",
    "apps.runtime",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "apps.access.middleware.RequestIdMiddleware",
    "apps.access.middleware.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.access.middleware.PasswordChangeMiddleware",
    "apps.access.middleware.SecondFactorMiddleware",
    "apps.access.middleware.LastSeenMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "crawlyard.urls"
ASGI_APPLICATION = "crawlyard.asgi.application"
# REST paths have no trailing slash and accept one; see apps.access.api.urls.
APPEND_SLASH = True
AUTH_USER_MODEL = "access.User"
# Users who must set up a second factor before they see anything.
ADMIN_TOTP = who_needs_a_code(env)
SESSION_HOURS, SESSION_IDLE_MINUTES = session_limits(env)
SESSION_ENGINE = "apps.access.services.sessions"
# Lifetime of a link to set a password.
LINK_HOURS = env.int("LINK_HOURS", default=24, minimum=1, maximum=30 * 24)
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "apps.access.services.login_backend.SessionBackend",
]
OIDC_URL, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET = oidc_client(env)
OIDC_SCOPES = env.str("OIDC_SCOPES", default="openid profile email")
OIDC_GROUPS_CLAIM = env.str("OIDC_GROUPS_CLAIM", default="groups")
# Text of the button on the sign-in page.
OIDC_NAME = env.str("OIDC_NAME", default="single sign-on")
LDAP_URL, LDAP_BIND_DN, LDAP_BIND_PASSWORD, LDAP_START_TLS = directory(env)
LDAP_USERS = env.str("LDAP_USERS", default="")
LDAP_USER_FILTER = env.str("LDAP_USER_FILTER", default="(uid={name})")
LDAP_GROUPS = env.str("LDAP_GROUPS", default="")
LDAP_GROUP_FILTER = env.str("LDAP_GROUP_FILTER", default="(member={dn})")
SSO_ROLES = env.str("SSO_ROLES", default="{}")
# Interval at which accounts are checked at their provider.
SSO_CHECK_SECONDS = env.int("SSO_CHECK_SECONDS", default=300, minimum=60, maximum=86400)
if LDAP_URL:
    AUTHENTICATION_BACKENDS += ["apps.access.services.sign_on.backend.DirectoryBackend"]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.debug",
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
# Events reach each web process through the broker, so memory is enough inside a process.
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
# The second folder translates texts that the admin theme leaves in English.
LOCALE_PATHS = [ROOT / "locale", ROOT / "locale" / "theme"]
USE_I18N = True
# Times with seconds and 24 hours: users compare them with log lines.
FORMAT_MODULE_PATH = ["crawlyard.formats"]
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
try:
    zoneinfo.ZoneInfo(TIME_ZONE)
except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
    raise EnvError(f"TIME_ZONE: {TIME_ZONE!r} is no zone; use one such as Asia/Shanghai") from error
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [ROOT / "static"]
# Serve the apps' static files without a collectstatic step, so that one command is enough.
WHITENOISE_USE_FINDERS = True

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
BEHIND_TLS = env.bool("BEHIND_TLS", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
# Networks whose X-Forwarded-For and X-Forwarded-Proto headers are trusted.
TRUSTED_PROXIES = networks(
    "TRUSTED_PROXIES",
    env.list("TRUSTED_PROXIES", default=["127.0.0.1", "::1"] if BEHIND_TLS else []),
)
if BEHIND_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# Browsers use https only for a year after the first visit by https.
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if BEHIND_TLS else 0

AXES_FAILURE_LIMIT, AXES_COOLOFF_TIME = login_limits(env)
# By user name and address together: otherwise anyone could lock a user out. Further attempts do
# not prolong the lockout.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = AXES_DISABLE_ACCESS_LOG = True
AXES_CLIENT_IP_CALLABLE = "apps.access.services.clients.client_address"
AXES_LOCKOUT_CALLABLE = "apps.access.pages.locked_out"
AXES_ENABLE_ADMIN = AXES_VERBOSE = False

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.access.api.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["apps.access.api.permissions.InsideScopes"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.access.api.parsers.StrictJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["apps.access.api.filters.FilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "apps.access.api.pagination.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "apps.access.api.schema.ApiSchema",
    # Limits for a user, for a token (empty: half of the user's), and for wrong secrets from an
    # address.
    "DEFAULT_THROTTLE_RATES": {
        "user": env.str("REST_RATE", default="6000/minute"),
        "token": env.str("REST_TOKEN_RATE", default=""),
        "guess": env.str("TOKEN_GUESS_RATE", default="20/minute"),
    },
    "EXCEPTION_HANDLER": "apps.access.api.errors.exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

UNFOLD = admin_theme(STATIC_URL)

LOG_LEVEL = env.str(
    "LOG_LEVEL", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
)
LOGGING = logging_settings(LOG_LEVEL)

# Removed from the environment of child processes that do not need them.
SECRET_SETTINGS = frozenset(name for name, setting in env.settings.items() if setting.secret)
