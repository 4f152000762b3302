# The steps of .ci/run, which `make --jobs` schedules in the order of these lists, each after the builds that it needs.
#   change    what each change has to pass
#   release   what a release has to pass: that too, and each test on each version of RabbitMQ
# Users build the ordinary packages, so CI tests these.
form := package
include Makefile

# The parts of `make test` run here, on the model of RabbitMQ and on 4.0. Then what only a real broker shows. C makes all
# decisions, so the core is tested on each version. All its tests run on 4.3. The fast profile runs on 3.10, and on 4.0
# under sanitizers. A language converts and calls: all its carriers are tested on the model. On one version of RabbitMQ its
# adapters are tested, and one case of each class of endings over each carrier (contract). Long steps begin first; then steps
# that wait and steps that compute take turns.
versions-of-scripts := 3.10 4.0 4.3
change := live-asan live/4.3/command-parked live/4.3/command-rest live/4.3/core-slow docs live/4.3/python-adapters
change += ruby-tests live/4.3/core-rest node-tests python-tests core-alone live/3.10/ruby-bunny test-asan live/4.3/browser
change += live/4.0/node-promises $(languages:%=live/model-4.3/%-matrix) $(languages:%=%-lint) rogue rogue-python rogue-asan
change += live/3.10/core-fast live/model-4.3/python-lowest $(bunnies:live/$(bunny-version)/%=live/model-4.3/%) live/4.0/contract
change += $(foreach version,$(versions-of-scripts),live/$(version)/scripts live/model-$(version)/scripts)
change += $(foreach part,$(core-fast) command-fast,live/model-4.3/$(part)) live/4.0/command-managed
change += scripts-asan fuzzing example-in-go example-of-demo test-of-site
change += $(languages:%=linked-%) format prose patches test-of-prose test-of-runs test-of-accountant

# Left to a release, with what shows the same in a change:
#   core-crashes         a crash loop in real time; vectors and the suite `ledger` count crashes on a given clock
#   core on 3.10 and 4.0 long tests: an outage, a kill, the broker's own limits; 4.3 shows them, and 3.10's rules are
#                        in the vectors, in the scripts and in the fast profile
#   python-rest, ruby-rest, node-rest, node-callbacks, other Bunnies
#                        the matrices, python-lowest and bunny-* play all of them on the model, apart from streams, direct
#                        reply-to, TLS and a hold of 30 s in real time

release := tidy oldest-python live-tsan command-asan rogue-tsan helgrind $(languages:%=%-release)
release += test-of-broker example-of-bench soak live-3.8 chaos-of-ci clusters oldest-node newest-node newest-ruby debian-13
release += simulator plants fuzzing-by-chance
release += $(languages:%=bare-%) $(languages:%=install-%) test-tsan test-dev test-no-librabbitmq
release += mutations-of-model $(versions-of-scripts:%=random-%)
release += $(filter-out $(change),$(foreach part,$(parts),$(live-tests-of-$(part))))

.PHONY: change release $(filter-out live/%,$(change) $(release))
change: $(change)
release: $(change) $(release)

# Builds and tests of the core: brokers, gcc, sanitizers, clang, without librabbitmq.
step = @tools/step "$(1)"
on-broker = tests/broker/broker run $(1) --
in-build = $(call step,$(1)) bash -c 'cmake --preset $(2) && cmake --build --preset $(2)'
.PHONY: build-dev build-asan build-tsan build-no-librabbitmq
$(change) $(release): | trees
live-asan command-asan rogue-asan test-asan scripts-asan fuzzing fuzzing-by-chance tidy: | build-asan
live-tsan rogue-tsan test-tsan: | build-tsan
helgrind soak clusters live-3.8 test-dev: | build-dev
test-no-librabbitmq: | build-no-librabbitmq
build-dev:
	$(call in-build,gcc: build,dev)
build-asan:
	$(call in-build,address and undefined sanitizers: build,asan)
build-tsan:
	$(call in-build,thread sanitizer: build,tsan)
build-no-librabbitmq:
	$(call in-build,without librabbitmq: build,no-librabbitmq)

# The ledger's random histories take some times as long under a sanitizer.
test-asan test-tsan: export BACKHOP_LEDGER_HISTORIES = 2000
test-dev:
	$(call step,gcc: test) ctest --test-dir build/dev --verbose
test-asan:
	$(call step,address and undefined sanitizers: test) ctest --test-dir build/asan --verbose
# The model is a process: a report of the sanitizers ends it, and the scripts fail.
scripts-asan:
	$(call step,address and undefined sanitizers: scripts on the model) env BACKHOP_MODEL_COMMAND=$(abspath build/asan/backhop) \
		$(call on-broker,model-4.3) tests/model/scripts
test-tsan:
	$(call step,thread sanitizer: test) ctest --test-dir build/tsan --verbose
test-no-librabbitmq:
	$(call step,without librabbitmq: test) ctest --test-dir build/no-librabbitmq --verbose
fuzzing:
	$(call step,fuzzing) .ci/fuzz
fuzzing-by-chance: | fuzzing
	$(call step,fuzzing by chance) .ci/fuzz $(or $(BACKHOP_FUZZ_SECONDS),600)

# The simulator: other histories each night, which its first line names; and the defects that histories must find.
simulator: | tested
	$(call step,simulator: histories) $(out)/test-sim --seeds $(shell date +%Y%m%d)000000 $(or $(BACKHOP_SIM_HISTORIES),250000)
plants: | tested
	$(call step,simulator: defects that are planted) tests/sim/plants/run

# The core on brokers. The thread sanitizer cannot follow a fork's child: it gets the suites of several threads.
live-asan:
	$(call step,address and undefined sanitizers: live) env CK_TIMEOUT_MULTIPLIER=10 CK_EXCLUDE_TAGS=long \
		CK_XML_LOG_FILE_NAME=$(BACKHOP_DURATIONS)/asan.xml \
		$(call on-broker,4.0) build/asan/test-live
command-asan:
	$(call step,address and undefined sanitizers: command) env BACKHOP_MANAGEMENT=1 \
		$(call on-broker,4.0) tests/command/run build/asan live
live-tsan:
	$(call step,thread sanitizer: live) env CK_TIMEOUT_MULTIPLIER=5 CK_EXCLUDE_TAGS="no-tsan longest" \
		$(call on-broker,4.3) build/tsan/test-live connecting running takeover replay faults stopping operation seeing relay
rogue-asan:
	$(call step,address and undefined sanitizers: a rogue broker) tests/rogue/run worker build/asan
rogue-tsan:
	$(call step,thread sanitizer: a rogue broker) tests/rogue/run worker build/tsan
helgrind:
	$(call step,helgrind: a rogue broker) tests/rogue/run helgrind build/dev
soak clusters chaos-of-ci: export BACKHOP_BROKER_MEMORY = 0
soak:
	$(call step,ten kills of the broker) $(call on-broker,4.3) build/dev/soak
clusters:
	$(call step,a cluster: live) tests/broker/broker cluster 3 4.3 -- build/dev/test-live clusters
# RabbitMQ 3.8 has no quorum queues with a TTL. The worker is tested on the queues that it has.
live-3.8:
	$(call step,RabbitMQ 3.8: live) $(call on-broker,3.8) build/dev/test-live
chaos-of-ci: | all $(languages:%=%-package)
	$(call step,chaos) tests/chaos/run $(or $(BACKHOP_CHAOS),--seed 3 --only rung-leader)

# Scripts must find each defect that is planted in the model. Random scripts, with the date as their seed, must find no
# difference between the model and RabbitMQ.
mutations-of-model: | trees
	$(call step,the model: planted defects) env -u BACKHOP_MODEL_COMMAND tests/tools/plant tests/model/mutations backhop-command \
		--found 'FAILED [^:]*: (.*)' -- tests/broker/broker run model-4.3 -- tests/model/scripts --first
$(versions-of-scripts:%=random-%): random-%: | tested
	$(call step,the model: random scripts on it and on RabbitMQ $*) $(call on-broker,$*) \
		tests/model/scripts --random today --minutes 5 --compare model --jobs 8

# The packages of `make test`.
$(languages:%=linked-%): linked-%: | tested
	$(call step,$*: the package of make test) env BACKHOP_CORE=$(abspath $(out)) \
		BACKHOP_OUT=$(abspath build/ci/linked/$*) $*/tools/check linked

# The packages in other forms, and with other versions of the clients.
bare-python: | python-release
	$(call step,Python: a wheel that carries librabbitmq) $(call on-broker,4.3) python/tools/bare-tree
oldest-python: | python-package
	$(call step,Python: the lowest clients) $(call on-broker,4.3) \
		python/tools/test $(lowest-clients) -m broker tests/live
bare-ruby: | ruby-release
	$(call step,Ruby: a gem that carries librabbitmq) $(call on-broker,4.3) ruby/tools/bare-tree
newest-ruby: | ruby-package
	$(call step,Ruby: the newest Debian's Bunny) $(call on-broker,4.3) ruby/tools/newest-bunny
bare-node: | node-release
	$(call step,Node: an addon that carries librabbitmq) $(call on-broker,4.3) node/tools/bare-tree
# The commands of README and the site, word for word, with these packages. RubyGems takes the gem of the platform.
$(languages:%=install-%): install-%: | %-release
	$(call step,the commands that install: $*) tests/installed/commands $* .
install-ruby: | bare-ruby
oldest-node newest-node: export BACKHOP_SUITES = ^amqplib
oldest-node: | node-release
	$(call step,Node: the lowest amqplib) $(call on-broker,4.3) node/tools/with-client amqplib lowest test/live
newest-node: | node-release
	$(call step,Node: the newest amqplib) $(call on-broker,4.3) node/tools/with-client amqplib newest test/live

# Style, tools, and the front door. The copy of the sources for Debian 13 has no package in the making in it.
format:
	$(call step,clang-format) bash -c "find core command docs examples bench tests -name '*.[ch]' -print0 | \
		xargs -0 clang-format --dry-run -Werror"
tidy:
	$(call step,clang-tidy) bash -c "find core/src command -name '*.c' ! -name absent.c -print0 | \
		xargs -0 -P 2 -n 1 clang-tidy --quiet -p build/asan"
# A release plants these defects: a change must not leave a patch that no longer applies.
patches:
	$(call step,the patches of planted defects) \
		bash -c 'for each in tests/{model/mutations,sim/plants}/*.patch; do git apply --check "$$each" || exit; done'
prose:
	$(call step,prose) tools/prose
# The page must show the rows that the command prints.
test-of-site: | docs all
	$(call step,the site: vectors in the playground) tests/site/run build/docs
	$(call step,the site: its scripts in a browser) tests/browser/run build/release site build/docs
test-of-prose:
	$(call step,prose: the check) python3 tests/tools/test_prose.py
test-of-runs:
	$(call step,the tools that repeat and time tests) python3 tests/tools/test_runs.py
test-of-broker:
	$(call step,RabbitMQ: the tool that runs it) python3 tests/broker/test_broker.py
test-of-accountant:
	$(call step,chaos: the accountant) python3 tests/chaos/test_accountant.py
debian-13: | $(languages:%=%-release)
	$(call step,Debian 13: build and test) .ci/debian-13
example-of-demo: | all
	$(call step,make demo) env -u MAKEFLAGS make demo
example-of-bench: | all $(languages:%=%-package)
	$(call step,make bench) env -u MAKEFLAGS make bench BACKHOP_BENCH_ROUNDS=1 BACKHOP_BENCH_SHARE=0.01
