# The front door: `make demo`, `make test`, `make bench`. CMake does the work; CONTRIBUTING.md tells how to call it.
BACKHOP_BROKER_VERSIONS ?= 4.0
BACKHOP_BENCH_BROKER_VERSION ?= 4.3
BACKHOP_BENCH_ROUNDS ?= 5
out := build/release
broker := tests/broker/broker run
build = @tools/quietly "building $(1)" cmake --build --preset release --target $(1)

.PHONY: all demo test test-core test-python python-package bench packages configured clean
all: packages configured
	$(call build,all)

# Purges that a CDN refuses at its peak, retried: on a private RabbitMQ, or on the broker that AMQP_URL names.
demo: packages configured
	$(call build,cdn-purge)
	@$(broker) 4.0 -- $(out)/cdn-purge

versions := $(if $(AMQP_URL),yours,$(BACKHOP_BROKER_VERSIONS))

# Each language's tests, then its live ones on a private RabbitMQ of each version, or on the broker that AMQP_URL names.
test: test-core test-python

test-core: packages configured
	$(call build,all)
	@tools/quietly "testing the core" ctest --test-dir $(out) --output-on-failure
	@grep -h '^[0-9]*%: Checks' $(out)/Testing/Temporary/LastTest.log
	@for version in $(versions); do \
		echo "testing on RabbitMQ: $$version"; $(broker) $$version -- $(out)/test-live || exit; done

test-python: python-package
	@for version in $(versions); do echo "testing Python on RabbitMQ: $$version"; \
		$(broker) $$version -- build/python/default/bin/python -m pytest -q -p no:cacheprovider python/tests || exit; done

# The Python package's archives, built, installed in environments of their own, and tested without a broker.
python-package: packages
	@tools/install-packages python
	@python/tools/check

# What a decision costs; then Backhop beside plain librabbitmq, and in Python beside pika, on a private RabbitMQ or on the
# broker that AMQP_URL names.
bench: packages configured python-package
	$(call build,bench)
	@$(out)/bench-decision
	@$(broker) $(BACKHOP_BENCH_BROKER_VERSION) -- core/bench/run --rounds $(BACKHOP_BENCH_ROUNDS) $(out) build/bench
	@$(broker) $(BACKHOP_BENCH_BROKER_VERSION) -- build/python/default/bin/python python/bench/run \
		--rounds $(BACKHOP_BENCH_ROUNDS) $(out) build/bench

packages:
	@tools/install-packages build broker

configured: packages
	@tools/quietly "configuring $(out)" cmake --preset release -DBACKHOP_WITH_LIBRABBITMQ=ON

clean:
	rm -rf build
