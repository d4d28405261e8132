# Everything that a person types here. `make` lists it.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# All modules of go.work: as directories, and as patterns for one go command over all of them. The system tests, which wait for
# most of their time, come first, so that the others run beside them.
DIRS     = $(shell go list -m -f '{{.Dir}}')
PACKAGES = $(addsuffix /...,$(filter %/e2e,$(DIRS)) $(filter-out %/e2e,$(DIRS)))

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

.PHONY: up
up: servers ## run the whole system without Docker (docker compose up --build runs it with Docker)
	@go build -buildvcs=false -o .fanout/bin/fanout ./cmd/fanout && exec .fanout/bin/fanout up

.PHONY: down
down: ## remove the data of `make up`, after a question (YES=1: none)
	@go run -buildvcs=false ./cmd/fanout down $(if $(filter 1,$(YES)),--yes)

.PHONY: test
test: servers ## the tests of all modules with the race detector, less the fault suite and other long system tests
	go test -short -race -count=1 -p 3 -parallel 6 -timeout 15m $(PACKAGES)

.PHONY: proof
proof: servers ## every system test: each crash point in each way, each kind of fault
	go test -race -count=1 -parallel 6 -timeout 20m ./e2e

# Without the race detector: a lab's workers are the test's own binary, and what a lab promises it promises of the real program.
.PHONY: labs
labs: servers ## every lab, held to what its page claims
	go test -count=1 -parallel 2 -timeout 15m ./labs

.PHONY: race
race: servers ## all tests ten times over, to find those that fail now and then
	go test -race -count=10 -timeout 60m $(PACKAGES)

# A program of its own rather than go test, which would not let its live line through to the terminal.
.PHONY: chaos
chaos: servers ## random faults under load for DURATION (2m), the same ones for the same SEED; then the books
	@mkdir -p .fanout/bin && go test -c -o .fanout/bin/chaos ./e2e
	@cd e2e && DURATION=$(or $(DURATION),2m) SEED=$(SEED) ../.fanout/bin/chaos -test.run '^TestChaos$$' -test.timeout 0 -test.v

# bench/ is no part of go.work: what it measures beside us must not decide which versions we use.
BENCH = mkdir -p .fanout/bin && (cd bench && GOWORK=off go build -buildvcs=false -o ../.fanout/bin/bench .) && .fanout/bin/bench

.PHONY: bench
bench: servers ## this project beside others, on the same work in the same run (ARGS="-only consume", "-h")
	@$(BENCH) $(ARGS)

.PHONY: bench-quick
bench-quick: servers ## the same, a fifth of the work once: an impression in two minutes
	@$(BENCH) -quick $(ARGS)

.PHONY: microbench
microbench: servers ## the benchmarks beside the code, for benchstat
	go test -run '^$$' -bench . -benchmem -timeout 60m $(PACKAGES)

.PHONY: lint
lint: ## gofmt, vet, staticcheck, tidy modules, and each module on its own
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	go vet $(PACKAGES)
	go run $(STATICCHECK) $(PACKAGES)
	cd bench && GOWORK=off go vet ./... && GOWORK=off go run $(STATICCHECK) ./...
	@for dir in $(DIRS) $(CURDIR)/bench; do \
		echo "go mod tidy -diff, go build ./... in $$dir" && cd "$$dir" && \
		GOWORK=off go mod tidy -diff && GOWORK=off go build -buildvcs=false -o /dev/null ./... || exit 1; \
	done

.PHONY: vuln
vuln: ## known vulnerabilities in what the programs use (asks the Go vulnerability database)
	go run $(GOVULNCHECK) $(PACKAGES)

# Redis and PostgreSQL, which the tests and `make up` start as processes of their own.
.PHONY: servers
servers:
	@deploy/install-servers
