# Every target sets up what it needs; `make help` lists them.
#
#   PKGS="./relay/... ./core"   the packages that test looks at
#   PORTS="mongodb=27017"       ports for `make services` (default free ones)
#   OUTBOX_CACHE=folder         where downloads are kept

BIN   := .cache/bin
PKGS  ?= ./...
PORTS ?=

.DEFAULT_GOAL := help
.PHONY: help services services-down services-env test demo lint fmt bench soak fuzz-short clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# go run would hide exit statuses and not pass signals on.
$(BIN)/services: FORCE
	@go build -o $@ ./internal/services/cmd
FORCE:

services: $(BIN)/services ## start MongoDB, Kafka, RabbitMQ and an SQS emulator: eval "$(make -s services)"
	@$(BIN)/services up -ports "$(PORTS)"

services-env: $(BIN)/services ## print the environment of those that run
	@$(BIN)/services env

services-down: $(BIN)/services ## stop what `make services` started
	@$(BIN)/services down

test: $(BIN)/services ## all tests, on real services of their own
	@OUTBOX_REQUIRE_SERVICES=1 $(BIN)/services run -- scripts/test $(PKGS)

demo: $(BIN)/services ## relay and broker are killed under load; then everything is counted
	@go build -o $(BIN)/demo ./examples/demo
	@$(BIN)/services run -only mongodb -- $(BIN)/demo

lint: ## golangci-lint, go vet, formatting, go.mod, known vulnerabilities
	@scripts/lint

fmt: ## format the tree
	@scripts/lint fmt

bench: $(BIN)/services ## events/s from MongoDB to Kafka, and latency
	@$(BIN)/services run -only mongodb,kafka -- sh -c 'go run ./bench log && go run ./bench latency'

soak: $(BIN)/services ## the long forms of the tests: an hour or more
	@OUTBOX_REQUIRE_SERVICES=1 OUTBOX_SOAK=1 OUTBOX_TEST_TIMEOUT=4h $(BIN)/services run -- scripts/test $(PKGS)

fuzz-short: ## each fuzz test for ten seconds
	@scripts/fuzz 10s

clean: services-down ## remove what was built and stop what was started; downloads stay
	@rm -rf .cache
