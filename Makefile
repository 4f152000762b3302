# The front door: `make demo`, `make test`, `make bench`. CMake does the work; CONTRIBUTING.md tells how to call it.
BACKHOP_BROKER_VERSIONS ?= 4.0
BACKHOP_BENCH_BROKER_VERSION ?= 4.3
BACKHOP_BENCH_ROUNDS ?= 5
BACKHOP_BENCH_SHARE ?= 1
out := build/release
broker := tests/broker/broker run
build = @tools/quietly "building $(1)" cmake --build --preset release --target $(1)

.PHONY: all demo test test-core test-python test-ruby test-node chaos python-package ruby-package node-package bench packages \
    configured clean
all: packages configured
	$(call build,all)

# Purges that a CDN refuses at its peak, retried: on a private RabbitMQ, or on the broker that AMQP_URL names.
demo: packages configured
	$(call build,cdn-purge)
	@$(broker) 4.0 -- $(out)/cdn-purge

versions := $(if $(AMQP_URL),yours,$(BACKHOP_BROKER_VERSIONS))
live = @for version in $(versions); do \
	echo "testing $(1) on RabbitMQ: $$version"; $(broker) $$version -- $(2) || exit; done

part = $(MAKE) --no-print-directory test

# Each language's tests, then its live ones on a private RabbitMQ of each version, or on the broker that AMQP_URL names:
# side by side, as they wait more than they compute. A part alone: make test-ruby.
test:
	@tools/install-packages build broker command go python ruby node
	+@tools/side-by-side build/test core $(part)-core -- Python $(part)-python -- Ruby $(part)-ruby -- Node $(part)-node

test-core: packages configured
	$(call build,all)
	@tools/quietly "testing the core" ctest --test-dir $(out) --output-on-failure
	@grep -h '^[0-9]*%: Checks' $(out)/Testing/Temporary/LastTest.log
	$(call live,the core,env CK_TIMEOUT_MULTIPLIER=3 $(out)/test-live)
	$(call live,the command,tests/command/run $(out) live)
	@echo "testing the example in Go"; tests/broker/broker run 4.3 -- env BACKHOP=$(abspath $(out))/backhop core/examples/relay/run

test-python: python-package
	$(call live,Python,python/tools/test -m broker)

test-ruby: ruby-package
	$(call live,Ruby,ruby/tools/test live)

test-node: node-package
	$(call live,Node,node/tools/test default test/live)

# The languages' packages, built, installed in places of their own, and tested without a broker, where a file changed.
python-package ruby-package node-package: %-package: build/%/checked

.SECONDEXPANSION:
files = $(shell find $(1) -type f -not -path '*/generated/*' -not -path '*/__pycache__/*' -not -path '*/node_modules/*')
build/%/checked: $(call files,VERSION core bindings cmake tests/vectors tools) $$(call files,$$*) | packages
	@tools/install-packages $*
	@$*/tools/check
	@touch $@

# What a decision costs, and what the ledger; then Backhop in each language beside what one would have without it, on a private RabbitMQ or on
# the broker that AMQP_URL names.
bench: packages configured python-package ruby-package node-package
	$(call build,bench)
	@$(out)/bench-decision
	@$(out)/bench-ledger
	@$(broker) $(BACKHOP_BENCH_BROKER_VERSION) -- core/bench/run --rounds $(BACKHOP_BENCH_ROUNDS) \
		--share $(BACKHOP_BENCH_SHARE) $(out) build/bench

# A cluster of three nodes, clients of all languages, and faults by a seed. CHAOS="--seed 7 --minutes 30 --version 4.0"
chaos: packages configured python-package ruby-package node-package
	$(call build,chaos-worker)
	@tests/chaos/run $(CHAOS)

packages:
	@tools/install-packages build broker

configured: packages
	@tools/quietly "configuring $(out)" cmake --preset release -DBACKHOP_WITH_LIBRABBITMQ=ON

clean:
	rm -rf build
