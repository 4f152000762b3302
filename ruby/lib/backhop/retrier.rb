# frozen_string_literal: true

module Backhop
  # The consumers of the message were lost too often. The message is delayed or parked; see Policy's
  # max_crashes.
  class PoisonError < Error; end

  # The base class of a client's retrier.
  class Retrier
    MODES = %i[create verify none].to_h { |mode| [mode, mode] }.freeze
    private_constant :MODES

    # @return [Topology] the exchanges, queues and bindings; topology.definitions is their JSON
    attr_reader :topology

    # @return [Symbol] what declare does: :create, :verify or :none
    attr_reader :mode

    # @api private
    attr_reader :listeners

    # @api private
    def initialize(topology, mode:, never:, only:, policies:, legacy_counter:, wait_queues:, back_off:, on_event:,
                   clock:, random:, breaker: nil)
      @topology = topology
      @breaker = Breaker.of(breaker, topology)
      @mode = Core.number(MODES, mode, "mode")
      @decider = Decider.new(@topology, never: never, only: only, policies: policies, legacy_counter: legacy_counter,
                                        wait_queues: wait_queues, clock: clock, random: random)
      @back_off = Checks.object(back_off || Policy.back_off, "back_off", Policy)
      @listeners = Listeners.new(@topology.queue, on_event, clock)
      @restores = false # whether declare made the topology, and may make it again
    end

    # @return [Policy] the rules for delays and limits
    def policy
      @topology.policy
    end

    # Yields a message of `read`, and starts its handler's time. So the time that the message spent
    # in your pool is not counted.
    #
    # @return [Object] the result of the block
    def handling(message)
      @listeners.begin(message)
      yield message
    end

    # @return [Policy] the delays before an operation is tried again
    # @api private
    def back_off_policy = @back_off

    # Returns true if a rung on demand is declared when a message needs it.
    # @api private
    def makes_rungs? = Declaring.makes_rungs?(mode)

    # Returns true if declare made the topology, so that missing parts may be declared again.
    # @api private
    def restores? = @restores

    # Returns the method that the user did not call, for the error of a missing topology; "" if
    # there is none.
    # @api private
    def forgotten = @restores || mode != :create ? "" : "retrier.declare"

    # Emits an event with the given fields.
    #
    # @param cause [String, nil] the cause; the core words it by the kind of the event
    # @param delay [Numeric] seconds
    # @param to [Array<Subscription>, nil] whose state it may change; nil: all
    # @api private
    def emit(name, error: nil, text: nil, cause: nil, delay: 0, to: nil, **fields)
      @listeners.emit(name, error) do |native|
        status = error.status if error.is_a?(Error)
        fields = { text: text, status: status, delay_ms: Times.milliseconds(delay), **fields }
        fields.each { |field, value| Event.set(native, field, value) unless [0, ""].include?(value) }
        Status.check(native.set_cause(cause)) if cause
        note(native, to)
      end
      note_gauges
    end

    # Emits an event of the breaker.
    #
    # @param native [Native::Event] without the queue
    # @api private
    def emit_made(native)
      Event.set(native, :queue, topology.queue)
      note(native)
      @listeners.emit_event(Event.new(native))
    end

    # Returns whether each of its consumers is ready, for the metrics.
    # @api private
    def readiness = []

    # Notifies the metrics that a gauge may have changed.
    # @api private
    def note_gauges = @listeners.note_gauges

    # Emits that a message was settled too late: the broker delivers it again.
    # @api private
    def emit_stale(id)
      emit(:stale, id: id)
    end

    # Emits that no copy can be made: the original stays with the broker.
    # @api private
    def emit_refused(id, error, attempts = nil)
      cause = Outcomes.text(error)
      error = ContentError.new(cause) unless error.is_a?(Error)
      emit(:refused, id: id, cause: cause, error: error, attempts: attempts)
    end

    private

    # Gets each event of {#emit}.
    def note(event, to = nil); end

    # Records the end of a message's call with the breaker.
    def end_call(message, result, error = nil)
      return unless (permit = message.permit)

      message.permit = nil
      result ? @breaker.record(permit, result, error) : @breaker.forget(permit)
      permit.gate&.ended
    end

    def plan(message, error)
      result = @decider.result_of(error)
      end_call(message, result, error)
      plan = @decider.plan_of(message.history, result, message.traceparent)
      event = Plan.end_of(message.history, topology, plan.outcome, plan.policy)
      @listeners.emit_message(event, message, error, plan.error)
      Backhop.log(Logger::DEBUG) { "#{message.inspect}: #{error.backtrace&.join("\n")}" }
      plan
    end

    def guard(message)
      @decider.guard(message.history)
    end

    # Returns what the poison guard decided, as the core's text.
    def poison_text(plan)
      native = Event.made(Event.of_plan(plan))
      Event.set(native, :queue, topology.queue)
      Status.check(native.set_plan(plan.native))
      native.line
    end
  end
end
