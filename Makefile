# make demo: set up, then train, forget, prove it and compare, on embedded data with four real processes.
# make test: set up, then lint, type check and run the tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check tests protos bench clean

demo: .venv/ready
	$(BIN)/fedora demo --out runs/demo

test: check tests

check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

tests: .venv/ready
	$(BIN)/pytest

protos: .venv/ready
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/fedora/v1/*.proto

bench: .venv/ready
	$(BIN)/python -m fedora_vfl.bench.step

# The environment is made anew whenever the list of packages changes; `ready` is its last file.
.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo 'Setting up .venv with PyTorch and all else: a few minutes, several GB.'
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install --quiet --quiet --editable '.[vision,dev]'
	@touch $@

clean:
	rm -rf .venv runs
