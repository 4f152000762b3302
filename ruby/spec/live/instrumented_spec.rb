# frozen_string_literal: true

require_relative "support"

begin
  require "opentelemetry/sdk"
  require "opentelemetry-instrumentation-bunny"
rescue LoadError
  nil # the patches of this file stand for its own
end

# The changes of OpenTelemetry's instrumentation to Bunny, for the examples that need them. It adds
# a property, and it reads a consumer's queue for its channel and its name. It writes a trace into
# the headers of published messages.
module Instrumented
  TRACE = "00-#{"12" * 16}-#{"34" * 8}-01".freeze

  class << self
    attr_accessor :is_on
  end

  module Channel
    def handle_frameset(delivery, properties, content)
      properties[:tracer_receive_headers] = { "traceparent" => TRACE } if Instrumented.is_on
      super
    end

    def basic_get(...)
      super.tap { |_, properties, _| properties[:tracer_receive_headers] = {} if Instrumented.is_on && properties }
    end

    def basic_publish(payload, exchange, routing_key, options = {})
      return super unless Instrumented.is_on

      options[:headers] ||= {}
      options[:headers]["traceparent"] = TRACE
      super
    end
  end

  module Consumer
    def call(*)
      Instrumented.names << queue.name if Instrumented.is_on && queue.channel.open?
      super
    end

    alias handle_delivery call
  end

  def self.names = @names ||= Queue.new

  # Installs it for good: the real one, if the machine has it.
  def self.install
    return OpenTelemetry::Instrumentation::Bunny::Instrumentation.instance.install || raise("it refuses") if real?

    Bunny::Channel.prepend(Channel)
    Bunny::Consumer.prepend(Consumer)
  end

  def self.real? = defined?(OpenTelemetry::Instrumentation::Bunny) ? true : false
end

# Its spans go nowhere, but are of a trace.
if Instrumented.real?
  OpenTelemetry.logger = Logger.new(File::NULL)
  OpenTelemetry.tracer_provider = OpenTelemetry::SDK::Trace::TracerProvider.new
  OpenTelemetry.propagation = OpenTelemetry::Trace::Propagation::TraceContext.text_map_propagator
end
Instrumented.install

RSpec.describe "A Bunny that others have patched", skip: NEEDS_BROKER do
  include Live

  traceparent = "00-#{"ab" * 16}-#{"cd" * 8}-01"

  let(:queue) { broker.queue }

  around do |example|
    Instrumented.is_on = true
    example.run
  ensure
    Instrumented.is_on = false
  end

  { "Bunny" => BunnyClient, "Bunny, subscribed by the retrier" => SubscribedClient, "Kicks" => KicksClient }
    .each do |name, client|
    [traceparent, nil].each do |published|
      what = published ? "has a" : "has no"
      it "hands messages on over #{name}, and copies have the headers of what #{what} trace", long: further?(client) do
        handler = Handler.failing(3)
        consuming(client, URL, queue, handler, policy: QUICK, namespace: namespace) do
          broker.publish("body", queue, headers: { "traceparent" => published, "a" => 1 }.compact)
          handler.saw(3)
          _, properties, body = broker.get("#{queue}.parked")
          expect([body, properties[:headers].slice("traceparent", "a")])
            .to eq(["body", { "traceparent" => published, "a" => 1 }.compact])
          expect(handler.messages.map { |each| each.headers["traceparent"] }).to eq([published] * 3)
          expect(log.string).not_to include("refused")
        end
      end
    end

    it "lets parked messages be replayed over #{name}", long: further?(client) do
      handler = Handler.new(Backhop::Park.new)
      consuming(client, URL, queue, handler, policy: QUICK, namespace: namespace) do |consumer|
        broker.publish("body", queue, headers: { "traceparent" => traceparent })
        until_true { broker.count("#{queue}.parked") == 1 }
        expect(consumer.retrier.replay).to eq(1)
        handler.saw(2)
        expect(handler.messages.map { |each| each.headers["traceparent"] }).to eq([traceparent] * 2)
      end
    end
  end
end
