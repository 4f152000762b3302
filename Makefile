# The front door: `make demo`, `make test`, `make bench`. CMake does the work; CONTRIBUTING.md tells how to call it.
BACKHOP_BROKER_VERSIONS ?= 4.0
BACKHOP_TEST_JOBS ?= 3
BACKHOP_BENCH_BROKER_VERSION ?= 4.3
BACKHOP_BENCH_ROUNDS ?= 5
BACKHOP_BENCH_SHARE ?= 1
out := build/release
broker := tests/broker/broker run
build = @tools/step "building $(1)" cmake --build --preset release --target $(1)

.PHONY: all demo test test-core test-python test-ruby test-node chaos python-package ruby-package node-package bench packages \
    configured clean
all: packages configured
	$(call build,all)

# Purges that a CDN refuses at its peak, retried: on a private RabbitMQ, or on the broker that AMQP_URL names.
demo: packages configured
	$(call build,cdn-purge)
	@$(broker) 4.0 -- $(out)/cdn-purge

alone = $(MAKE) --no-print-directory test

# Each language's tests, then its live ones on a private RabbitMQ of each version, or on the broker that AMQP_URL names:
# side by side. A language alone: make test-ruby.
test:
	@tools/install-packages build broker command go python ruby node
	+@tools/side-by-side build/test core $(alone)-core -- Python $(alone)-python -- Ruby $(alone)-ruby -- Node $(alone)-node

test-core: packages configured
	$(call build,all)
	@tools/step "core: without a broker" ctest --test-dir $(out) --verbose
	$(call live,$(call each,core-crashes core-slow core-rest command))
	@tools/step "core: the example in Go" tests/broker/broker run 4.3 -- env BACKHOP=$(abspath $(out))/backhop core/examples/relay/run

test-python: python-package
	$(call live,$(call each,python-adapters python-rest))

test-ruby: ruby-package
	@[ -n "$(bunnies)" ] || echo "left out: other Bunnies than the installed one, as there are none in $(BACKHOP_GEMS)"
	$(call live,$(call each,ruby-bunny ruby-rest) $(addprefix $(bunny-broker)/,$(bunnies)))

test-node: node-package
	$(call live,$(call each,node-promises node-callbacks node-rest))

# Tests on a broker come in parts, live/VERSION/PART, each with a private RabbitMQ of its own. As they wait more than they
# compute, they run side by side, but where AMQP_URL names the broker that all share. A part alone: make live/4.3/command.
versions := $(if $(AMQP_URL),yours,$(BACKHOP_BROKER_VERSIONS))
each = $(foreach part,$(1),$(addsuffix /$(part),$(versions)))
live = +@$(MAKE) --no-print-directory --keep-going --jobs=$(if $(AMQP_URL),1,$(BACKHOP_TEST_JOBS)) $(addprefix live/,$(1))
on = @tools/step "$(1), RabbitMQ $*" $(broker) $* --
test-live := env CK_TIMEOUT_MULTIPLIER=3 $(out)/test-live
slow := publishing relay faults connecting holding
adapters := tests/live/test_adapters_live.py
export BACKHOP_GEMS ?= $(abspath ../shared/gems)
bunnies := $(patsubst $(BACKHOP_GEMS)/%,%,$(wildcard $(BACKHOP_GEMS)/bunny-*))
# Bunny speaks to all versions alike.
bunny-broker := $(firstword $(versions))

live/%/core-crashes:
	$(call on,core: crashes) $(test-live) crashes
live/%/core-slow:
	$(call on,core: slow suites) $(test-live) $(slow)
live/%/core-rest:
	$(call on,core: other suites) $(test-live) but crashes $(slow)
live/%/command: export BACKHOP_MANAGEMENT = 1
live/%/command:
	$(call on,core: the command) tests/command/run $(out) live
live/%/python-adapters:
	$(call on,Python: adapters) python/tools/test -m broker $(adapters)
live/%/python-rest:
	$(call on,Python: the rest) python/tools/test -m broker --ignore=$(adapters)
live/%/ruby-bunny:
	$(call on,Ruby: Bunny) ruby/tools/test live/bunny_spec.rb
live/%/ruby-rest:
	$(call on,Ruby: the rest) ruby/tools/test live --exclude-pattern live/bunny_spec.rb
live/$(bunny-broker)/bunny-%:
	@tools/step "Ruby: Bunny $*, RabbitMQ $(bunny-broker)" $(broker) $(bunny-broker) -- ruby/tools/with-bunny bunny-$*
live/%/node-promises:
	$(call on,Node: promises) env 'BACKHOP_SUITES=^amqplib, (promises|consume)$$' node/tools/test default test/live
live/%/node-callbacks:
	$(call on,Node: callbacks) env 'BACKHOP_SUITES=^amqplib, (a confirm channel|callbacks)$$' node/tools/test default test/live
live/%/node-rest:
	$(call on,Node: the rest) env 'BACKHOP_SUITES=^(?!amqplib, )' node/tools/test default test/live

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
	@tools/step "configuring $(out)" cmake --preset release -DBACKHOP_WITH_LIBRABBITMQ=ON

clean:
	rm -rf build
