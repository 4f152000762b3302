# frozen_string_literal: true

require "opentelemetry-api"

require_relative "../../backhop"

module Backhop
  # Spans of OpenTelemetry.
  #
  # - `process {queue}` for each attempt. It links to the failed attempt before it, and records the
  #   handler's exception.
  # - `retry {queue}` or `park {queue}` for a failed attempt, from the copy's publish to its
  #   confirm.
  #
  #     require "backhop/open_telemetry_tracing"
  #
  #     tracing = Backhop::OpenTelemetryTracing.new
  #     retrier = Backhop::Bunny::Retrier.new(
  #       channel, queue: "orders", policy: policy, on_event: tracing
  #     )
  #     retrier.subscribe(tracing.wrap { |message| handle(message) })
  #
  # An attempt's span belongs to the publisher's trace: all copies keep the message's traceparent.
  # Its parent is the current span if that is in the same trace, or if the message has no
  # traceparent. Errors of the tracing are logged; the handler runs in any case.
  class OpenTelemetryTracing
    include RetryListener

    TraceParent = ::OpenTelemetry::Trace::Propagation::TraceContext::TraceParent
    SPANS = { retried: "retry", deferred: "defer", parked: "park" }.freeze
    private_constant :TraceParent, :SPANS

    # @param tracer_provider [::OpenTelemetry::Trace::TracerProvider]
    # @param failure_is_error [Boolean] whether the span of a failed attempt gets the status error;
    #   it records the exception in any case
    # @raise [InvalidArgumentError] if failure_is_error is neither true nor false
    def initialize(tracer_provider: ::OpenTelemetry.tracer_provider, failure_is_error: true)
      @tracer = tracer_provider.tracer("backhop", VERSION)
      @failure_is_error = Checks.truth(failure_is_error, "failure_is_error")
    end

    # Returns a handler that calls your handler in the span of an attempt.
    #
    # @param handler [#call, nil] the handler, unless you give a block; called with the {Message}
    # @return [Proc]
    # @raise [InvalidArgumentError] if the handler has no method call
    def wrap(handler = nil, &block)
      handle = Checks.callable(handler || block, "the handler")
      proc { |message| process(message) { handle.call(message) } }
    end

    # Yields in the span of an attempt. In a worker of Kicks:
    # `tracing.process(delivery_info[:backhop]) { ... }`. If the span cannot be made, the error is
    # logged and the block runs without it.
    #
    # @param message [Message]
    # @return [Object] the result of the block
    def process(message)
      span = contained(:delivered, message) { started(message) }
      token = contained(:delivered, message) { entered(span) } if span
      result = yield message
      name = :succeeded
      result
    rescue Drop
      name = :dropped
      raise
    rescue *Outcomes::FAILURES => e
      name = :failed
      contained(name, message) { failed(span, message, e) } if span
      raise
    ensure
      name ||= :failed
      contained(name, message) { ::OpenTelemetry::Context.detach(token) } if token
      contained(name, message) { span.finish } if span
    end

    # Makes the span of a retry or of parking. Pass the tracing as on_event.
    #
    # @param event [Event]
    # @return [void]
    def call(event)
      what = SPANS[event.name]
      return unless what && event.traceparent

      now = Time.now
      options = { with_parent: parent(event.traceparent), kind: :producer, attributes: copy_attributes(what, event) }
      @tracer.start_span("#{what} #{event.queue}", start_timestamp: now - (event.duration || 0), **options)
             .finish(end_timestamp: now)
    end

    private

    def started(message)
      failed = message.history.traceparent
      links = failed && [::OpenTelemetry::Trace::Link.new(span_context(failed), { "backhop.link" => "failed attempt" })]
      @tracer.start_span("process #{message.queue}", with_parent: context(message), kind: :consumer, links: links,
                                                     attributes: attributes(message))
    end

    # Yields. Logs an exception and returns nil then.
    def contained(name, message)
      yield
    rescue *Outcomes::FAILURES => e
      Listeners.failed(name, message.queue, e)
      nil
    end

    def entered(span) = ::OpenTelemetry::Context.attach(::OpenTelemetry::Trace.context_with_span(span))

    # Returns the current context if its span is in the message's trace or the message has none,
    # else the publisher's.
    def context(message)
      current = ::OpenTelemetry::Context.current
      carrier = message.headers.select { |name, value| value.is_a?(String) && [name, value].all?(&:valid_encoding?) }
      published = contained(:delivered, message) { ::OpenTelemetry.propagation.extract(carrier, context: current) }
      published ||= current
      mine, theirs = [current, published].map { |each| ::OpenTelemetry::Trace.current_span(each).context }
      mine.valid? && mine.trace_id == theirs.trace_id ? current : published
    end

    def attributes(message)
      own = { "messaging.rabbitmq.destination.routing_key" => text(message.routing_key),
              "backhop.attempt" => message.attempt }
      common_attributes("process", "process", message.queue, message.id).update(own.compact)
    end

    def failed(span, message, error)
      message.traceparent = TraceParent.from_span_context(span.context).to_s if span.context.valid?
      span.set_attribute("error.type", Outcomes.class_name(error))
      span.status = ::OpenTelemetry::Trace::Status.error(Outcomes.text(error)) if @failure_is_error
      record(span, error)
    end

    # Records an exception, also if it cannot be printed.
    def record(span, error)
      span.record_exception(error)
    rescue *Outcomes::FAILURES
      span.add_event("exception", attributes: { "exception.type" => Outcomes.class_name(error),
                                                "exception.message" => Outcomes.text(error) })
    end

    def copy_attributes(what, event)
      own = what == "retry" ? { "backhop.delay" => event.delay } : { "backhop.reason" => event.reason }.compact
      common_attributes(what, "send", event.queue, event.id).update("backhop.attempts" => event.attempts, **own)
    end

    def common_attributes(operation, type, queue, id)
      { "messaging.system" => "rabbitmq", "messaging.operation.name" => operation, "messaging.operation.type" => type,
        "messaging.destination.name" => text(queue), "messaging.message.id" => text(id) }.compact
    end

    # Returns the text as valid UTF-8; nil if it is empty.
    def text(value) = value.nil? || value.empty? ? nil : Text.utf8(value)

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
