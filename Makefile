# Everything runs through .venv, which never needs to be activated. Start with: make demo
PYTHON ?= python3
VENV   ?= .venv
NAME   ?= download
ARGS   ?=

# Some images switch Python's cache of compiled modules off; then every daemon compiles all of its
# own anew, and starts in twice the time.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the virtual environment ---------------------------------------------------------------
# Each step leaves a stamp and runs again when its requirements change. Installing talks on
# stderr, so that the output of `make demo ARGS="--exit --json"` stays JSON.

$(VENV)/.installed: requirements.txt pyproject.toml
	@sh tools/install.sh $(PYTHON) $(VENV) --require-hashes -r requirements.txt >&2
	@sh tools/install.sh $(PYTHON) $(VENV) --no-deps --editable . >&2 && touch $@

$(VENV)/.installed-%: requirements-%.txt $(VENV)/.installed
	@sh tools/install.sh $(PYTHON) $(VENV) --require-hashes -r $< >&2 && touch $@

.PHONY: check-machine
check-machine: ## Check that python3 >= 3.11, python3-venv and git are here
	@sh tools/check-machine.sh $(PYTHON)

.PHONY: install
install: $(VENV)/.installed ## Make .venv with what the product needs

.PHONY: install-dev
install-dev: $(VENV)/.installed-test $(VENV)/.installed-lint ## The same, with the test and lint tools

# --- run -----------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.installed ## Everything on embedded defaults, a sample site and a sample job
	@$(BIN)/python manage.py demo $(ARGS)

.PHONY: up
up: $(VENV)/.installed ## One box: all daemons under one supervisor, stores from the environment
	@$(BIN)/python manage.py up $(ARGS)

.PHONY: doctor
doctor: $(VENV)/.installed ## Connect to every configured store and print a table
	@$(BIN)/python manage.py doctor $(ARGS)

.PHONY: bench
bench: $(VENV)/.installed-bench ## Measure: make bench NAME=download ARGS="--json"
	@$(BIN)/python manage.py bench $(NAME) $(ARGS)

# --- for spider authors ----------------------------------------------------------------------

# Of the folder $(DIST)/spider an image is made; `make spider-image ARGS="--network=host"` tells
# `docker build` more. The versions are those that the product is tested with.
BASE_IMAGE ?= python:3.11-slim
TAG        ?= crawlyard-spider:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
DIST       ?= dist
PIP        := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: spider-wheel
spider-wheel: $(VENV)/.installed ## The SDK alone as a wheel, in dist/
	@$(PIP) wheel --no-deps --wheel-dir $(DIST) ./platform
	@ls $(DIST)/yardspider-*.whl

.PHONY: spider-image
spider-image: $(VENV)/.installed ## The image that spiders build on: make spider-image BASE_IMAGE=python:3.12-slim TAG=me/spider:1
	@rm -rf $(DIST)/spider && mkdir -p $(DIST)/spider/wheels
	@sed -n 's/^\([a-z0-9].*==.*\) \\$$/\1/p' requirements.txt > $(DIST)/spider/constraints.txt
	@$(PIP) wheel --constraint $(DIST)/spider/constraints.txt --wheel-dir $(DIST)/spider/wheels './platform[local]'
	@docker build --build-arg BASE_IMAGE=$(BASE_IMAGE) -t $(TAG) -f deploy/spider/Dockerfile $(ARGS) $(DIST)/spider

SCRAPY_TAG ?= crawlyard-scrapy:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
.PHONY: scrapy-image
scrapy-image: $(VENV)/.installed ## The image that Scrapy projects build on: make scrapy-image BASE_IMAGE=python:3.12-slim SCRAPY_TAG=me/scrapy:1
	@rm -rf $(DIST)/scrapy && mkdir -p $(DIST)/scrapy/wheels
	@sed -n 's/^\([a-z0-9].*==.*\) \\$$/\1/p' requirements-scrapy.txt > $(DIST)/scrapy/constraints.txt
	@$(PIP) wheel --constraint $(DIST)/scrapy/constraints.txt --wheel-dir $(DIST)/scrapy/wheels './platform[scrapy]'
	@docker build --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg EXTRA=scrapy -t $(SCRAPY_TAG) -f deploy/spider/Dockerfile $(ARGS) $(DIST)/scrapy

# --- the image of the product ----------------------------------------------------------------

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE   ?= crawlyard:$(VERSION)
# Extras that it has: elasticsearch, kafka, impersonate, sso.
EXTRAS  ?= elasticsearch
PINS    := requirements.txt $(EXTRAS:%=requirements-%.txt)
# The runbook is shown on a page.
SHIPPED := apps platform templates static locale docs/runbook.md manage.py

.PHONY: image
image: $(VENV)/.installed ## The image of every process: make image BASE_IMAGE=python:3.12-slim IMAGE=me/crawlyard:1
	@rm -rf $(DIST)/image/source && mkdir -p $(DIST)/image/source $(DIST)/image/wheels
	@git ls-files -z $(SHIPPED) | tar --null --files-from - -c | tar -x -C $(DIST)/image/source
	@rm -f $(DIST)/image/*.txt && cp $(PINS) .dockerignore $(DIST)/image/
	@$(PIP) download --no-deps --only-binary :all: --require-hashes $(PINS:%=-r %) -d $(DIST)/image/wheels
	@docker build --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) -t $(IMAGE) -f deploy/docker/Dockerfile $(ARGS) $(DIST)/image

# --- check ---------------------------------------------------------------------------------

# They are shared by processes, file by file; see tests/plugins/groups.py and tiers.py.
CORES := $(shell nproc 2>/dev/null || echo 2)
# Those of the quick tier compute; those with daemons, browsers and servers mostly wait for others.
QUICK := -n $(or $(PROCESSES),$(shell echo $$(($(CORES) + 1)))) --dist loadgroup --no-loadscope-reorder
ALL   := -n $(or $(PROCESSES),$(shell echo $$(($(CORES) * 2 + 1)))) --dist loadgroup --no-loadscope-reorder
.PHONY: test
test: $(VENV)/.installed-test ## The quick tests, 5 minutes; some of all: make test ARGS="tests/jobs -x"
	@$(BIN)/python -m pytest $(or $(ARGS),--tier quick $(QUICK))

.PHONY: test-all
test-all: $(VENV)/.installed-test ## All tests: also whole installations, browsers, containers, outages
	@$(BIN)/python -m pytest $(or $(ARGS),$(ALL))

.PHONY: test-rest
test-rest: $(VENV)/.installed-test ## Those that make test leaves out
	@$(BIN)/python -m pytest $(or $(ARGS),--tier rest $(ALL))

.PHONY: test-debian13
test-debian13: ## As root: the README's two commands in an empty Debian 13 (make test-debian-sid: unstable)
	@bash .ci/debian trixie

.PHONY: test-debian-sid
test-debian-sid:
	@bash .ci/debian sid

.PHONY: test-mongodb
test-mongodb: $(VENV)/.installed-test $(VENV)/.installed-bench ## The tests and the bench of MongoDB on a real one: REQUESTS_URL=mongodb://... make test-mongodb
	@CRAWLYARD_TEST_MONGODB_URL="$${REQUESTS_URL:?name a MongoDB}" $(BIN)/python -m pytest tests/requeststore -k mongo $(ARGS)
	@store="$$REQUESTS_URL"; env -u REQUESTS_URL $(BIN)/python manage.py bench requests --store "$$store"

.PHONY: test-elasticsearch
test-elasticsearch: $(VENV)/.installed-test ## The tests of logs in Elasticsearch on a real one: LOGS_URL=https://... make test-elasticsearch
	@url="$${LOGS_URL:?name an Elasticsearch}"; env -u LOGS_URL CRAWLYARD_TEST_ELASTIC_URL="$$url" $(BIN)/python -m pytest tests/joblogs/stores -k "elastic and not test_elastic" $(ARGS)

.PHONY: test-minio
test-minio: $(VENV)/.installed-test ## The tests of object stores on a real S3: OBJECTS_URL=s3://bucket?endpoint=... OBJECTS_ACCESS_KEY=... OBJECTS_SECRET_KEY=... make test-minio
	@url="$${OBJECTS_URL:?name a bucket}"; env -u OBJECTS_URL CRAWLYARD_TEST_OBJECTS_URL="$$url" $(BIN)/python -m pytest tests/yardkit/test_objects.py tests/yardkit/test_objects_faults.py tests/datasets/test_kept_pages_s3.py $(ARGS)

# A folder that `tools/spark.sh` fills: Spark, jars, another DuckDB. None of it is the product's.
SPARK ?= .spark
.PHONY: test-spark
test-spark: $(VENV)/.installed-test ## Spark and DuckDB's extension read datasets in place; on a real S3: OBJECTS_URL=s3://bucket?endpoint=... OBJECTS_ACCESS_KEY=... OBJECTS_SECRET_KEY=... make test-spark
	@sh tools/spark.sh $(PYTHON) $(SPARK) >&2
	@url="$$OBJECTS_URL"; env -u OBJECTS_URL CRAWLYARD_TEST_OBJECTS_URL="$$url" CRAWLYARD_TEST_SPARK=$(abspath $(SPARK)) $(BIN)/python -m pytest tests/datasets/test_spark.py $(ARGS)

.PHONY: test-scrapy-conformance
test-scrapy-conformance: $(VENV)/.installed-test ## Scrapy's own tests of download handlers, from a checkout: make test-scrapy-conformance SCRAPY_TESTS=folder; MITMDUMP=path adds proxies
	@SCRAPY_TESTS="$(abspath $(or $(SCRAPY_TESTS),$(error name a checkout of Scrapy)))" $(BIN)/python -m pytest tests/yardscrapy/conformance $(ARGS)

# Folders of projects, each with a scrapy.cfg, and of recordings by the names of the projects.
PROJECTS ?= tests/yardscrapy/projects
.PHONY: test-scrapy
test-scrapy: $(VENV)/.installed-test ## Given Scrapy projects, unchanged, on recorded pages: make test-scrapy PROJECTS=folder RECORDINGS=folder
	@SCRAPY_PROJECTS=$(abspath $(PROJECTS)) SCRAPY_RECORDINGS=$(abspath $(RECORDINGS)) $(BIN)/python -m pytest tests/yardscrapy/test_projects.py $(ARGS)

.PHONY: test-api
test-api: $(VENV)/.installed-test ## More than 20,000 REST calls made up from the schema, as each role: ARGS="-k viewer-"
	@CRAWLYARD_FUZZ=full $(BIN)/python -m pytest tests/rest $(ARGS)

.PHONY: test-faults
test-faults: $(VENV)/.installed-test ## The tests of faults at their full size, an hour; one that was cut off goes on
	@CRAWLYARD_FAULTS=full $(BIN)/python -m pytest -m fault $(or $(ARGS),$(ALL) --resume)

.PHONY: test-fuzz
test-fuzz: $(VENV)/.installed-test ## Made-up values and properties at their full size: ten times what `make test-all` tries
	@CRAWLYARD_FUZZ=full $(BIN)/python -m pytest -m fuzz $(ARGS)

.PHONY: test-long
test-long: $(VENV)/.installed-test ## Long tests that `make test-all` leaves to shorter ones
	@CRAWLYARD_LONG=full $(BIN)/python -m pytest -m long $(ARGS)

.PHONY: test-full
test-full: $(VENV)/.installed-test ## All tests at their full size, hours: what `make test-all` tries in part or leaves out as well
	@CRAWLYARD_FAULTS=full CRAWLYARD_FUZZ=full CRAWLYARD_LONG=full $(BIN)/python -m pytest $(or $(ARGS),$(ALL))

.PHONY: lint
lint: $(VENV)/.installed-test $(VENV)/.installed-lint lint-code lint-types lint-imports ## ruff, mypy, import order

.PHONY: lint-code
lint-code:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: lint-types
lint-types:
	@CRAWLYARD_TEST_DATA=.mypy_cache/settings PYTHONPATH=.:platform $(BIN)/mypy

.PHONY: lint-imports
lint-imports:
	@PYTHONPATH=.:platform $(BIN)/lint-imports

.PHONY: format
format: $(VENV)/.installed-lint ## Let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# --- files made from others, and committed ---------------------------------------------------

.PHONY: coverage-doc
coverage-doc: $(VENV)/.installed ## Write docs/coverage.md from the marks of the tests
	@$(BIN)/python -m tools.coverage_doc

.PHONY: reliability-doc
reliability-doc: $(VENV)/.installed ## Write what `make test-faults` has measured into docs/reliability.md
	@$(BIN)/python -m tools.reliability_doc

.PHONY: reference-doc
reference-doc: $(VENV)/.installed ## Write docs/settings.md, commands.md, metrics.md and the table of rest.md from the code
	@$(BIN)/python -m tools.reference_doc

.PHONY: charts
charts: $(VENV)/.installed ## Draw the charts of docs/performance.md from docs/figures.toml
	@$(BIN)/python -m tools.charts

.PHONY: messages
messages: $(VENV)/.installed ## Collect texts into locale/ (needs gettext) and compile them
	@$(BIN)/python manage.py makemessages --locale zh_Hans --no-wrap --add-location file --ignore .venv --ignore tests
	@$(BIN)/python -m tools.compile_messages

.PHONY: compile-messages
compile-messages: $(VENV)/.installed ## Compile locale/**/*.po in plain Python
	@$(BIN)/python -m tools.compile_messages

LOCK := uv pip compile -q --generate-hashes --no-header --no-emit-index-url --universal --python-version 3.11
.PHONY: requirements
requirements: $(VENV)/.installed ## Pin pyproject.toml into the requirements files
	@$(BIN)/$(LOCK) pyproject.toml -o requirements.txt
	@for group in test lint bench; do $(BIN)/$(LOCK) --group $$group -c requirements.txt -o requirements-$$group.txt || exit 1; done
	@for extra in impersonate browser kafka elasticsearch scrapy sso; do $(BIN)/$(LOCK) pyproject.toml --extra $$extra -c requirements.txt -o requirements-$$extra.txt || exit 1; done
