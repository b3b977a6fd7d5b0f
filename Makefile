# `make help` lists what there is. Everything else is `cargo xtask --help`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test fmt fmt-check build lint tidy sqlx-prepare sqlx-check doc deny run-tests chaos acceptance setup need-cargo

TARGET := $(or $(CARGO_TARGET_DIR),target)
# Tests kill the server at named places, which only a build with this feature has.
FEATURES := tallystick/failpoints
# Built together with everything else, so that its dependencies are compiled once.
XTASK := $(TARGET)/debug/xtask

# Builds take checked statements from the committed cache, whatever database the caller's environment names.
export SQLX_OFFLINE := true

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: need-cargo setup ## Install what is missing, build, and play the incident: a charge whose reply is lost, and payouts
	cargo build --release
	$(TARGET)/release/tallystick demo $(ARGS)

test: need-cargo setup fmt-check build tidy-built lint sqlx-check doc deny run-tests ## Install what is missing and check everything; what CI runs
	@echo "make test: all checks passed"

fmt: need-cargo ## Format the code
	cargo fmt --all

tidy: need-cargo ## Check the house rules
	cargo xtask tidy

sqlx-prepare: need-cargo setup ## Rewrite .sqlx after a statement or a migration changed
	cargo xtask sqlx-prepare

PAYMENTS ?= 2000
PAYOUTS ?= 1000
KILLS ?= 40
SEED ?= 1
chaos: need-cargo setup ## Kill two servers under load, then compare all books (PAYMENTS=2000 PAYOUTS=1000 KILLS=40 SEED=1)
	cargo xtask chaos --payments $(PAYMENTS) --payouts $(PAYOUTS) --kills $(KILLS) --seed $(SEED)

ACCEPTANCE ?=
NAMES ?=
acceptance: need-cargo setup ## Run outside checks against the release build (ACCEPTANCE=path/to/run NAMES="…")
	@test -n "$(ACCEPTANCE)" || { echo "make acceptance: say which program checks: ACCEPTANCE=path/to/run" >&2; exit 2; }
	cargo build --release
	$(ACCEPTANCE) $(NAMES)

# --- parts of `make test` ---

.PHONY: tidy-built

need-cargo:
	@command -v cargo >/dev/null || { echo "make: cargo is missing. Install Rust from https://rustup.rs and try again" >&2; exit 3; }

setup:
	@scripts/setup.sh

fmt-check:
	cargo fmt --all --check

build:
	cargo build --workspace --bins --features $(FEATURES)

tidy-built: build
	$(XTASK) tidy

lint:
	cargo clippy --workspace --all-targets --all-features -- -D warnings

sqlx-check:
	$(XTASK) sqlx-prepare --check --shared-target

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

deny:
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level error check licenses bans sources; \
	else echo "cargo-deny is not installed: licences are not checked"; fi

run-tests:
	@if cargo nextest --version >/dev/null 2>&1; then \
	    set -x; \
	    $(XTASK) pg run -- cargo test --workspace --doc --features $(FEATURES) --quiet; \
	    $(XTASK) pg run -- cargo nextest run --workspace --features $(FEATURES); \
	else \
	    set -x; \
	    $(XTASK) pg run -- cargo test --workspace --features $(FEATURES); \
	fi
