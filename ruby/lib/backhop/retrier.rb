# frozen_string_literal: true

module Backhop
  # The message waits, or was parked, as its consumers were lost too often; see Policy's max_crashes.
  class PoisonError < Error; end

  # What the retriers over each client share: what they decide, what they tell, how they wait.
  class Retrier
    MODES = %i[create verify none].to_h { |mode| [mode, mode] }.freeze
    private_constant :MODES

    # @return [Topology] the exchanges, queues and bindings that the strategy needs; topology.definitions is their JSON
    attr_reader :topology

    # @return [Symbol] what declare does: :create, :verify or :none
    attr_reader :mode

    # @api private
    attr_reader :listeners

    # @api private
    def initialize(topology, mode:, never:, only:, policies:, legacy_counter:, wait_queues:, back_off:, on_event:, clock:,
                   random:)
      @topology = topology
      @mode = Core.number(MODES, mode, "mode")
      @decider = Decider.new(@topology, never: never, only: only, policies: policies, legacy_counter: legacy_counter,
                                        wait_queues: wait_queues, clock: clock, random: random)
      @back_off = Values.object(back_off || Policy.back_off, "back_off", Policy)
      @listeners = Listeners.new(@topology.queue, on_event, clock)
      @restores = false # whether declare made the topology, and may make it again
    end

    # @return [Policy] how long, how often, how random, when to give up
    def policy
      @topology.policy
    end

    # Yields a message that was read, and counts its handler's time from here on: what it waited before, as in a pool, is no
    # part of that.
    #
    # @return [Object] what the block gives
    def handling(message)
      @listeners.begin(message)
      yield message
    end

    # How long to wait before something is tried again, in seconds.
    # @api private
    def back_off(failures)
      @back_off.delay([failures, 1].max, random: Random.rand)
    end

    # Whether a rung on demand is made as a message needs it.
    # @api private
    def makes_rungs? = Declaring.makes_rungs?(mode)

    # Whether declare made the topology, so that what is missing may be made again.
    # @api private
    def restores? = @restores

    # What was forgotten where something of the topology is missing; "" where nothing was.
    # @api private
    def forgotten = @restores || mode != :create ? "" : "retrier.declare"

    # Tells what happened, by the fields of an event that it has; a cause is of what its kind means each time.
    # @api private
    def tell(name, error: nil, text: nil, cause: nil, delay: 0, **fields)
      @listeners.tell(name, error) do |native|
        fields = { text: text, status: (error.status if error.is_a?(Error)), delay_ms: Times.milliseconds(delay), **fields }
        fields.each { |field, value| Event.set(native, field, value) unless [0, ""].include?(value) }
        Status.check(native.set_cause(cause)) if cause
      end
    end

    # Metrics whose store cannot ask are told how many copies are not confirmed.
    # @api private
    def note_pending = @listeners.note_pending

    # Tells that a message was settled which the broker delivers again.
    # @api private
    def tell_stale(id)
      tell(:stale, id: id)
    end

    # Tells that no copy can be made, so that the original stays with the broker.
    # @api private
    def tell_refused(id, error, attempts = nil)
      cause = Outcomes.text(error)
      tell(:refused, id: id, cause: cause, error: error.is_a?(Error) ? error : ContentError.new(cause), attempts: attempts)
    end

    private

    def plan(message, error)
      plan = @decider.plan(message.history, error, message.traceparent)
      @listeners.tell_message(Plan::ENDS[plan.outcome], message, error, plan.error)
      Backhop.log(Logger::DEBUG) { "#{message.inspect}: #{error.backtrace&.join("\n")}" }
      plan
    end

    def guard(message)
      @decider.guard(message.history)
    end

    # What becomes of a message by a plan of the guard's, in the core's words.
    def told(plan)
      native = Event.made(Event.of_plan(plan))
      Event.set(native, :queue, topology.queue)
      Status.check(native.set_plan(plan.native))
      native.line
    end
  end
end
