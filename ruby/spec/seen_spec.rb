# frozen_string_literal: true

require "spec_helper"
require "native"

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

  # What a retrier tells whom on_event names.
  def retrier(on_event = told.method(:push), topology: Backhop::Topology.new("orders"), **options)
    Backhop::Retrier.new(topology, mode: :create, never: [], only: [], policies: {}, legacy_counter: nil, wait_queues: [],
                                   back_off: nil, on_event: on_event, clock: clock, random: Random.method(:urandom), **options)
  end

  def message(headers = {}, **properties)
    history = decider.read(exchange: "shop", routing_key: "order.created", properties: properties, headers: headers)
    Backhop::Message.new("body", decider.topology) { history }
  end

  # A message that failed, and is parked or comes again.
  def failing(by, message, error)
    by.send(:tell_message, :delivered, message)
    plan = by.send(:plan, message, error)
    by.tell_plan(plan.action == :park ? :parked : :retried, plan, error, took_us: 2000)
    plan
  end

  it "is an attempt's failure, with the exception, and what becomes of it" do
    error = KeyError.new("no such order")
    plan = failing(retrier, message(message_id: "17"), error)
    delivered, failed, retried = told
    expect(told.map(&:name)).to eq(%i[delivered failed retried])
    expect(delivered).to have_attributes(queue: "orders", id: "17", attempt: 1, attempts: 0, lateness: nil, error: nil)
    expect(failed).to have_attributes(id: "17", attempt: 1, attempts: 1, error: error, error_class: "KeyError",
                                      text: "KeyError: no such order", duration: a_value >= 0)
    expect(retried).to have_attributes(id: "17", attempts: 1, delay: plan.delay, error: error, error_class: "KeyError",
                                       duration: 0.002, count: 1)
    expect(retried.to_h).to include(name: :retried, queue: "orders", id: "17", error: error)
    expect(retried.to_s).to start_with("retried: message \"17\" of \"orders\", failed once, again in ")
  end

  it "is a parked message's reason, and the class of what it was parked for" do
    failing(retrier, message({ "backhop-attempts" => 2 }), Backhop::Park.new(KeyError.new("why")))
    expect(told.last).to have_attributes(name: :parked, attempts: 3, reason: "permanent", text: "permanent",
                                         error: Backhop::Park, error_class: "KeyError", delay: 0.0)
  end

  it "is how late a retry is, and how long a message took to recover" do
    now_ms = (clock.now.to_f * 1000).to_i
    late = message({ "backhop-attempts" => 1, "backhop-first-failure" => now_ms - 9000, "backhop-due" => now_ms - 1500 })
    by = retrier
    by.send(:tell_message, :delivered, late)
    by.send(:tell_message, :succeeded, late)
    expect(told.map(&:lateness)).to eq([1.5, nil])
    expect(told.last).to have_attributes(attempt: 2, recovery: 9.0)
    expect(late.history.lateness(now: clock.now)).to eq(1.5)
  end

  it "costs nothing where nobody listens: no history is read" do
    Backhop.logger.level = Logger::WARN
    unread = Backhop::Message.new("body", decider.topology) { raise "it is read" }
    by = retrier(nil)
    %i[delivered succeeded failed].each { |name| by.send(:tell_message, name, unread) }
    expect(lines.string).to be_empty
  end

  it "is told to several listeners, also where one of them fails" do
    more = []
    failing(retrier([->(_) { raise KeyError, "no" }, told.method(:push), more.method(:push)]), message, RuntimeError.new)
    expect(more).to eq(told)
    expect(told.size).to eq(3)
    expect(lines.string).to include("on_event failed at failed: KeyError: no")
    expect { retrier([5]) }.to raise_error(Backhop::InvalidArgumentError, /on_event is 5/)
  end

  # So that all of it is in one second, however long it takes.
  def stand_still(*clock)
    allow(Process).to receive(:clock_gettime).and_call_original
    allow(Process).to receive(:clock_gettime).with(*clock).and_return(Process.clock_gettime(*clock))
  end

  it "is logged by the level of what happened, in lines that are bounded, whose formatter gets the event" do
    seen = []
    Backhop.logger.formatter = proc { |severity, _, _, text| seen << [severity, text.event.name] if text.respond_to?(:event) }
    failing(retrier, message, RuntimeError.new("no"))
    expect(seen).to include(["DEBUG", :delivered], ["DEBUG", :failed], ["INFO", :retried])
    Backhop.logger.level = Logger::WARN
    seen.clear
    stand_still(Process::CLOCK_MONOTONIC, :millisecond)
    300.times { |i| failing(retrier(nil), message(message_id: i.to_s), Backhop::Park.new) }
    expect(seen.count(["WARN", :parked])).to be_between(1, 10)
  end

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
      by.send(:tell_message, :delivered, late = message)
      by.send(:tell_message, :succeeded, late)
      expect(value("backhop_retries_total", queue: "orders", error_type: "KeyError")).to eq(3)
      expect(value("backhop_parked_total", queue: "orders", reason: "permanent")).to eq(1)
      expect(value("messaging_process_duration_seconds_count", error_type: "KeyError")).to eq(3)
      expect(value("backhop_attempts_count", outcome: "succeeded")).to eq(1)
    end

    it "tells few queues and classes of errors apart, and no ids" do
      by = retrier(metrics)
      10_000.times do |i|
        stub = Class.new(StandardError) { define_singleton_method(:to_s) { "Error#{i}" } }
        failing(by, message(message_id: "id-#{i}"), stub.new("text #{i}"))
      end
      text = metrics.text
      expect(text).not_to match(/id-\d|text \d/)
      expect(text.scan(/^backhop_retries_total\{/).size).to be <= 33
      expect(value("backhop_retries_total", error_type: "_OTHER")).to be > 9000
    end

    it "tells the classes apart that it is told to" do
      named = described_class.new(error_types: [KeyError, "Timeout::Error"])
      by = retrier(named)
      [KeyError.new, IndexError.new].each { |each| failing(by, message, each) }
      expect(named.text.scan(/^backhop_retries_total\{.*error_type="(\w+)"/).flatten).to contain_exactly("KeyError", "_OTHER")
    end

    it "refuses classes of errors that are none, or too many", :unsigned do
      expect { described_class.new(error_types: [5]) }.to raise_error(Backhop::InvalidArgumentError, /error_types holds 5/)
      expect { described_class.new(error_types: Array.new(40) { |i| "E#{i}" }) }.to raise_error(Backhop::Error)
    end

    it "counts the copies that are not confirmed of all its retriers" do
      retriers = [double(pending: 2), double(pending: 5)].each { |each| metrics.attach(each) }
      expect(value("backhop_copies_unconfirmed")).to eq(7)
      expect(retriers.size).to eq(2) # and none is collected before
    end
  end

  # Whether a library is there, which the machine may lack.
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
  end

  describe "in a Prometheus registry", if: there?("prometheus/client") do
    it "is the same metrics" do
      registry = Prometheus::Client::Registry.new
      metrics = Backhop::PrometheusMetrics.new(registry)
      metrics.attach(copies = double(pending: 4))
      by = retrier(metrics)
      2.times { failing(by, message, KeyError.new) }
      failing(by, message, Backhop::Park.new)
      labels = { queue: "orders", error_type: "KeyError" }
      retries = registry.get(:backhop_retries_total)
      got = retries.method(:get).parameters.include?(%i[key labels]) ? retries.get(labels: labels) : retries.get(labels)
      expect(got).to eq(2)
      expect(registry.metrics.map(&:name)).to match_array(Backhop::Metrics::TABLE.map(&:name))
      unconfirmed = registry.get(:backhop_copies_unconfirmed).values.values
      expect(unconfirmed.map { |each| each.respond_to?(:get) ? each.get : each }).to eq([copies.pending])
      expect(registry.get(:backhop_retry_delay_seconds).values.values.size).to eq(1)
    end

    it "is read when it is scraped, where the store is the process's own", if: there?("prometheus/client/formats/text") do
      metrics = Backhop::PrometheusMetrics.new(registry = Prometheus::Client::Registry.new)
      skip "this library's store is files" if metrics.hands_on?
      failing(retrier(metrics), message, KeyError.new)
      read, written = [Prometheus::Client::Formats::Text.marshal(registry), metrics.text].map do |text|
        text.lines.grep_v(/^#/).to_h { |line| [line[/.* /], Float(line.split.last)] }
      end
      expect(read).to eq(written)
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
      expect(first.attributes).to include("error.type" => "KeyError", "messaging.message.id" => "17", "backhop.attempt" => 1)
    end

    it "is no error where it is not to be one, and no failure where the message is dropped" do
      quiet = Backhop::OpenTelemetryTracing.new(tracer_provider: provider, error_status: false)
      [KeyError.new("no"), Backhop::Drop.new].each do |error|
        expect { quiet.process(message) { raise error } }.to raise_error(error.class)
      end
      expect(spans.map { |each| each.status.code }).to eq([OpenTelemetry::Trace::Status::UNSET] * 2)
      expect(spans.map { |each| each.events&.size.to_i }).to eq([1, 0])
    end

    it "is in the span of the client's instrumentation, where there is one" do
      provider.tracer("client").in_span("orders process") { attempt({ "traceparent" => "00-#{"ab" * 16}-#{"cd" * 8}-01" }) }
      own, client = spans
      expect(own.hex_parent_span_id).to eq(client.hex_span_id)
    end
  end

  describe "in OpenTelemetry's metrics", if: there?("opentelemetry-metrics-sdk") do
    it "is the same metrics, by its names" do
      provider = OpenTelemetry::SDK::Metrics::MeterProvider.new
      exporter = OpenTelemetry::SDK::Metrics::Export::InMemoryMetricPullExporter.new
      provider.add_metric_reader(exporter)
      failing(retrier(Backhop::OpenTelemetryMetrics.new(meter_provider: provider)), message, KeyError.new)
      exporter.pull
      found = exporter.metric_snapshots.to_h { |each| [each.name, each.data_points] }
      expect(found["backhop.retries"].map { |each| [each.value, each.attributes] })
        .to eq([[1, { "messaging.destination.name" => "orders", "error.type" => "KeyError" }]])
      expect(found).to include("messaging.process.duration", "backhop.retry.delay")
    end
  end
end
