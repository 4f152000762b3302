# frozen_string_literal: true

require "opentelemetry-api"

require_relative "../backhop"

module Backhop
  # Spans of OpenTelemetry: one for each attempt, `process {queue}`, which links to the attempt that failed before it, and has
  # the exception where it fails too; and one for what became of it then, `retry {queue}` or `park {queue}`, from the copy's
  # publish to its confirm.
  #
  #     require "backhop/open_telemetry_tracing"
  #
  #     tracing = Backhop::OpenTelemetryTracing.new
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", policy: policy, on_event: tracing)
  #     retrier.subscribe(tracing.wrap { |message| handle(message) })
  #
  # An attempt's span belongs to the publisher's trace, by the message's traceparent, which all its copies keep; or to the
  # span that is current where the handler is called, as of an instrumentation of the client.
  class OpenTelemetryTracing
    include Bridge

    TraceParent = ::OpenTelemetry::Trace::Propagation::TraceContext::TraceParent
    SPANS = { retried: "retry", parked: "park" }.freeze
    private_constant :TraceParent, :SPANS

    # @param tracer_provider [::OpenTelemetry::Trace::TracerProvider]
    # @param error_status [Boolean] whether the span of an attempt that failed has the status error; its exception it has in
    #   any case
    def initialize(tracer_provider: ::OpenTelemetry.tracer_provider, error_status: true)
      @tracer = tracer_provider.tracer("backhop", VERSION)
      @error_status = Values.truth(error_status, "error_status")
    end

    # A handler of messages that traces another one.
    #
    # @param handler [#call, nil] or a block; given the {Message}
    # @return [Proc]
    # @raise [InvalidArgumentError] for what cannot be called
    def wrap(handler = nil, &block)
      handle = Values.callable(handler || block, "the handler")
      proc { |message| process(message) { handle.call(message) } }
    end

    # Yields in the span of an attempt, as for a worker of Kicks: `tracing.process(delivery_info[:backhop]) { ... }`.
    #
    # @param message [Message]
    # @return [Object] what the block gives
    def process(message)
      span = started(message)
      ::OpenTelemetry::Trace.with_span(span) { yield message }
    rescue Drop
      raise
    rescue *Outcomes::FAILURES => e
      failed(span, message, e) if span
      raise
    ensure
      span&.finish
    end

    # Makes the span of what became of an attempt that failed: for on_event.
    #
    # @param event [Event]
    # @return [void]
    def call(event)
      what = SPANS[event.name]
      return unless what && event.traceparent

      now = Time.now
      @tracer.start_span("#{what} #{event.queue}", with_parent: parent(event.traceparent), kind: :producer,
                                                   start_timestamp: now - (event.duration || 0), attributes: became(event))
             .finish(end_timestamp: now)
    end

    private

    def started(message)
      failed = message.history.traceparent
      links = failed && [::OpenTelemetry::Trace::Link.new(span_context(failed), { "backhop.link" => "failed attempt" })]
      @tracer.start_span("process #{message.queue}", with_parent: context(message), kind: :consumer, links: links,
                                                     attributes: attributes(message))
    end

    # The current span, else the publisher's.
    def context(message)
      current = ::OpenTelemetry::Context.current
      return current if ::OpenTelemetry::Trace.current_span(current).context.valid?

      carrier = message.headers.select { |_, value| value.is_a?(String) }
      ::OpenTelemetry.propagation.extract(carrier, context: current)
    end

    def attributes(message)
      { "messaging.system" => "rabbitmq", "messaging.operation.type" => "process",
        "messaging.destination.name" => message.queue, "messaging.message.id" => message.id,
        "messaging.rabbitmq.destination.routing_key" => message.routing_key, "backhop.attempt" => message.attempt }.compact
    end

    def failed(span, message, error)
      span.record_exception(error)
      span.set_attribute("error.type", Outcomes.class_name(error))
      span.status = ::OpenTelemetry::Trace::Status.error(Outcomes.text(error)) if @error_status
      message.traceparent = TraceParent.from_span_context(span.context).to_s if span.context.valid?
    end

    def became(event)
      { "messaging.system" => "rabbitmq", "messaging.operation.type" => "send", "messaging.destination.name" => event.queue,
        "messaging.message.id" => event.id, "backhop.delay" => (event.delay if event.delay.positive?),
        "backhop.reason" => event.reason }.compact
    end

    def parent(traceparent)
      span = ::OpenTelemetry::Trace.non_recording_span(span_context(traceparent))
      ::OpenTelemetry::Trace.context_with_span(span, parent_context: ::OpenTelemetry::Context::ROOT)
    end

    def span_context(traceparent)
      read = TraceParent.from_string(traceparent)
      ::OpenTelemetry::Trace::SpanContext.new(trace_id: read.trace_id, span_id: read.span_id, trace_flags: read.flags,
                                              remote: true)
    end
  end
end
