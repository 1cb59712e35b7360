# The one vocabulary for people and for CI. It needs Python 3.11 to 3.14 and make; all else goes into .venv.
# ARGS=... is passed on to the tool behind a target, e.g. `make test ARGS="-k lease"`.

.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: help run demo test test-fast test-long test-browser mutants lint format e2e bench openapi reference sync docs \
	lock audit build clean venv-server venv-dev venv-docs

python := .venv/bin/python

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

run: venv-server  ## set everything up and serve on LACHESIS_HOST:LACHESIS_PORT (127.0.0.1:8000) with a Redis of its own
	@exec $(python) -m app serve $(ARGS)

demo: venv-server  ## watch a policy learn for about two minutes: service, workers, trainer (ARGS="--seed 1")
	@exec $(python) examples/demo/demo.py $(ARGS)

in_parallel := -n 3 --dist worksteal  # on two cores: many tests wait for processes or for the disk

test: venv-dev  ## all tests but e2e, long ones and those in a browser, in three processes
	@$(python) -m pytest $(in_parallel) -m "not e2e and not long and not browser" $(ARGS)

test-long: venv-dev  ## what takes long by choice: programs as processes, chaos, many cases of fuzzers, packaging
	@$(python) -m pytest $(in_parallel) -m "long and not e2e" $(ARGS)

test-browser: venv-dev  ## the operators' page in a real browser; it needs Chromium (tools/chromium installs it)
	@$(python) -m pytest $(in_parallel) -m browser tests/browser $(ARGS)

test-fast: venv-dev  ## the rules by themselves, in half a minute: no server, fewer examples
	@$(python) -m pytest -q -m "not slow and not long" tests/core $(ARGS)

mutants: venv-dev  ## break rules and scripts on purpose, list what no test notices (ARGS="--sample 30 app/core/ranks")
	@$(python) tools/mutants.py $(ARGS)

lint: venv-dev  ## style, format, types (strict), words, import contracts, rules of the house
	@$(python) -m ruff check .
	@$(python) -m ruff format --check .
	@$(python) -m mypy --python-version 3.10 --package lachesis & sdk=$$!; $(python) -m mypy && wait $$sdk
	@tools/prose
	@$(python) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	@$(python) -m pytest -q -p no:cacheprovider tests/test_house_rules.py

format: venv-dev  ## rewrite the code in the house format
	@$(python) -m ruff check --fix .
	@$(python) -m ruff format .

e2e: venv-dev  ## real Atropos clients, workers and Redis killed in the middle (a virtual environment of its own, once)
	@$(python) -m pytest -n 2 --dist loadfile -m e2e tests/e2e $(ARGS)

bench: venv-dev  ## measure against Atropos and against the limit of this machine
	@$(python) -m benchmarks $(ARGS)

openapi: venv-dev  ## write docs/openapi.json from the code
	@$(python) -c 'import json; from app.main import create_app; from app.settings import ServiceSettings; \
	    print(json.dumps(create_app(ServiceSettings()).openapi(), indent=2, ensure_ascii=False))' > docs/openapi.json.new
	@mv docs/openapi.json.new docs/openapi.json

sync: venv-dev  ## write what the SDK derives: types of settings, and the synchronous classes
	@$(python) -m tools.generate_options
	@$(python) tools/generate_sync.py

reference: venv-dev  ## write docs/reference from the code
	@$(python) -m tools.reference

docs: venv-docs  ## build the site in site/; it needs no internet (open site/index.html); warnings are errors
	@$(python) -m sphinx -q -W --keep-going -b html docs site $(ARGS)

lock_with := $(python) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --extra server pyproject.toml

lock: venv-dev  ## re-lock requirements/ from pyproject.toml (ARGS=--upgrade for the newest of everything)
	@$(lock_with) --output-file requirements/server.lock $(ARGS)
	@$(lock_with) --group dev --output-file requirements/dev.lock $(ARGS)
	@$(lock_with) --extra otel --constraint requirements/dev.lock --output-file requirements/otel.lock $(ARGS)
	@$(lock_with) --group dev --group docs --constraint requirements/dev.lock --output-file requirements/docs.lock $(ARGS)

audit: venv-dev  ## ask for known weaknesses of all locked packages; needs the internet; what is unknown is a failure
	@$(python) -m uv tool run pip-audit@2.10.1 --strict --require-hashes --disable-pip -r requirements/docs.lock $(ARGS) \
	    || { echo 'make audit: failed. The lines above name a weakness, or a package about which nothing is known: then' \
	    'the data of weaknesses was not reached, and the other packages were not checked, either.' >&2; exit 1; }

build: venv-dev  ## the wheel of the SDK, and the SBOM of the service (CycloneDX), in dist/
	@$(python) -m hatchling build --target wheel
	@$(python) -m cyclonedx_py requirements requirements/server.lock --pyproject pyproject.toml --output-reproducible \
	    --of JSON -o dist/lachesis-server.cdx.json
	@$(python) -m tools.sbom dist/lachesis-server.cdx.json

clean:  ## remove what these targets made, except data/
	rm -rf .venv .venv-* dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find app clients tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

venv-server:
	@PYTHON='$(PYTHON)' tools/venv server

venv-dev:
	@PYTHON='$(PYTHON)' tools/venv dev

venv-docs:
	@PYTHON='$(PYTHON)' tools/venv docs
