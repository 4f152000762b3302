# The front door: `make demo`, `make test`, `make check-packages`, `make bench`. CMake does the work; CONTRIBUTING.md tells how to call it.
BACKHOP_BROKER_VERSIONS ?= 4.0
BACKHOP_TEST_JOBS ?= 6
BACKHOP_BENCH_BROKER_VERSION ?= 4.3
BACKHOP_BENCH_ROUNDS ?= 5
BACKHOP_BENCH_SHARE ?= 1
out := build/release
broker := tests/broker/broker run
build = @tools/step "building $(1)" cmake --build --preset release --target $(1)

.PHONY: all demo test test-core test-python test-ruby test-node parts-of-core parts-of-python parts-of-ruby parts-of-node \
    core-alone example-in-go chaos python-package ruby-package node-package python-tests ruby-tests node-tests \
    check-packages python-release ruby-release node-release bench packages configured clean
all: packages configured
	$(call build,all)

# Purges that a CDN refuses at its peak, retried: on a private RabbitMQ, or on the broker that AMQP_URL names.
demo: packages configured
	$(call build,cdn-purge)
	@$(broker) 4.0 -- $(out)/cdn-purge

# Tests on a broker come in parts, live/VERSION/PART, each with a private RabbitMQ of its own. As they wait more than they
# compute, they run side by side, but where AMQP_URL names the broker that all share; what takes longest begins first. A part
# alone: make live/4.3/command.
versions := $(if $(AMQP_URL),yours,$(BACKHOP_BROKER_VERSIONS))
each = $(foreach part,$(1),$(foreach version,$(versions),live/$(version)/$(part)))
on = @tools/step "$(1), RabbitMQ $*" $(broker) $* --
test-live := env CK_TIMEOUT_MULTIPLIER=3 $(out)/test-live
slow := publishing relay faults connecting holding
adapters := tests/live/test_adapters_live.py
export BACKHOP_GEMS ?= $(abspath ../shared/gems)
bunnies := $(patsubst $(BACKHOP_GEMS)/%,%,$(wildcard $(BACKHOP_GEMS)/bunny-*))
# Bunny speaks to all versions alike.
bunny-broker := $(firstword $(versions))

# Each language's tests without a broker, then its live ones on a private RabbitMQ of each version, or on the broker that
# AMQP_URL names; BACKHOP_TEST_JOBS parts of them at a time, of all languages. A language alone: make test-ruby.
together = $(MAKE) --no-print-directory --keep-going --jobs=$(if $(AMQP_URL),1,$(BACKHOP_TEST_JOBS)) core-first= packages-first=
languages := python ruby node
test: all
	@tools/install-packages command go $(languages)
	+@tools/follow build/test/log $(together) $(languages:%=%-package) parts-of-core $(languages:%=parts-of-%)

test-core: all
test-core test-python test-ruby test-node: test-%:
	+@tools/follow build/test/log $(together) parts-of-$*

parts-of-core: $(call each,core-slow core-crashes core-rest command) core-alone example-in-go
parts-of-python: python-tests $(call each,python-adapters python-rest)
parts-of-ruby: ruby-tests $(call each,ruby-bunny ruby-rest) $(addprefix live/$(bunny-broker)/,$(bunnies))
parts-of-node: node-tests $(call each,node-rest node-promises node-callbacks)

# What tests of the core have built first: nothing, where `make test` just built all of it.
core-first = all
core-alone: | $(core-first)
	@tools/step "core: without a broker" ctest --test-dir $(out) --verbose
example-in-go: | $(core-first)
	@tools/step "core: the example in Go" tests/broker/broker run 4.3 -- env BACKHOP=$(abspath $(out))/backhop core/examples/relay/run

live/%: export BACKHOP_BROKER_MEMORY ?= 1

live/%/core-crashes: | $(core-first)
	$(call on,core: crashes) $(test-live) crashes
live/%/core-slow: | $(core-first)
	$(call on,core: slow suites) $(test-live) $(slow)
live/%/core-rest: | $(core-first)
	$(call on,core: other suites) $(test-live) but crashes $(slow)
live/%/command: export BACKHOP_MANAGEMENT = 1
live/%/command: | $(core-first)
	$(call on,core: the command) tests/command/run $(out) live
live/%/python-adapters: | python-package
	$(call on,Python: adapters) python/tools/test -m broker $(adapters)
live/%/python-rest: | python-package
	$(call on,Python: the rest) python/tools/test -m broker --ignore=$(adapters)
live/%/ruby-bunny: | ruby-package
	$(call on,Ruby: Bunny) ruby/tools/test live/bunny_spec.rb
live/%/ruby-rest: | ruby-package
	$(call on,Ruby: the rest) ruby/tools/test live --exclude-pattern live/bunny_spec.rb
live/$(bunny-broker)/bunny-%: | ruby-package
	@tools/step "Ruby: Bunny $*, RabbitMQ $(bunny-broker)" $(broker) $(bunny-broker) -- ruby/tools/with-bunny bunny-$*
live/%/node-promises: | node-package
	$(call on,Node: promises) env 'BACKHOP_SUITES=^amqplib, (promises|consume)$$' node/tools/test default test/live
live/%/node-callbacks: | node-package
	$(call on,Node: callbacks) env 'BACKHOP_SUITES=^amqplib, (a confirm channel|callbacks)$$' node/tools/test default test/live
live/%/node-rest: | node-package
	$(call on,Node: the rest) env 'BACKHOP_SUITES=^(?!amqplib, )' node/tools/test default test/live

# The languages' packages, built and installed in places of their own, and what is done with them, where a file changed:
# their tests without a broker, and what else a release needs (the stages of each language's tools/check).
python-package ruby-package node-package: %-package: build/%/package-done
python-tests ruby-tests node-tests: %-tests: build/%/test-done
python-release ruby-release node-release: %-release: build/%/release-done

# What is published: the packages in all their forms, how they are written, types, signatures, documentation.
check-packages: all
	@tools/install-packages $(languages)
	+@tools/follow build/check-packages/log $(together) $(languages:%=%-release)

# As core-first: nothing where it is done, so that what takes longest begins at once.
packages-first = packages
.SECONDEXPANSION:
files = $(shell find $(1) -type f -not -path '*/generated/*' -not -path '*/__pycache__/*' -not -path '*/node_modules/*' \
    -not -path '*/ext/backhop/core/*' -not -name 'backhop_wrap.*')
build/%/package-done: $(call files,VERSION core bindings cmake tests/vectors tools) $$(call files,$$*) | $(packages-first)
	@tools/install-packages $*
	@$*/tools/check package
	@touch $@
build/%/test-done: build/%/package-done
	@$*/tools/check test
	@touch $@
build/%/release-done: build/%/package-done
	@$*/tools/check release
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
