# Two commands do everything: `make app` and `make test`. The plain commands behind them are in README.md.
PYTHON ?= python3
BIN := .venv/bin
PYTEST_ARGS ?=

.PHONY: app room test check notebooks bench clean

app: .venv/.ready
	$(BIN)/python -m streamlit run app.py

# Open to the network, with the limits of .streamlit/room.toml.
room: .venv/.ready
	NQLAB_LIMITS=.streamlit/room.toml $(BIN)/python -m streamlit run app.py --server.address 0.0.0.0

test: .venv/.ready
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

notebooks: .venv/.ready
	$(BIN)/jupyter lab notebooks

bench: .venv/.ready
	$(BIN)/python -m nqlab bench

clean:
	rm -rf .venv

.venv/.ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -e .
	$(BIN)/python -m nqlab corpora fetch shakespeare || echo "tiny-shakespeare could not be fetched; the app works with python-docs"
	touch $@
