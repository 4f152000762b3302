# frozen_string_literal: true

require "spec_helper"
require "native"
require "json"
require "stringio"
require "time"
require "tmpdir"

# Events, and what reads them; with brokers in live/.
RSpec.describe "What is seen" do
  let(:told) { [] }
  let(:lines) { StringIO.new }
  let(:clock) { Backhop::Testing::Clock.new }
  let(:decider) { Backhop::Decider.new(Backhop::Topology.new("orders"), clock: clock) }

  around do |example|
    before = Backhop.logger
    Backhop.logger = Logger.new(lines)
    example.run
  ensure
    Backhop.logger = before
  end

  # A retrier whose events go to on_event.
  def retrier(on_event = told.method(:push), topology: Backhop::Topology.new("orders"), **options)
    Backhop::Retrier.new(
      topology, mode: :create, never: [], only: [], policies: {}, legacy_counter: nil, wait_queues: [], back_off: nil,
                on_event: on_event, clock: clock, random: Random.method(:urandom), **options
    )
  end

  def message(headers = {}, **properties)
    history = decider.read(exchange: "shop", routing_key: "order.created", properties: properties, headers: headers)
    Backhop::Message.new("body", decider.topology) { history }
  end

  # A message that failed, and is parked or comes again.
  def failing(by, message, error)
    by.listeners.emit_message(:delivered, message)
    plan = by.send(:plan, message, error)
    by.listeners.emit_plan(plan.action == :park ? :parked : :retried, plan, error, 2000)
    plan
  end

  it "is an attempt's failure, with the exception, and what becomes of it" do
    error = KeyError.new("no such order")
    plan = failing(retrier, message(message_id: "17"), error)
    delivered, failed, retried = told
    expect(told.map(&:name)).to eq(%i[delivered failed retried])
    expect(delivered).to have_attributes(queue: "orders", id: "17", attempt: 1, attempts: 0, lateness: nil, error: nil)
    expect(failed).to have_attributes(id: "17", attempt: 1, attempts: 1, error: error, error_class: "KeyError",
                                      text: "KeyError: no such order", error_text: "KeyError: no such order",
                                      duration: a_value >= 0)
    expect(retried).to have_attributes(id: "17", attempts: 1, delay: plan.delay, error: error, error_class: "KeyError",
                                       duration: 0.002, count: 1)
    expect(retried.to_h).to include(name: :retried, queue: "orders", id: "17", error: error)
    expect(retried.to_s).to start_with("retried: message \"17\" of \"orders\", failed once, again in ")
  end

  it "has no duration where nobody saw the handler begin" do
    counted = Backhop::Metrics.new
    by = retrier([told.method(:push), counted])
    by.listeners.emit_message(
      :failed, message({ "backhop-attempts" => 1, "backhop-due" => 1 }), KeyError.new("no"), "no"
    )
    expect(told.map { |event| [event.name, event.duration] }).to eq([[:failed, nil]])
    expect(counted.text).not_to match(/process_duration|lateness/)
  end

  it "is a parked message's reason, and the class of what it was parked for" do
    failing(retrier, message({ "backhop-attempts" => 2 }), Backhop::Park.new(KeyError.new("why")))
    expect(told.last).to have_attributes(name: :parked, attempts: 3, reason: "permanent", text: "permanent",
                                         error: Backhop::Park, error_class: "KeyError", error_text: "KeyError: why",
                                         delay: 0.0)
  end

  it "is how late a retry is, and how long a message took to recover" do
    now_ms = (clock.now.to_f * 1000).to_i
    late = message(
      { "backhop-attempts" => 1, "backhop-first-failure" => now_ms - 9000, "backhop-due" => now_ms - 1500 }
    )
    by = retrier
    by.listeners.emit_message(:delivered, late)
    by.listeners.emit_message(:succeeded, late)
    expect(told.map(&:lateness)).to eq([1.5, nil])
    expect(told.last).to have_attributes(attempt: 2, recovery: 9.0)
    expect(late.history.lateness(now: clock.now)).to eq(1.5)
  end

  it "costs nothing where nobody listens: no history is read" do
    Backhop.logger.level = Logger::WARN
    unread = Backhop::Message.new("body", decider.topology) { raise "it is read" }
    by = retrier(nil)
    %i[delivered succeeded failed].each { |name| by.listeners.emit_message(name, unread) }
    expect(lines.string).to be_empty
  end

  it "is told to several listeners, also where one of them fails" do
    more = []
    all = [->(_) { raise KeyError, "no" }, told.method(:push), more.method(:push)]
    failing(retrier(all, topology: Backhop::Topology.new("several")), message, RuntimeError.new)
    expect(more).to eq(told)
    expect(told.size).to eq(3)
    expect(lines.string).to include("a listener failed at failed of \"several\": KeyError: no")
    expect { retrier([5]) }.to raise_error(Backhop::InvalidArgumentError, /on_event is 5/)
  end

  it "P4-10: is given to each listener if one raises what is no StandardError, unless that ends the program" do
    more = []
    unusual = Class.new(Exception) # rubocop:disable Lint/InheritException
    raised = [Exception, unusual, NoMemoryError].map { |type| ->(_) { raise type, "no" } }
    by = retrier([*raised, more.method(:push)], topology: Backhop::Topology.new("raised"))
    failing(by, message, RuntimeError.new)
    expect(more.map(&:name)).to eq(%i[delivered failed retried])
    expect(lines.string.scan("a listener failed at failed of \"raised\"").size).to eq(3)
    expect { failing(retrier(->(_) { exit(3) }), message, RuntimeError.new) }.to raise_error(SystemExit)
  end

  it "P4-10: is a line of some kilobytes if a text has megabytes" do
    long = "x" * 10_000_000
    by = retrier(->(_) { raise KeyError, long }, topology: Backhop::Topology.new("long"))
    failing(by, message, RuntimeError.new(long))
    by.listeners.log_error(:failed, message, RuntimeError.new(long))
    expect(lines.string).to include("RuntimeError: xxx").and include("KeyError: xxx")
    expect(lines.string.size).to be < 20_000
  end

  it "may be told to none" do
    expect { failing(retrier([]), message, RuntimeError.new) }.not_to raise_error
    expect { failing(retrier(nil), message, RuntimeError.new) }.not_to raise_error
  end

  it "begins anew for a message that waited for its handler" do
    by = retrier
    by.listeners.emit_message(:delivered, waited = message)
    waited.began_us -= 60_000_000
    expect(by.handling(waited, &:body)).to eq("body")
    by.listeners.emit_message(:succeeded, waited)
    expect(told.last.duration).to be_between(0, 60).exclusive
  end

  # So that all of it is in one second, however long it takes.
  def stand_still(*clock)
    allow(Process).to receive(:clock_gettime).and_call_original
    allow(Process).to receive(:clock_gettime).with(*clock).and_return(Process.clock_gettime(*clock))
  end

  it "is logged by the level of what happened, in lines that are bounded, whose formatter gets the event" do
    seen = []
    Backhop.logger.formatter =
      proc { |severity, _, _, text| seen << [severity, text.event.name] if text.respond_to?(:event) }
    failing(retrier, message, RuntimeError.new("no"))
    expect(seen).to include(["DEBUG", :delivered], ["DEBUG", :failed], ["INFO", :retried])
    Backhop.logger.level = Logger::WARN
    seen.clear
    stand_still(Process::CLOCK_MONOTONIC, :millisecond)
    300.times { |i| failing(retrier(nil), message(message_id: i.to_s), Backhop::Park.new) }
    expect(seen.count(["WARN", :parked])).to be_between(1, 10)
  end

  json_log = File.expand_path("../../examples/ruby/recipes/json_log.rb", __dir__)

  it "is a log of JSON, by the guide's formatter", if: File.exist?(json_log) do
    recipe = File.read(json_log)
    stdout = $stdout
    $stdout = lines
    eval(recipe) # rubocop:disable Security/Eval
    $stdout = stdout
    failing(retrier(topology: Backhop::Topology.new("as JSON")), message(message_id: "17"), unprintable.new)
    Backhop.log(Logger::WARN) { "another line" }
    retried, other = lines.string.lines.map { |line| JSON.parse(line) }
    expect(retried).to include("level" => "INFO", "name" => "retried", "id" => "17", "error_class" => "Nasty")
    expect(other).to match("level" => "WARN", "line" => "another line", "time" => /T/)
  ensure
    $stdout = stdout if stdout
  end

  it "is a bounded number of lines where a listener fails each time" do
    Backhop.logger.level = Logger::ERROR
    stand_still(Process::CLOCK_MONOTONIC, :millisecond)
    by = retrier(->(_) { raise KeyError, "no" }, topology: Backhop::Topology.new("flooded"))
    300.times { failing(by, message, Backhop::Park.new) }
    expect(lines.string.lines.grep(/a listener failed at \w+ of "flooded": KeyError: no/).size).to be_between(1, 10)
  end

  # Whose message cannot be had.
  let(:unprintable) { stub_const("Nasty", Class.new(StandardError) { def message = raise("there is none") }) }

  describe Backhop::Metrics do
    let(:metrics) { described_class.new }

    def value(name, **labels)
      wanted = labels.map { |label, value| %(#{label}="#{value}") }
      line = metrics.text.lines.find { |each| each.start_with?(name) && wanted.all? { |label| each.include?(label) } }
      line && Float(line.split.last)
    end

    it "counts what is told" do
      by = retrier(metrics)
      3.times { failing(by, message, KeyError.new) }
      failing(by, message, Backhop::Park.new)
      by.listeners.emit_message(:delivered, late = message)
      by.listeners.emit_message(:succeeded, late)
      expect(value("backhop_retries_total", queue: "orders", error_type: "KeyError")).to eq(3)
      expect(value("backhop_parked_total", queue: "orders", reason: "permanent")).to eq(1)
      expect(value("messaging_process_duration_seconds_count", error_type: "KeyError")).to eq(3)
      expect(value("backhop_attempts_count", outcome: "succeeded")).to eq(1)
    end

    it "has the state of each breaker" do
      by = retrier(metrics)
      { breaker_opened: 2, breaker_half_open: 1, breaker_closed: 0 }.each do |name, state|
        by.emit(name, breaker: "api", text: "3 of 3 failed")
        expect(value("backhop_breaker_state", queue: "orders", breaker: "api")).to eq(state)
      end
    end

    it "tells few queues and classes of errors apart, and no ids", :long do
      by = retrier(metrics)
      histories = defined?(RBS::Test) ? 1000 : 10_000 # checked signatures cost eight times the processor time
      histories.times do |i|
        stub = Class.new(StandardError) { define_singleton_method(:to_s) { "Error#{i}" } }
        failing(by, message(message_id: "id-#{i}"), stub.new("text #{i}"))
      end
      text = metrics.text
      expect(text).not_to match(/id-\d|text \d/)
      expect(text.scan(/^backhop_retries_total\{/).size).to be <= 33
      expect(value("backhop_retries_total", error_type: "_OTHER")).to be > 0.9 * histories
    end

    it "tells the classes apart that it is told to" do
      named = described_class.new(error_types: [KeyError, "Timeout::Error"])
      by = retrier(named)
      [KeyError.new, IndexError.new].each { |each| failing(by, message, each) }
      expect(named.text.scan(/^backhop_retries_total\{.*error_type="(\w+)"/).flatten)
        .to contain_exactly("KeyError", "_OTHER")
    end

    it "refuses classes of errors that are none, or too many", :unsigned do
      expect { described_class.new(error_types: [5]) }
        .to raise_error(Backhop::InvalidArgumentError, /error_types holds 5/)
      expect { described_class.new(error_types: Array.new(40) { |i| "E#{i}" }) }
        .to raise_error(Backhop::InvalidArgumentError, "error_types holds 40 classes: give 32 at most")
      expect { described_class.new(error_types: Array.new(32) { |i| "E#{i}" } + ["E0"]) }.not_to raise_error
      expect { described_class.new(error_types: [""]) }
        .to raise_error(Backhop::InvalidArgumentError, /error_types holds ""/)
    end

    it "counts the copies that are not confirmed of all its retriers" do
      retriers = [source(2), source(5)].each { |each| metrics.attach(each) }
      expect(value("backhop_copies_unconfirmed")).to eq(7)
      expect(retriers.size).to eq(2) # and none is collected before
    end

    it "T3: counts the consumers of all its retriers that are ready" do
      retriers = [source(0, true, false), source(0, true), source(0)].each { |each| metrics.attach(each) }
      expect(metrics.text).to include(%(backhop_consumers_ready{queue="orders"} 2\n))
      expect(retriers.size).to eq(3)
    end
  end

  # A source of metrics, as a retrier is.
  def source(pending, *readiness)
    double(pending: pending, readiness: readiness, topology: Backhop::Topology.new("orders"))
  end

  # Returns true if a library is there, which the machine may lack.
  def self.there?(library)
    loud = $VERBOSE
    $VERBOSE = nil # its warnings are its own
    require library
    true
  rescue LoadError
    false
  ensure
    $VERBOSE = loud
  end

  describe "in ActiveSupport::Notifications", if: there?("active_support") do
    it "is an event, with the exception where Rails looks for it" do
      got = []
      subscriber = ActiveSupport::Notifications.subscribe(/\.backhop\z/) { |name, *, payload| got << [name, payload] }
      failing(retrier(Backhop::Notifications), message(message_id: "17"), KeyError.new("no"))
      ActiveSupport::Notifications.unsubscribe(subscriber)
      failing(retrier(Backhop::Notifications), message, KeyError.new("no"))
      expect(got.map(&:first)).to eq(%w[delivered.backhop failed.backhop retried.backhop])
      expect(got.last.last).to include(queue: "orders", id: "17", attempts: 1, error_class: "KeyError",
                                       exception: %w[KeyError no], exception_object: KeyError, event: Backhop::Event)
    end

    it "is an event too where the exception cannot be printed" do
      got = []
      ActiveSupport::Notifications.subscribed(->(*, payload) { got << payload }, "failed.backhop") do
        failing(retrier(Backhop::Notifications), message, unprintable.new)
      end
      expect(got).to contain_exactly(a_hash_including(exception: %w[Nasty Nasty], exception_object: unprintable))
    end
  end

  describe "in a Prometheus registry", if: there?("prometheus/client") do
    it "is the same metrics" do
      registry = Prometheus::Client::Registry.new
      metrics = Backhop::PrometheusMetrics.new(registry)
      metrics.attach(copies = source(4, true))
      by = retrier(metrics)
      2.times { failing(by, message, KeyError.new) }
      failing(by, message, Backhop::Park.new)
      by.note_gauges
      labels = { queue: "orders", error_type: "KeyError" }
      retries = registry.get(:backhop_retries_total)
      got = retries.method(:get).parameters.include?(%i[key labels]) ? retries.get(labels: labels) : retries.get(labels)
      expect(got).to eq(2)
      expect(registry.metrics.map(&:name)).to match_array(Backhop::Metrics::TABLE.map(&:name))
      unconfirmed = registry.get(:backhop_copies_unconfirmed).values.values
      expect(unconfirmed.map { |each| each.respond_to?(:get) ? each.get : each }).to eq([copies.pending])
      ready = registry.get(:backhop_consumers_ready).values
      expect(ready.map { |of, each| [of, each.respond_to?(:get) ? each.get : each] }).to eq([[{ queue: "orders" }, 1]])
      expect(registry.get(:backhop_retry_delay_seconds).values.values.size).to eq(1)
      by.emit(:breaker_opened, breaker: "api", text: "3 of 3 failed")
      states = registry.get(:backhop_breaker_state).values
      expect(states.keys).to eq([{ queue: "orders", breaker: "api" }])
      expect(states.values.map { |each| each.respond_to?(:get) ? each.get : each }).to eq([2])
    end

    it "is read when it is scraped, where the store is the process's own",
       if: there?("prometheus/client/formats/text") do
      metrics = Backhop::PrometheusMetrics.new(registry = Prometheus::Client::Registry.new)
      skip "this library's store is files" if metrics.hands_on?
      failing(retrier(metrics), message, KeyError.new)
      read, written = [Prometheus::Client::Formats::Text.marshal(registry), metrics.text].map do |text|
        text.lines.grep_v(/^#/).to_h { |line| [line[/.* /], Float(line.split.last)] }
      end
      expect(read).to eq(written)
    end

    it "is the sum of all processes in a store of files, and no longer there once nothing is pending",
       if: there?("prometheus/client/data_stores/direct_file_store") && there?("prometheus/client/formats/text") do
      before = Prometheus::Client.config.data_store
      Dir.mktmpdir do |dir|
        Prometheus::Client.config.data_store = Prometheus::Client::DataStores::DirectFileStore.new(dir: dir)
        metrics = Backhop::PrometheusMetrics.new(registry = Prometheus::Client::Registry.new)
        counts = [4, 0]
        source = Class.new { define_method(:pending) { counts.first } }.new
        def source.readiness = []
        metrics.attach(source)
        by = retrier(metrics)
        lines = Array.new(2) do
          by.note_gauges
          counts.shift
          Prometheus::Client::Formats::Text.marshal(registry)[/^backhop_copies_unconfirmed.*/]
        end
        expect(lines).to eq(["backhop_copies_unconfirmed 4.0", "backhop_copies_unconfirmed 0.0"])
        expect(source.pending).to be_nil
      end
    ensure
      Prometheus::Client.config.data_store = before if before
    end

    it "is read as the registry wants it, whatever the labels hold" do
      queue = %(a "quoted\\n", le="5"} \n)
      metrics = Backhop::Metrics.new
      by = retrier(metrics, topology: Backhop::Topology.new(queue))
      2.times { failing(by, message, KeyError.new) }
      read = Backhop::PrometheusMetrics.const_get(:Read)
      retries, delays, parked = %i[RETRIES RETRY_DELAY PARKED].map do |name|
        read.new(Backhop::Metrics::TABLE[Native.const_get(:"BH_METRIC_#{name}")]) { metrics.text }
      end
      expect(retries.get(labels: { queue: queue, error_type: "KeyError" })).to eq(2)
      expect(delays.values.keys).to eq([{ queue: queue }])
      expect(delays.get(labels: { queue: queue })).to include("0.1" => 0, "2.5" => 2, "+Inf" => 2, "sum" => a_value > 1)
      expect(parked.values).to be_empty
    end
  end

  describe "in OpenTelemetry", if: there?("opentelemetry/sdk") do
    let(:exporter) { OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new }
    let(:provider) do
      OpenTelemetry::SDK::Trace::TracerProvider.new.tap do |made|
        made.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(exporter))
      end
    end
    let(:tracing) { Backhop::OpenTelemetryTracing.new(tracer_provider: provider) }
    let(:spans) { exporter.finished_spans }

    around do |example|
      before = OpenTelemetry.propagation
      OpenTelemetry.propagation = OpenTelemetry::Trace::Propagation::TraceContext.text_map_propagator
      example.run
    ensure
      OpenTelemetry.propagation = before
    end

    def attempt(headers, error = nil)
      traced = message(headers, message_id: "17")
      tracing.wrap { raise error if error }.call(traced)
      traced
    rescue StandardError
      failing(retrier(tracing), traced, error)
    end

    it "is a span for each attempt, in the publisher's trace, which links to the one that failed before" do
      publisher = "00-#{"ab" * 16}-#{"cd" * 8}-01"
      plan = attempt({ "traceparent" => publisher }, KeyError.new("no"))
      headers = plan.copy_headers("traceparent" => publisher)
      expect(headers).to include("traceparent" => publisher, "backhop-traceparent" => plan.traceparent)
      attempt(headers)
      first, retry_span, second = spans
      expect(spans.map(&:name)).to eq(["process orders", "retry orders", "process orders"])
      expect(spans.map(&:hex_trace_id).uniq).to eq(["ab" * 16])
      expect([first, second].map(&:hex_parent_span_id)).to eq(["cd" * 8] * 2)
      expect(retry_span.hex_parent_span_id).to eq(first.hex_span_id)
      expect(second.links.map { |each| each.span_context.hex_span_id }).to eq([first.hex_span_id])
      expect(first.events.map(&:name)).to eq(["exception"])
      expect([first, second].map { |each| each.status.code })
        .to eq([OpenTelemetry::Trace::Status::ERROR, OpenTelemetry::Trace::Status::UNSET])
      expect(first.attributes).to eq(
        "messaging.system" => "rabbitmq", "messaging.operation.name" => "process",
        "messaging.operation.type" => "process", "messaging.destination.name" => "orders",
        "messaging.message.id" => "17", "backhop.attempt" => 1,
        "messaging.rabbitmq.destination.routing_key" => "order.created", "error.type" => "KeyError"
      )
      expect(retry_span.attributes).to eq(
        "messaging.system" => "rabbitmq", "messaging.operation.name" => "retry", "messaging.operation.type" => "send",
        "messaging.destination.name" => "orders", "messaging.message.id" => "17", "backhop.attempts" => 1,
        "backhop.delay" => plan.delay
      )
    end

    it "is a span of what is parked, with the reason, and the class of what it was parked for" do
      attempt({}, Backhop::Park.new(KeyError.new("why")))
      failed, parked = spans
      expect(failed.attributes["error.type"]).to eq("KeyError")
      expect([parked.name, parked.attributes]).to match(
        ["park orders", a_hash_including("messaging.operation.name" => "park", "backhop.attempts" => 1,
                                         "backhop.reason" => "permanent")]
      )
      expect(parked.attributes).not_to include("backhop.delay")
    end

    it "lets a handler see its message, whatever the headers hold, and whatever a propagator raises" do
      trace = OpenTelemetry::Trace::Propagation::TraceContext.text_map_propagator
      OpenTelemetry.propagation = OpenTelemetry::Context::Propagation::CompositeTextMapPropagator.compose_propagators(
        [trace, OpenTelemetry::Baggage::Propagation.text_map_propagator]
      )
      [{ "traceparent" => "\xff\xfe" }, { "tracestate" => "a=\xff" }, { "baggage" => "k=\xff,\xff=v" },
       { "\xff" => "a" }, { "traceparent" => 5 }].each do |headers|
        expect(tracing.process(message(headers)) { :ran }).to eq(:ran)
      end
      expect(lines.string).not_to include("a listener failed")
      OpenTelemetry.propagation = Class.new { def extract(*, **) = raise(KeyError, "no such header") }.new
      expect(tracing.process(message) { :ran }).to eq(:ran)
      expect(lines.string).to include("a listener failed at delivered of \"orders\": KeyError: no such header")
      expect(spans.map(&:name)).to eq(["process orders"] * 6)
    end

    it "lets a handler see its message where no span can be made, and end as it ends" do
      broken = Class.new { def tracer(*) = self }.new # it has no start_span
      tracing = Backhop::OpenTelemetryTracing.new(tracer_provider: broken)
      expect(tracing.process(message) { :ran }).to eq(:ran)
      error = KeyError.new("no")
      expect { tracing.process(message) { raise error } }.to(raise_error { |raised| expect(raised).to be(error) })
    end

    it "lets the handler's own exception go on, also one that cannot be printed" do
      error = unprintable.new
      expect { tracing.process(message) { raise error } }.to(raise_error { |raised| expect(raised).to be(error) })
      span, = spans
      expect([span.status.code, span.status.description]).to eq([OpenTelemetry::Trace::Status::ERROR, "Nasty"])
      expect(span.attributes["error.type"]).to eq("Nasty")
      expect(span.events.map { |each| [each.name, each.attributes] })
        .to eq([["exception", { "exception.type" => "Nasty", "exception.message" => "Nasty" }]])
    end

    it "is no error where it is not to be one, and no failure where the message is dropped" do
      quiet = Backhop::OpenTelemetryTracing.new(tracer_provider: provider, failure_is_error: false)
      [KeyError.new("no"), Backhop::Drop.new].each do |error|
        expect { quiet.process(message) { raise error } }.to raise_error(error.class)
      end
      expect(spans.map { |each| each.status.code }).to eq([OpenTelemetry::Trace::Status::UNSET] * 2)
      expect(spans.map { |each| each.events&.size.to_i }).to eq([1, 0])
    end

    # A span that is current, in a trace.
    def within(trace_id, &block)
      context = OpenTelemetry::Trace::SpanContext.new(trace_id: [trace_id].pack("H*"), span_id: ["ef" * 8].pack("H*"),
                                                      trace_flags: OpenTelemetry::Trace::TraceFlags::SAMPLED)
      OpenTelemetry::Trace.with_span(OpenTelemetry::Trace.non_recording_span(context), &block)
    end

    it "is in the span of the client's instrumentation, if that is of the message's trace, or the message has none" do
      published = { "traceparent" => "00-#{"ab" * 16}-#{"cd" * 8}-01" }
      within("ab" * 16) { attempt(published) }
      within("12" * 16) { attempt(published) } # as one that was current when the process began
      within("12" * 16) { attempt({}) }
      within("12" * 16) { attempt({ "traceparent" => "00-#{"00" * 16}-#{"cd" * 8}-01" }) }
      expect(spans.map { |each| [each.hex_trace_id, each.hex_parent_span_id] })
        .to eq([["ab" * 16, "ef" * 8], ["ab" * 16, "cd" * 8], ["12" * 16, "ef" * 8], ["12" * 16, "ef" * 8]])
    end
  end

  describe "in OpenTelemetry's metrics", if: there?("opentelemetry-metrics-sdk") do
    let(:exporter) { OpenTelemetry::SDK::Metrics::Export::InMemoryMetricPullExporter.new }
    let(:provider) { OpenTelemetry::SDK::Metrics::MeterProvider.new.tap { |made| made.add_metric_reader(exporter) } }

    # Returns the provider's current values, by name.
    def read
      exporter.reset
      exporter.pull
      exporter.metric_snapshots.to_h { |each| [each.name, each.data_points] }
    end

    it "is how many copies are not confirmed when that is read, of all metrics of a provider" do
      counts = [2, 5]
      sources = Array.new(2) { |i| Class.new { define_method(:pending) { counts[i] } }.new }
      sources.each { |each| def each.readiness = [] }
      all = Array.new(2) { Backhop::OpenTelemetryMetrics.new(meter_provider: provider) }
      all.zip(sources) { |metrics, source| metrics.attach(source) }
      all.first.attach(sources.last)
      expect(read["backhop.copies.unconfirmed"].map(&:value)).to eq([7])
      counts.map! { 0 }
      expect(read["backhop.copies.unconfirmed"].map(&:value)).to eq([0])
    end

    it "has the core's buckets, as views" do
      Backhop::OpenTelemetryMetrics.bounds.each do |name, bounds|
        buckets = OpenTelemetry::SDK::Metrics::Aggregation::ExplicitBucketHistogram.new(boundaries: bounds)
        provider.add_view(name, aggregation: buckets)
      end
      failing(retrier(Backhop::OpenTelemetryMetrics.new(meter_provider: provider)), message, KeyError.new)
      found = read
      metrics = Backhop::Metrics::TABLE.reject { |each| each.buckets.empty? }
      histograms = metrics.to_h { |each| [each.otel_name, each.buckets] }
      expect(Backhop::OpenTelemetryMetrics.bounds).to eq(histograms)
      expect(histograms["messaging.process.duration"].first).to be < 0.1
      found.slice(*histograms.keys).each { |name, points| expect(points.first.explicit_bounds).to eq(histograms[name]) }
      expect(found.keys & histograms.keys).to include("messaging.process.duration", "backhop.retry.delay")
    end

    it "is the same metrics, by its names" do
      failing(retrier(Backhop::OpenTelemetryMetrics.new(meter_provider: provider)), message, KeyError.new)
      found = read
      expect(found["backhop.retries"].map { |each| [each.value, each.attributes] })
        .to eq([[1, { "messaging.destination.name" => "orders", "error.type" => "KeyError" }]])
      expect(found).to include("messaging.process.duration", "backhop.retry.delay")
    end
  end
end
