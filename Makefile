# The front door: make demo, make test, make check-packages, make bench, make docs. CMake builds; CONTRIBUTING.md explains the rest.
BACKHOP_BROKER_VERSIONS ?= 4.0
BACKHOP_TEST_JOBS ?= 4
BACKHOP_BENCH_BROKER_VERSION ?= 4.3
BACKHOP_BENCH_ROUNDS ?= 5
BACKHOP_BENCH_SHARE ?= 1
export BACKHOP_GEMS ?= $(abspath ../shared/gems)
# Python compiles what a program imports; pip would compile all of each package.
export PIP_NO_COMPILE ?= 1
out := build/release
broker := tests/broker/broker run
languages := python ruby node
build = @tools/step "building $(1)" cmake --build --preset release --target $(1)

.PHONY: all demo test test-core test-python test-ruby test-node test-packages tests-of-core tests-of-python tests-of-ruby \
    tests-of-node core-alone example-in-go rogue rogue-python check-packages bench chaos docs packages configured clean \
    $(foreach language,$(languages),$(addprefix $(language)-,package tests lint release))
all: configured
	$(call build,all)

# Runs purges that a CDN refuses at its peak, on a private RabbitMQ or on the broker of AMQP_URL.
demo: configured
	$(call build,cdn-purge)
	@$(broker) 4.0 -- $(out)/cdn-purge

# Tests without a broker, then tests on a broker: live/VERSION/PART, each with a private RabbitMQ, or on the broker of
# AMQP_URL. BACKHOP_TEST_JOBS of them run at a time, the longest first. You can run one: make live/4.3/command.
side-by-side = $(MAKE) --no-print-directory --keep-going --jobs=$(if $(AMQP_URL),1,$(BACKHOP_TEST_JOBS))
test: test-packages
	+@tools/follow build/test/log $(side-by-side) all tests-of-core $(languages:%=tests-of-%)
test-core test-python test-ruby test-node: test-%: test-packages
	+@tools/follow build/test/log $(side-by-side) tests-of-$*
test-packages: packages
	@tools/install-packages command browser go $(languages)

versions := $(if $(AMQP_URL),yours,$(BACKHOP_BROKER_VERSIONS))
live = $(foreach part,$(1),$(versions:%=live/%/$(part)))
# Other versions of Bunny are tested on one version of RabbitMQ.
bunny-version := $(firstword $(versions))
bunnies := $(patsubst $(BACKHOP_GEMS)/%,live/$(bunny-version)/%,$(wildcard $(BACKHOP_GEMS)/bunny-*))
# The page of `backhop web` is tested in a browser on one version of RabbitMQ, and its calls on all of them.
browser := live/$(lastword $(versions))/browser
tests-of-core := $(call live,core-slow core-crashes core-rest command) $(browser) core-alone rogue example-in-go
tests-of-python := python-tests rogue-python $(call live,python-adapters python-rest)
tests-of-ruby := ruby-tests $(call live,ruby-bunny ruby-rest) $(bunnies)
tests-of-node := node-tests $(call live,node-rest node-promises node-callbacks)
tests-of-core: $(tests-of-core)
tests-of-python: $(tests-of-python)
tests-of-ruby: $(tests-of-ruby)
tests-of-node: $(tests-of-node)

rogue: | all
	@tools/step "core: a rogue broker" tests/rogue/run worker $(out)
	@tools/step "the command: a rogue broker" tests/rogue/run command $(out)
rogue-python: | python-package
	@tools/step "Python: a rogue broker" build/python/default/bin/python tests/rogue/run python

core-alone: | all
	@tools/step "core: without a broker" ctest --test-dir $(out) --verbose
example-in-go: | all
	@tools/step "core: the example in Go" $(broker) 4.3 -- env BACKHOP=$(abspath $(out))/backhop examples/go/run

on = @tools/step "$(1), RabbitMQ $*" $(broker) $* --
test-live := env CK_TIMEOUT_MULTIPLIER=3 $(out)/test-live
slow := publishing relay faults connecting holding
adapters := tests/live/test_adapters_live.py
of-node = node/tools/test default test/live
live/%: export BACKHOP_BROKER_MEMORY ?= 1
live/%/core-crashes: | all
	$(call on,core: crashes) $(test-live) crashes
live/%/core-slow: | all
	$(call on,core: slow suites) $(test-live) $(slow)
live/%/core-rest: | all
	$(call on,core: other suites) $(test-live) but crashes $(slow)
live/%/command: export BACKHOP_MANAGEMENT = 1
live/%/command: | all
	$(call on,core: the command) tests/command/run $(out) live
live/%/browser: | all
	$(call on,core: the page in a browser) tests/browser/run $(out)
live/%/python-adapters: | python-package
	$(call on,Python: adapters) python/tools/test -m broker $(adapters)
live/%/python-rest: | python-package
	$(call on,Python: the rest) python/tools/test -m broker --ignore=$(adapters)
live/%/ruby-bunny: | ruby-package
	$(call on,Ruby: Bunny) ruby/tools/test live/bunny_spec.rb
live/%/ruby-rest: | ruby-package
	$(call on,Ruby: the rest) ruby/tools/test live --exclude-pattern live/bunny_spec.rb
live/$(bunny-version)/bunny-%: | ruby-package
	@tools/step "Ruby: Bunny $*, RabbitMQ $(bunny-version)" $(broker) $(bunny-version) -- ruby/tools/with-bunny bunny-$*
live/%/node-promises: | node-package
	$(call on,Node: promises) env 'BACKHOP_SUITES=^amqplib, (promises|consume)$$' $(of-node)
live/%/node-callbacks: | node-package
	$(call on,Node: callbacks) env 'BACKHOP_SUITES=^amqplib, (a confirm channel|callbacks)$$' $(of-node)
live/%/node-rest: | node-package
	$(call on,Node: the rest) env 'BACKHOP_SUITES=^(?!amqplib, )' $(of-node)

# The stages of each language's tools/check. It builds and installs the package, and tests it without a broker. It checks
# style, types and documentation. For a release it also builds and tests all other forms of the package. A stage runs
# again if a file changed.
$(languages:%=%-package): %-package: build/%/package-done
$(languages:%=%-tests): %-tests: build/%/test-done
$(languages:%=%-lint): %-lint: build/%/lint-done
$(languages:%=%-release): %-release: build/%/release-done

check-packages: packages
	@tools/install-packages $(languages)
	+@tools/follow build/check-packages/log $(side-by-side) all $(languages:%=%-lint) $(languages:%=%-release)

.SECONDEXPANSION:
files = $(shell find $(1) -type f -not -path '*/generated/*' -not -path '*/__pycache__/*' -not -path '*/node_modules/*' \
    -not -path '*/ext/backhop/core/*' -not -path '*/ext/backhop/command/*' -not -path '*/ext/backhop/VERSION' -not -name 'backhop_wrap.*')
build/%/package-done: $(call files,VERSION core command bindings cmake tests/vectors tools) $$(call files,$$*) | packages
	@tools/install-packages $*
	@$*/tools/check package
	@touch $@
build/%/test-done: build/%/package-done
	@$*/tools/check test
	@touch $@
build/%/lint-done: build/%/package-done
	@$*/tools/check lint
	@touch $@
build/%/release-done: build/%/package-done
	@$*/tools/check release
	@touch $@

# Measures a decision, the ledger, and Backhop in each language beside what you would have without it.
bench: configured $(languages:%=%-package)
	$(call build,bench)
	@$(out)/bench-decision
	@$(out)/bench-ledger
	@$(broker) $(BACKHOP_BENCH_BROKER_VERSION) -- bench/run --rounds $(BACKHOP_BENCH_ROUNDS) \
		--share $(BACKHOP_BENCH_SHARE) $(out) build/bench

# A cluster of three nodes, clients of all languages, and faults by a seed. CHAOS="--seed 7 --minutes 30 --version 4.0"
chaos: configured $(languages:%=%-package)
	$(call build,chaos-worker)
	@tests/chaos/run $(CHAOS)

# Builds the site of docs/ into build/docs.
docs:
	@tools/install-packages docs
	@tools/step "the site" docs/_tools/build

packages:
	@tools/install-packages build broker

configured: | packages
	@tools/step "configuring $(out)" cmake --preset release -DBACKHOP_WITH_LIBRABBITMQ=ON

clean:
	rm -rf build
