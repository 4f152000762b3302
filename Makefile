# The front door. A line that begins with "##" is a target of `make help`. CMake builds; CONTRIBUTING.md explains the rest.
BACKHOP_BROKER_VERSIONS ?= 4.0
BACKHOP_TEST_JOBS ?= 8
BACKHOP_BENCH_BROKER_VERSION ?= 4.3
BACKHOP_BENCH_ROUNDS ?= 5
BACKHOP_BENCH_SHARE ?= 1
export BACKHOP_GEMS ?= $(abspath ../shared/gems)
# Python compiles what a program imports; pip would compile all of each package.
export PIP_NO_COMPILE ?= 1
out := build/release
export BACKHOP_MODEL_COMMAND ?= $(abspath $(out))/backhop
broker := tests/broker/broker run
languages := python ruby node
parts := core $(languages)
# The form of the packages that tests run on: linked, or package.
form ?= linked
build = @tools/step "building $(1)" cmake --build --preset release --target $(1)

.PHONY: all help core tested demo test test-live test-packages test-live-packages trees core-alone example-in-go rogue rogue-worker \
    $(addprefix packages-of-,test command $(languages)) rogue-command rogue-python check-packages bench chaos docs packages configured clean \
    $(foreach part,$(parts),test-$(part) test-live-$(part) tests-of-$(part) live-tests-of-$(part)) \
    $(foreach language,$(languages),$(addprefix $(language)-,package linked tests lint release))
## all: builds everything into build/release (the default)
all: tested
	$(call build,all)
## help: prints this list
help:
	@sed -n 's/^## //p' $(firstword $(MAKEFILE_LIST)) | awk -F ': ' '{ printf "make %-24s %s\n", $$1, substr($$0, length($$1) + 3) }'

# All programs that tests run; examples, benchmarks and the programs of chaos are not among them.
tested: $(out)/libbackhop.a
	$(call build,tested)
# The core and the command come first, as the packages of `make test` wait for them.
$(out)/libbackhop.a $(out)/backhop &: configured
	$(call build,backhop-command)

## demo: runs purges that a CDN refuses at its peak, on a private RabbitMQ or on the broker of AMQP_URL
demo: configured
	$(call build,cdn-purge)
	@$(broker) 4.0 -- $(out)/cdn-purge

# `make test` runs the fast profile: all tests without a broker, and the live tests that are short and take another path
# through the code. These run on a model of RabbitMQ. On a real one it runs the strategies, the contract of handlers, and the
# command with the management API. `make test-live` runs all live tests on real ones. A live part is live/VERSION/PART. It has
# a private RabbitMQ, a model (model-4.3), or the broker of AMQP_URL. BACKHOP_TEST_JOBS parts run at a time, the longest first.
# You can run one: make live/4.3/command-rest.
export BACKHOP_DURATIONS ?= $(abspath build/durations)
fresh-durations = rm -rf $(BACKHOP_DURATIONS) && mkdir -p $(BACKHOP_DURATIONS)
side-by-side = $(MAKE) --no-print-directory --keep-going --jobs=$(if $(AMQP_URL),1,$(BACKHOP_TEST_JOBS))
follow = env FOLLOW_END="tests/tools/slowest $(BACKHOP_DURATIONS)" tools/follow $(1) $(side-by-side)
## test: runs the fast profile in minutes, on a model of RabbitMQ and on private brokers
test: test-packages
	+@$(fresh-durations)
	+@$(call follow,build/test/log) packages-of-test trees $(call live,contract) $(parts:%=tests-of-%)
## test-live: runs all tests on RabbitMQ of BACKHOP_BROKER_VERSIONS (4.0)
test-live: test-live-packages
	+@$(fresh-durations)
	+@$(call follow,build/test-live/log) trees $(parts:%=live-tests-of-%)
## test-core: runs the fast profile of one part; also test-python, test-ruby, test-node
$(parts:%=test-%): test-%: test-packages
	+@$(fresh-durations)
	+@$(call follow,build/test/log) trees $(call live,$*-contract) tests-of-$*
## test-live-ruby: runs all tests of one part on RabbitMQ; also test-live-core, test-live-python, test-live-node
$(parts:%=test-live-%): test-live-%: test-live-packages
	+@$(fresh-durations)
	+@$(call follow,build/test-live/log) trees live-tests-of-$*
# Compilers run beside apt. The trees come after it, since both write much.
packages-of-test := $(filter packages-of-test,$(MAKECMDGOALS))
test-packages: packages
	@tools/install-packages --if-password command $(languages)
test-live-packages: packages
	@tools/install-packages command $(languages) proxies browser go
packages-of-test: | packages
	@tools/install-packages command $(languages)
$(addprefix packages-of-,command $(languages)): packages-of-%: | $(packages-of-test) packages
	@tools/install-packages $*

versions := $(if $(AMQP_URL),yours,$(BACKHOP_BROKER_VERSIONS))
live = $(foreach part,$(1),$(versions:%=live/%/$(part)))
# Other versions of Bunny are tested on one version of RabbitMQ.
bunny-version := $(firstword $(versions))
bunnies := $(patsubst $(BACKHOP_GEMS)/%,live/$(bunny-version)/%,$(wildcard $(BACKHOP_GEMS)/bunny-*))
# The page of `backhop web` is tested in a browser on one version of RabbitMQ, and its calls on all of them.
browser := live/$(lastword $(versions))/browser
core-fast := core-fast-1 core-fast-2 core-fast-3
model := $(if $(AMQP_URL),yours,model-4.3)
scripts := $(if $(AMQP_URL),,live/model-4.3/scripts)
tests-of-core: $(call live,command-managed) $(foreach part,command-fast $(core-fast),live/$(model)/$(part)) \
    core-alone $(scripts) rogue-worker
$(languages:%=tests-of-%): tests-of-%: live/$(model)/%-fast %-fast-tests
live-tests-of-core := $(call live,core-slow core-crashes core-rest command-parked command-rest) $(browser) core-alone rogue example-in-go
live-tests-of-python := python-tests rogue-python $(call live,python-adapters python-rest)
live-tests-of-ruby := ruby-tests $(call live,ruby-bunny ruby-rest) $(bunnies)
live-tests-of-node := node-tests $(call live,node-rest node-promises node-callbacks)
live-tests-of-core: $(live-tests-of-core)
live-tests-of-python: $(live-tests-of-python)
live-tests-of-ruby: $(live-tests-of-ruby)
live-tests-of-node: $(live-tests-of-node)

# A machine that has no RabbitMQ yet downloads it while this builds.
trees: | $(packages-of-test) packages
	@[ -n "$(AMQP_URL)" ] || tools/step "RabbitMQ: trees" tests/broker/broker trees $(BACKHOP_BROKER_VERSIONS)
rogue: rogue-worker rogue-command
rogue-worker: | tested
	@tools/step "core: a rogue broker" tests/rogue/run worker $(out)
rogue-command: | tested
	@tools/step "the command: a rogue broker" tests/rogue/run command $(out)
rogue-python: | python-$(form)
	@tools/step "Python: a rogue broker" build/python/default/bin/python tests/rogue/run python

core-alone: | tested packages-of-command
	@tools/step "core: without a broker" ctest --test-dir $(out) --parallel 4 --verbose
example-in-go: | tested
	@tools/step "core: the example in Go" $(broker) 4.3 -- env BACKHOP=$(abspath $(out))/backhop examples/go/run

on = @tools/step "$(1), RabbitMQ $*" $(broker) $* --
# Check's limits are for a machine that does nothing else.
test-live = env CK_TIMEOUT_MULTIPLIER=10 CK_XML_LOG_FILE_NAME=$(BACKHOP_DURATIONS)/$(subst /,-,$@).xml $(out)/test-live
first := strategies copies strangers takeover seeing contract
slow := publishing relay faults connecting holding
adapters := tests/live/test_adapters_live.py
lowest-clients := --with "pika==1.3.*" --with "aio-pika==9.5.*"
of-node = node/tools/test default test/live
contracts := node python ruby core
## live/4.3/command-rest: runs one live part on its own broker; the Makefile lists the parts
live/%: export BACKHOP_BROKER_MEMORY ?= 1
# The command is the broker of the parts that run on the model.
on-model := command-fast $(core-fast) scripts $(languages:%=%-fast) $(languages:%=%-matrix) python-lowest $(notdir $(bunnies))
$(foreach version,3.10 4.0 4.3,$(on-model:%=live/model-$(version)/%)): | tested
live/%/core-fast live/%/core-fast-1 live/%/core-fast-2 live/%/core-fast-3: export CK_EXCLUDE_TAGS = long
live/%/core-fast: | tested
	$(call on,core: the fast profile) $(test-live)
live/%/core-fast-1: | tested
	$(call on,core: $(firstword $(first)) to $(lastword $(first))) $(test-live) $(first)
live/%/core-fast-2: | tested
	$(call on,core: $(firstword $(slow)) to $(lastword $(slow))) $(test-live) $(slow)
live/%/core-fast-3: | tested
	$(call on,core: other suites) $(test-live) but $(first) $(slow)
live/%/core-contract: | tested
	$(call on,core: strategies and contract) env CK_EXCLUDE_TAGS=long $(test-live) strategies contract
# The contract of handlers in all languages, on one broker.
live/%/contract: | tested $(languages:%=%-$(form))
	@$(broker) $* -- env -u MAKEFLAGS BACKHOP_CONTRACT=first $(MAKE) --no-print-directory --keep-going --jobs=4 form=$(form) \
		$(foreach built,tested $(languages:%=%-$(form)),-o $(built)) $(contracts:%=live/$*/%-contract)
live/%/scripts: | tested
	$(call on,scripts of RabbitMQ) tests/model/scripts
live/%/core-crashes: | tested
	$(call on,core: crashes) $(test-live) crashes
live/%/core-slow: | tested
	$(call on,core: slow suites) $(test-live) $(slow)
live/%/core-rest: | tested
	$(call on,core: other suites) $(test-live) but crashes $(slow)
live/%/command-managed live/%/command-parked live/%/command-rest: export BACKHOP_MANAGEMENT = 1
live/%/command-fast: | tested packages-of-command
	$(call on,core: the command) tests/command/run $(out) fast
live/%/command-managed: | tested packages-of-command
	$(call on,core: the command and the management API) tests/command/run $(out) managed
live/%/command-parked: | tested packages-of-command
	$(call on,core: the command's parked queues) tests/command/run $(out) live -p "test_pa*.py"
live/%/command-rest: | tested packages-of-command
	$(call on,core: the rest of the command) tests/command/run $(out) live -p "test_[!p]*.py"
live/%/browser: | tested
	$(call on,core: the page in a browser) tests/browser/run $(out)
live/%/python-fast: | python-$(form)
	$(call on,Python: live) python/tools/test -m "broker and not long"
live/%/python-contract: | python-$(form)
	$(call on,Python: contract) python/tools/test -m "broker and not long" tests/live/test_contract_live.py
# For the model: all live tests of Python but what only RabbitMQ shows, over all carriers, then over the lowest clients.
live/%/python-matrix: | python-$(form)
	$(call on,Python: all carriers) python/tools/test -m broker
live/%/python-lowest: | python-$(form)
	$(call on,Python: the lowest clients) python/tools/test $(lowest-clients) -m broker tests/live
live/%/python-adapters: | python-$(form)
	$(call on,Python: adapters) python/tools/test -m broker $(adapters)
live/%/python-rest: | python-$(form)
	$(call on,Python: the rest) python/tools/test -m broker --ignore=$(adapters)
live/%/ruby-fast: | ruby-$(form)
	$(call on,Ruby: live) ruby/tools/test --jobs 6 live --tag ~long
live/%/ruby-contract: | ruby-$(form)
	$(call on,Ruby: contract) ruby/tools/test live/contract_spec.rb --tag ~long
live/%/ruby-bunny: | ruby-$(form)
	$(call on,Ruby: Bunny) ruby/tools/test live/bunny_spec.rb
live/%/ruby-rest: | ruby-$(form)
	$(call on,Ruby: the rest) ruby/tools/test live --exclude-pattern live/bunny_spec.rb
# All live tests, side by side: each process has a model of its own, so tests may kill it and set alarms.
on-models = @tools/step "$(1), RabbitMQ $(notdir $(@D))" env BACKHOP_EACH="$(abspath tests/broker/broker) run $(notdir $(@D)) --"
live/%/ruby-matrix: | ruby-$(form)
	$(call on-models,Ruby: all carriers) ruby/tools/test --jobs 4 live
live/model-4.3/bunny-%: | ruby-$(form)
	$(call on-models,Ruby: Bunny $*) ruby/tools/with-bunny bunny-$*
live/$(bunny-version)/bunny-%: | ruby-$(form)
	@tools/step "Ruby: Bunny $*, RabbitMQ $(bunny-version)" $(broker) $(bunny-version) -- ruby/tools/with-bunny bunny-$*
live/%/node-fast: | node-$(form)
	$(call on,Node: live) env BACKHOP_EXCLUDE=long $(of-node)
live/%/node-contract: | node-$(form)
	$(call on,Node: contract) env BACKHOP_EXCLUDE=long BACKHOP_SUITES=contract $(of-node)
live/%/node-promises: | node-$(form)
	$(call on,Node: promises) env 'BACKHOP_SUITES=^amqplib, (promises|consume)$$' $(of-node)
live/%/node-callbacks: | node-$(form)
	$(call on,Node: callbacks) env 'BACKHOP_SUITES=^amqplib, (a confirm channel|callbacks)$$' $(of-node)
live/%/node-matrix: | build/node/tools-done
	$(call on-models,Node: all carriers) $(of-node)
live/%/node-rest: | build/node/tools-done
	$(call on,Node: the rest) env 'BACKHOP_SUITES=^(?!amqplib, )' $(of-node)

# The stages of each language's tools/check. Tests run on the package of one of two forms, which are in the same place:
#   package   as users build it, from the source package or tarball. `make check-packages`, benchmarks and CI test it.
#   linked    compiles the wrapper alone, and takes the core and the command from $(out)
# The stage lint checks style, types and documentation. The stage release builds and tests all other forms for a release.
# A stage runs again if a file changed.
$(languages:%=%-package): %-package: build/%/package-done
$(languages:%=%-linked): %-linked: build/%/linked-done
$(languages:%=%-tests): %-tests: build/%/test-done
$(languages:%=%-fast-tests): %-fast-tests: build/%/fast-test-done
$(languages:%=%-lint): %-lint: build/%/lint-done
$(languages:%=%-release): %-release: build/%/release-done

## check-packages: builds all forms of the packages, and checks style, types and documentation
check-packages: packages
	@tools/install-packages $(languages) lint
	+@tools/follow build/check-packages/log $(side-by-side) all $(languages:%=%-lint) $(languages:%=%-release)

.SECONDEXPANSION:
files = $(shell find $(1) -type f -not -path '*/generated/*' -not -path '*/__pycache__/*' -not -path '*/node_modules/*' \
    -not -path '*/ext/backhop/core/*' -not -path '*/ext/backhop/command/*' -not -path '*/ext/backhop/VERSION' -not -name 'backhop_wrap.*')
tools-of-packages := tools/steps.sh tools/compiler-cache.sh tools/hardening tools/libmicrohttpd
contents-of-python := $(addprefix python/,src tools CMakeLists.txt pyproject.toml README.md LICENSE)
contents-of-ruby := $(addprefix ruby/,lib ext exe sig tools backhop.gemspec README.md LICENSE)
contents-of-node := node examples/node bench # with the tests, which run beside the package
contents = $(call files,VERSION bindings $(tools-of-packages) $(contents-of-$*))
build/%/package-done: $(call files,core command cmake CMakeLists.txt) $$(contents) | packages-of-%
	@$*/tools/check package
	@touch $@ build/$*/linked-done build/$*/tools-done
build/%/linked-done: $(out)/libbackhop.a $(out)/backhop $(call files,core/include) $$(contents) | packages-of-%
	@rm -f build/$*/package-done
	@BACKHOP_CORE=$(abspath $(out)) $*/tools/check linked
	@touch $@
# The tests of recipes need NestJS and TypeScript, which the stage package has installed, and linked has not.
build/node/tools-done: node/package-lock.json | node-$(form)
	@[ $@ -nt $< ] || { node/tools/check tools && touch $@; }
build/%/test-done: build/%/$(form)-done $(call files,tests/vectors tests/contract docs) $$(call files,$$* examples/$$*)
	@$*/tools/check test
	@touch $@
build/%/fast-test-done: build/%/$(form)-done $(call files,tests/vectors tests/contract docs) $$(call files,$$* examples/$$*)
	@BACKHOP_EXCLUDE=long $*/tools/check test
	@touch $@
build/%/lint-done: build/%/package-done $$(call files,$$* examples/$$*)
	@tools/install-packages lint
	@$*/tools/check lint
	@touch $@
build/%/release-done: build/%/package-done $$(call files,$$*)
	@$*/tools/check release
	@touch $@

## bench: measures a decision, the ledger, and each language beside what you would have without Backhop
bench: configured $(languages:%=%-package)
	$(call build,bench)
	@$(out)/bench-decision
	@$(out)/bench-ledger
	@$(broker) $(BACKHOP_BENCH_BROKER_VERSION) -- bench/run --rounds $(BACKHOP_BENCH_ROUNDS) \
		--share $(BACKHOP_BENCH_SHARE) $(out) build/bench

## chaos: injects faults into a cluster and accounts for each message. CHAOS="--seed 7 --minutes 30 --version 4.0"
chaos: configured $(languages:%=%-package)
	$(call build,chaos-worker)
	@tests/chaos/run $(CHAOS)

## docs: builds the site of docs/ into build/docs
docs:
	@tools/install-packages docs
	@tools/step "the site" docs/_tools/build

packages:
	@tools/install-packages build broker

configured: | packages
	@tools/step "configuring $(out)" cmake --preset release -DBACKHOP_WITH_LIBRABBITMQ=ON

## clean: deletes build/
clean:
	rm -rf build
