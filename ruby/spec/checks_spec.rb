# frozen_string_literal: true

require "pathname"
require "spec_helper"
require "backhop/bunny"

# Wrong values of options, through the public classes: each is an error of Backhop's own, in the
# user's names and units.
RSpec.describe "A wrong value" do
  topology = Backhop::Topology.new("work")
  channel = Struct.new(:connection).new(Bunny.new)
  made = {
    "Policy" => ->(**given) { Backhop::Policy.new(**given) },
    "Topology" => ->(**given) { Backhop::Topology.new("work", **given) },
    "Bunny::Retrier" => ->(queue: "work", **given) { Backhop::Bunny::Retrier.new(channel, queue: queue, **given) },
    "Worker" => ->(uri: "amqp://localhost", queue: "work", **given) { Backhop::Worker.new(uri, queue: queue, **given) },
    "Breaker" => ->(name: "billing", **given) { Backhop::Breaker.new(name, **given) },
    "rehearse" => ->(**given) { Backhop::Testing.rehearse("body", **given) { nil } }
  }
  shared = {
    strategy: [:hope, "ladder", 1], queue_type: ["quorum", :stream, true], namespace: [7, :backhop],
    series: [7, "10", 10.5], stripes: [0, 65, -1, "2", 1.5, true],
    work_queue: [true, "quorum"], work_queue_arguments: [[], "x", { "x-max-length" => 1.5 },
                                                         { "x-max-length" => 2**63 }], policy: [{}, 5, "fast"],
    queue: [nil, "", 5, :work, "q" * 248], mode: ["create", :hope, nil, false], never: ["KeyError", [KeyError, nil], 5],
    only: ["KeyError", [5]], legacy_counter: [5, :retries, "", "x" * 256, false], wait_queues: [5, [nil], { a: 1 }],
    policies: [nil, 5, [[KeyError, Backhop::Policy.new]], { "KeyError" => Backhop::Policy.new }, { KeyError => 5 },
               { KeyError => nil }],
    breaker: [5, "billing", true],
    confirm_timeout: [0, -1, 3601, "30", nil, true, Float::NAN, Float::INFINITY], back_off: [1, {}, "fast"],
    colour: ["red"], verify: [true]
  }
  wrong = {
    "Policy" => {
      initial: [0, -1, "1", true, [], Float::NAN, Float::INFINITY, 1e12],
      factor: [0.5, "2", true, Float::NAN, Float::INFINITY], max: [0, "1", -5, false, {}, 0.5],
      jitter: [-0.1, 1.1, "full", nil, true, Float::NAN, :x], max_attempts: [1.5, -1, "3"], kind: ["linear", :cubic, 1],
      steps: [[], [0], ["1"], 5, "1,2", [nil], [1] * 1001], max_age: [-1, "1", nil], max_retry_after: [-1, "1", nil],
      max_crashes: [1.5, -1, nil, "5"], max_deferrals: [1.5, -1, nil, "5"], colour: ["red"]
    },
    "Breaker" => {
      name: [nil, 5, :billing, ""], errors: ["KeyError", [KeyError, nil], 5], key: ["host", 5, :host, false],
      window: [0, -1, nil, "soon"],
      least_calls: [0, 1.5, nil], failure_percent: [0, 101, "50"], row_failures: [-1, nil, 1.5], slow: [0, "x"],
      slow_percent: [0, 101], probe_successes: [0, 1001, "3"], probe_timeout: [0, nil], ramp_calls: [0, 65_537],
      throttled_opens: [1, nil], pauses: [5, {}], colour: ["red"]
    },
    "Topology" => shared.slice(:strategy, :queue_type, :namespace, :series, :stripes, :work_queue,
                               :work_queue_arguments, :colour)
                        .merge(policy: [nil, *shared[:policy]], policies: [nil, 5, [{}], Backhop::Policy.new]),
    "Bunny::Retrier" => shared.merge(on_event: [5, "log"], clock: [5, nil], random: [5, nil],
                                     topology: [{}, 5, topology], threads: [1]),
    "Worker" => shared.merge(
      threads: [0, -1, 1.5, "8", nil, true], prefetch: [-1, 1.5, "100", nil, 65_536],
      connect_timeout: [0, -1, "10", nil], drain: [-1, "20", 3601, nil, Float::NAN], on_event: [5, "log"],
      retry_events: [nil, 1, "yes"], fail_fast: [nil, 0, "no"], uri: [nil, 5, [], [5], {}],
      topology: [{}, 5, topology], clock: [Time.method(:now)],
      ca_file: [true, false, 5, :path, "", Pathname("")], cert: [true, false, 5, ""], key: [true, false, 5, ""]
    ),
    "rehearse" => shared.slice(:strategy, :policy, :never, :only, :policies, :legacy_counter, :wait_queues).merge(
      most_attempts: [0, -1, "5", nil,
                      1.5], clock: [5], random: [5], headers: [{ "a" => Object.new }], properties: [{ colour: 1 }]
    )
  }
  native = /SWIG|bh_|_ms\b|argument \d|Backhop::Native|NilClass|undefined method|expected argument/

  wrong.each do |name, options|
    options.each do |option, values|
      values.each do |value|
        shown = value.inspect
        it "of #{name} is refused: #{option}: #{shown[0, 40]}", :unsigned do
          skip "built without librabbitmq" if name == "Worker" && !Backhop.build_info.worker?

          expect { made.fetch(name).call(**{ option => value }) }.to raise_error(Backhop::Error) { |error|
            expect(error.message).not_to match(native)
            expect(error.message).to match(/#{option[0, 5]}|step|queue|initial/)
          }
        end
      end
    end
  end

  it "is refused among policies where the topology that is given does not serve it", :unsigned do
    slow = Backhop::Policy.new(kind: :fixed, initial: 77, jitter: :none)
    given = { queue: nil, topology: topology, policies: { KeyError => slow } }
    expect { made.fetch("Bunny::Retrier").call(**given) }.to raise_error(Backhop::ForeignPolicyError, /policies: .*77/)
    serving = Backhop::Topology.new("work", policies: [slow])
    expect(made.fetch("Bunny::Retrier").call(**given, topology: serving).topology).to be(serving)
    next unless Backhop.build_info.worker?

    expect { made.fetch("Worker").call(**given) }.to raise_error(Backhop::ForeignPolicyError, /policies: .*77/)
    expect(made.fetch("Worker").call(**given, topology: serving).topology).to be(serving)
  end

  it "is refused by what takes no options", :unsigned do
    retrier = made.fetch("Bunny::Retrier").call
    policy = Backhop::Policy.new
    {
      -> { Backhop::Bunny::Retrier.new(nil, queue: "work") } => /channel is nil: give a Bunny::Channel/,
      -> { Backhop::Bunny::Retrier.new(channel) } => /queue is missing/,
      -> { Backhop::Topology.new } => /Topology.new takes queue/,
      -> { Backhop::Policy.new(5) } => /keywords/,
      -> { retrier.wrap(5) } => /the handler is 5/, -> { retrier.wrap } => /the handler is nil/,
      -> { retrier.subscribe } => /the handler is nil/,
      -> { retrier.subscribe(prefetch: 0) { nil } } => /prefetch is 0/,
      -> { retrier.subscribe(threads: "2") { nil } } => /threads is "2"/, -> { retrier.replay("1") } => /most is "1"/,
      -> { retrier.replay(-1) } => /most is -1/, -> { retrier.process(1, 2, 3) } => /the handler is nil/,
      -> { policy.delay(0) } => /attempt is 0/, -> { policy.delay(1.5) } => /attempt is 1.5/, lambda {
                                                                                                policy.delay(-1)
                                                                                              } => /attempt/,
      -> { policy.delay(1, random: "0") } => /random is "0"/,
      -> { policy.delay(1, random: 7) } => /random is 7: give a number from 0 to below 1/,
      -> { policy.delay(1, random: 1) } => /random is 1: give/,
      -> { policy.delay(1, random: -0.1) } => /random is -0.1/,
      -> { policy.delay(1, random: Float::NAN) } => /random is NaN/,
      -> { topology.check_broker("RabbitMQ", nil) } => /version is nil: give a String/,
      -> { topology.check_broker(5, "4.1.0") } => /product is 5: give a String/,
      -> { topology.definitions(vhost: nil) } => /vhost is nil: give a String/,
      -> { Backhop::Breaker.new("") } =>
        /the name of a Breaker is "": give a name of 1 to 64 bytes, as the downstream's/,
      -> { Backhop::History.new(Backhop::Delivery.new, legacy_counter: "") } =>
        /legacy_counter is "": give a header's name/,
      -> { policy.row("1") } => /attempt is "1"/,
      -> { topology.preview(10**9) } => /failures is 1000000000/, -> { topology.row(0) } => /attempt is 0/,
      -> { topology.shares("1") } => /attempt is "1"/,
      -> { policy.preview(10**9) } => /failures is 1000000000/, -> { policy.preview(-1) } => /failures is -1/,
      -> { Backhop::RetryAfter.new([]) } => /give seconds/, -> { Backhop::RetryAfter.new(-1) } => /give seconds/,
      -> { Backhop::Throttled.new(1, whole_queue: 1) } => /whole_queue is 1/,
      -> { Backhop::Testing.rehearse("body") } => /the handler is nil/
    }.each do |call, text|
      expect(&call).to raise_error(Backhop::Error, text)
    end
  end

  it "of a file is shown with what to give; a Pathname is a path", :unsigned do
    skip "built without librabbitmq" unless Backhop.build_info.worker?

    expect { made.fetch("Worker").call(ca_file: true) }
      .to raise_error(Backhop::InvalidArgumentError, "ca_file is true: give a path")
    expect { made.fetch("Worker").call(ca_file: "") }
      .to raise_error(Backhop::InvalidArgumentError, 'ca_file is "": give a path, or leave it out')
    expect(made.fetch("Worker").call(ca_file: Pathname("ca.pem"), cert: Pathname("cert.pem"))).to be_a(Backhop::Worker)
  end

  it "of the logger is none: nil logs nothing, and one that fails stops nothing", :unsigned do
    before = Backhop.logger
    Backhop.logger = nil
    expect { Backhop.log(Logger::ERROR) { "nobody hears it" } }.not_to output.to_stderr
    failing = Logger.new(nil).tap { |logger| def logger.add(*) = raise("the disk is full") }
    Backhop.logger = failing
    expect { Backhop.log(Logger::WARN) { "text" } }.to output(/the disk is full/).to_stderr
    expect { Backhop.logger = $stderr }
      .to raise_error(Backhop::InvalidArgumentError, /Backhop.logger is .*: give a Logger/)
    expect(Backhop.logger).to be(failing)
  ensure
    Backhop.logger = before
  end

  it "of the logger and predicates show no control characters in a log (S4-8)", :unsigned do
    before = Backhop.logger
    log = StringIO.new
    rules = Backhop.const_get(:FailureRules)
    text = "\e]0;PWN\a\u009b31m\u202eevil\u2028\r\n\u0085\u2066"
    Backhop.logger = Logger.new(log)
    rules.new(->(error) { raise ArgumentError, error.message }, []).result_of(IOError.new(text))
    expect(log.string).to end_with(": a predicate failed and is ignored: ArgumentError: ?]0;PWN??31m?evil?????\n")
    Backhop.logger = Logger.new(nil).tap { |logger| logger.define_singleton_method(:add) { |*| raise text } }
    expect { Backhop.log(Logger::WARN) { "text" } }
      .to output("Backhop's logger failed: RuntimeError: ?]0;PWN??31m?evil?????\n").to_stderr
  ensure
    Backhop.logger = before
  end
end
