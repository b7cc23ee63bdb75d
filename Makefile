# Targets install what they lack on Debian and Ubuntu when run as root, and
# say exactly what to install otherwise. Go itself is a prerequisite.

GO      ?= go
DATA    ?= ./data
LISTEN  ?= 127.0.0.1:9000
FUZZTIME ?= 10s

# A clone owned by another user must build too; whoever wants the commit in
# the binary sets GOFLAGS.
GOFLAGS ?= -buildvcs=false
export GOFLAGS

# What we ship has no C in it, and neither has what we check; only the race
# detector needs cgo, and Pebble is told to leave its C compressor out then too.
export CGO_ENABLED = 0

# Packages that are tested without it as well, or only: in the first the race
# detector cuts crash rounds and fault steps short or hides allocations; e2e
# runs a plain binary.
PLAIN_PKGS ?= ./e2e ./storage/local ./storage/object ./gateway/sigv4

# Packages whose tests are more with the tag fabric. Of bench that is one test; the
# others of bench and cmd end helpers by SIGTERM, for which a library of
# libfabric's has a handler that exits with 1.
FABRIC_PKGS ?= ./transport/fabric ./client ./internal/server

.DEFAULT_GOAL := help
.PHONY: help build build-fabric run test test-fabric test-hw bench lint fuzz clean need-go need-c need-fabric

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

need-go:
	@scripts/need go

need-c:
	@scripts/need go cc

need-fabric:
	@scripts/need go cc libfabric

build: need-go ## build bin/objcached (static, no cgo)
	$(GO) build -o bin/objcached ./cmd/objcached

# RDMA needs libfabric, and so cgo; nothing else does.
build-fabric: need-fabric ## build bin/objcached with RDMA (cgo, libfabric)
	CGO_ENABLED=1 $(GO) build -tags fabric -o bin/objcached ./cmd/objcached

run: build ## serve ./data on 127.0.0.1:9000 (DATA=, LISTEN=)
	bin/objcached serve --listen $(LISTEN) --data $(DATA)

# e2e looks at the built binary from outside, so the race detector would only
# slow down its clients; conformance runs against a server that carries it.
test: need-c ## run every test with the race detector, conformance over HTTP and TLS, and e2e
	CGO_ENABLED=1 $(GO) test -race -tags pebblegozstd -timeout 14m $$($(GO) list ./... | grep -v /e2e$$)
	$(GO) test -timeout 14m $(PLAIN_PKGS)

test-fabric: need-fabric ## run the tests of delivery over libfabric, on the providers that need no device
	CGO_ENABLED=1 $(GO) vet -tags fabric $(FABRIC_PKGS) ./bench ./cmd/objcached
	CGO_ENABLED=1 $(GO) tool staticcheck -tags fabric $(FABRIC_PKGS) ./bench ./cmd/objcached
	CGO_ENABLED=1 $(GO) test -tags fabric -timeout 10m $(FABRIC_PKGS)
	CGO_ENABLED=1 $(GO) test -tags fabric -run Fabric ./bench
	OBJCACHED_TEST_FABRIC_SMALL=1 CGO_ENABLED=1 $(GO) test -race -tags fabric -timeout 10m ./transport/fabric

test-hw: need-go ## run the RDMA tests in virtual machines with Soft-RoCE (about a minute; no hardware needed)
	scripts/hw/lab

bench: build ## measure layerwise delivery beside the machine's own limits
	bin/objcached bench layerwise

lint: need-go ## gofmt, go vet, staticcheck, import directions, file length
	@echo 'gofmt -l'; scripts/gofmt-clean
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/importrules
	scripts/file-length

fuzz: need-c ## run every fuzz target for FUZZTIME (default 10s) each
	scripts/fuzz $(FUZZTIME)

clean: ## remove what the targets above built (never ./data)
	rm -rf bin
