# frozen_string_literal: true

require "running"
require_relative "support"

begin
  require "opentelemetry/sdk"
rescue LoadError
  nil # spans are left out
end

# A handler that fails, is late, is parked: exactly the events, metrics and spans that there should
# be.
RSpec.describe "What is seen of messages", skip: NEEDS_BROKER do
  include Live

  traceparent = "00-#{"ab" * 16}-#{"cd" * 8}-01"

  before { OpenTelemetry.propagation = OpenTelemetry::Trace::Propagation::TraceContext.text_map_propagator if tracing }

  let(:queue) { broker.queue }
  let(:parked) { "#{queue}.parked" }
  let(:metrics) { Backhop::Metrics.new }
  let(:told) { Queue.new }
  let(:spans) { [] }
  let(:listeners) { [told.method(:push), metrics, *tracing] }
  let(:tracing) do
    next unless defined?(OpenTelemetry::SDK)

    exporter = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
    provider = OpenTelemetry::SDK::Trace::TracerProvider.new
    provider.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(exporter))
    spans << exporter
    Backhop::OpenTelemetryTracing.new(tracer_provider: provider)
  end

  # Fails by the message's body, as often as it says.
  def handle(message)
    raise Backhop::Drop if message.body == "drop"
    raise Backhop::Park, "no such order" if message.body == "park"
    raise KeyError, "not yet" if message.body == "late" && message.attempt == 1
  end

  # The events of each message, by its id, when there are as many as that.
  def events_of(count)
    seen = Array.new(count) { Timeout.timeout(PATIENCE) { told.pop } }
    seen.group_by(&:id)
  end

  def value(name, *labels)
    line = metrics.text.lines.find do |each|
      each.start_with?(name) && labels.all? { |label| each.include?(%("#{label}")) }
    end
    line && line.split.last.to_f
  end

  define_method(:expect_what_is_seen) do
    %w[well late park drop].each do |body|
      broker.publish(body, queue, message_id: body, headers: { "traceparent" => traceparent })
    end
    seen = events_of(12)
    expect(seen.values.flatten.select { |event| %i[retried parked].include?(event.name) }.map(&:error))
      .to contain_exactly(KeyError, Backhop::Park)
    seen.transform_values! { |events| events.map(&:name) }
    expect(seen).to match("well" => %i[delivered succeeded], "drop" => %i[delivered dropped],
                          "late" => contain_exactly(:delivered, :failed, :retried, :delivered, :succeeded),
                          "park" => %i[delivered failed parked])
    until_true { broker.count(queue).zero? && broker.count(parked) == 1 }
    expect([value("messaging_process_duration_seconds_count", queue, "KeyError"),
            value("backhop_retries_total", queue, "KeyError"), value("backhop_parked_total", queue, "permanent"),
            value("backhop_attempts_sum", queue, "succeeded"), value("backhop_retry_lateness_seconds_count", queue),
            value("backhop_recovery_time_seconds_count", queue)])
      .to eq([1, 1, 1, 3, 1, 1])
    expect(value("backhop_copy_duration_seconds_count")).to eq(2)
    expect(told).to be_empty
    expect_spans if tracing
  end

  define_method(:expect_spans) do
    found = spans.first.finished_spans
    expect(found.map(&:name).tally).to eq("process #{queue}" => 5, "retry #{queue}" => 1, "park #{queue}" => 1)
    expect(found.map(&:hex_trace_id).uniq).to eq(["ab" * 16])
    again = found.find { |span| span.links&.any? }
    failed = found.find { |span| span.hex_span_id == again.links.first.span_context.hex_span_id }
    expect([failed.attributes["messaging.message.id"], failed.events.map(&:name)]).to eq(["late", ["exception"]])
    expect(broker.get(parked)[1][:headers]["traceparent"]).to eq(traceparent)
  end

  def traced = tracing ? tracing.wrap { |message| handle(message) } : method(:handle)

  { "Bunny" => BunnyClient, "Kicks" => KicksClient }.each do |name, client|
    it "over #{name} is each event once, what it adds up to, and a span for each attempt", long: further?(client) do
      consuming(client, URL, queue, traced, policy: QUICK, namespace: namespace, on_event: listeners) do
        expect_what_is_seen
      end
    end
  end

  # Returns the events when the block is true of them.
  def told_until
    seen = []
    seen << Timeout.timeout(PATIENCE) { told.pop } until seen.any? && yield(seen.last)
    seen
  end

  it "over a subscription is that the broker takes no publishes, also with nothing in hand", :long do
    skip "BACKHOP_BROKER_CTL is not set" unless ENV["BACKHOP_BROKER_CTL"]
    consuming(SubscribedClient, URL, queue, method(:handle), policy: QUICK, namespace: namespace,
                                                             on_event: [told.method(:push), metrics]) do |consumer|
      expect(metrics.text).to include(%(backhop_consumers_ready{queue="#{queue}"} 1\n))
      # A connection is blocked once it has published.
      consumer.channel.default_exchange.publish("well", routing_key: queue)
      told_until { |event| event.name == :succeeded }
      broker.control("set-alarm")
      consumer.channel.default_exchange.publish("well", routing_key: queue)
      told_until { |event| event.name == :blocked }
      expect(metrics.text).to include(%(backhop_consumers_ready{queue="#{queue}"} 0\n)) # T3
      broker.control("clear-alarm")
      expect(told_until { |event| event.name == :unblocked }.map(&:name)).not_to include(:blocked)
    ensure
      broker.control("clear-alarm")
    end
  end

  it "in a worker is what a parked message failed with, also for whom is told of no retry", :worker do
    worker = Backhop::Worker.new(URL, topology: Backhop::Topology.new(queue, policy: QUICK, namespace: namespace),
                                      on_event: told.method(:push))
    running(worker, ->(message) { raise message.body == "park" ? Backhop::Park.new("no") : IndexError.new("never") }) do
      %w[park never].each { |body| broker.publish(body, queue) }
      seen = []
      seen << Timeout.timeout(PATIENCE) { told.pop } until seen.count { |event| event.name == :parked } == 2
      parked = seen.select { |event| event.name == :parked }
      expect(parked.map { |event| [event.error.class, event.error_class, event.error_text] })
        .to contain_exactly([Backhop::Park, "Backhop::Park", "no"], [IndexError, "IndexError", "IndexError: never"])
      expect(seen.map(&:name)).not_to include(:retried)
    end
  end

  # Metrics that hand their counts on to a library, which here is a list of the numbers of copies.
  let(:handing) do
    noted = []
    Class.new(Backhop::Metrics) do
      define_method(:hands_on?) { true }
      define_method(:noted) { noted }
      define_method(:note_gauges) { noted << pending }
    end.new
  end

  { "Bunny" => :consuming, "a worker" => :running }.each do |name, way|
    it "over #{name} is how many copies are not confirmed, and none once they are", :long,
       *(:worker if way == :running) do
      skip "BACKHOP_BROKER_CTL is not set" unless ENV["BACKHOP_BROKER_CTL"]
      begun, gate = Array.new(2) { Queue.new }
      handler = lambda do |_|
        begun << true
        gate.pop
        raise Backhop::Park
      end
      block = lambda do |*|
        broker.publish("body", queue)
        Timeout.timeout(PATIENCE) { begun.pop }
        broker.control("set-alarm")
        gate << true
        until_true { handing.pending == 1 && handing.noted.last == 1 }
        broker.control("clear-alarm")
        until_true { handing.pending.zero? && handing.noted.last.zero? }
        expect(value_of(handing)).to eq(0)
      ensure
        broker.control("clear-alarm")
      end
      topology = Backhop::Topology.new(queue, policy: QUICK, namespace: namespace)
      if way == :consuming
        next consuming(BunnyClient, URL, queue, handler, policy: QUICK, namespace: namespace, on_event: handing, &block)
      end

      running(Backhop::Worker.new(URL, topology: topology, on_event: handing), handler, &block)
    end
  end

  def value_of(metrics) = Float(metrics.text[/^backhop_copies_unconfirmed (\S+)/, 1])

  it "in a worker is each event once, and what it adds up to", :worker do
    topology = Backhop::Topology.new(queue, policy: QUICK, namespace: namespace)
    others = Backhop::Metrics.new
    worker = Backhop::Worker.new(URL, topology: topology, on_event: [*listeners, others, metrics], retry_events: true)
    running(worker, traced) do
      until_true { told.size.positive? && told.pop.name == :connected }
      expect_what_is_seen
    end
    expect(value("backhop_retries_total", queue, "KeyError")).to eq(1) # what a worker counted is kept
    expect(others.text).to eq(metrics.text) # it counts once for all
  end
end
