# frozen_string_literal: true

module Backhop
  # What to do with a delivery. Whoever carries it out never acknowledges what was not confirmed.
  #
  # | action                  | to do, in this order                                                         |
  # |-------------------------|------------------------------------------------------------------------------|
  # | :ack, :drop             | basic.ack                                                                    |
  # | :none                   | nothing was decided: hand it to the handler (guard)                          |
  # | :reject                 | basic.nack(requeue: false)                                                   |
  # | :return                 | basic.reject(requeue: true)                                                  |
  # | :retry, :park, :replay  | basic.publish of a copy, wait for its confirm, then basic.ack of the original |
  class Plan
    OUTCOMES = {
      ok: Native::BH_OUTCOME_OK,
      failed: Native::BH_OUTCOME_FAILED,
      permanent: Native::BH_OUTCOME_PERMANENT,
      dropped: Native::BH_OUTCOME_DROPPED
    }.freeze
    ACTIONS = {
      Native::BH_ACTION_NONE => :none,
      Native::BH_ACTION_ACK => :ack,
      Native::BH_ACTION_RETRY => :retry,
      Native::BH_ACTION_REJECT => :reject,
      Native::BH_ACTION_RETURN => :return,
      Native::BH_ACTION_PARK => :park,
      Native::BH_ACTION_DROP => :drop,
      Native::BH_ACTION_REPLAY => :replay
    }.freeze
    private_constant :OUTCOMES, :ACTIONS

    # What is told of a message, by what its handler did.
    # @api private
    ENDS = OUTCOMES.transform_values { |outcome| Native.bh_event_name(Native.bh_event_of(outcome)).to_sym }.freeze

    # The frame_max that RabbitMQ offers by default, in bytes.
    FRAME_MAX = 131_072
    # How many random bytes a plan takes.
    RANDOM_BYTES = 32

    class << self
      # The plan before a handler sees a message: :none, or, where its consumers were lost as often as the policy's
      # max_crashes allows, :retry, or in the end :park.
      #
      # @param (see #initialize)
      # @return [Plan]
      def guard(history, topology, frame_max: FRAME_MAX, now: nil, random: nil)
        of(frame_max) do |native|
          native.guard(history.delivery.native, history.native, topology.policy.native, topology.native,
                       Times.since_epoch(now || Time.now), random || Random.urandom(RANDOM_BYTES))
        end
      end

      # The plan to send a parked message back to its work queue, and to no other, as if it had never failed.
      #
      # @param (see #initialize)
      # @return [Plan]
      def replay(history, topology, frame_max: FRAME_MAX, random: nil)
        of(frame_max) do |native|
          native.replay(history.delivery.native, history.native, topology.native,
                        random || Random.urandom(RANDOM_BYTES))
        end
      end

      # The core's number for an outcome.
      # @api private
      def outcome(name) = Core.number(OUTCOMES, name, "outcome")

      private

      def of(frame_max, &decide) = allocate.tap { |plan| plan.send(:decide, frame_max, &decide) }
    end

    # @param history [History] read with this topology
    # @param topology [Topology] and its policy
    # @param outcome [Symbol] what the handler did: :ok, :failed, :permanent (park now), :dropped
    # @param error [String, nil] why it failed; at most 1 KiB is kept
    # @param retry_after [Numeric] the delay that the handler asks for at least, in seconds
    # @param policy [Policy, nil] one that the topology serves; default: its own
    # @param frame_max [Integer] what the publishing connection negotiated, in bytes; 0: no limit
    # @param now [Time, Numeric, nil] a moment, or seconds since the epoch; default: the clock
    # @param random [String, nil] 32 random bytes; default: the system's
    # @param traceparent [String, nil] the attempt's span, as W3C's traceparent: the copy carries it, for the next attempt to
    #   link to
    # @raise [InvalidArgumentError] for a traceparent of another form
    # @raise [FrameError] where not even the message's own headers fit frame_max
    # @raise [ForeignPolicyError] where the topology does not serve the policy
    def initialize(history, topology, outcome = :failed, error: nil, retry_after: 0, policy: nil, frame_max: FRAME_MAX,
                   now: nil, random: nil, traceparent: nil)
      @outcome = outcome
      @error = error || ""
      @traceparent = traceparent
      decide(frame_max) do |native|
        Status.check(native.set_traceparent(traceparent)) if traceparent
        native.make(history.delivery.native, history.native, (policy || topology.policy).native, topology.native,
                    self.class.outcome(outcome), error || "", Times.milliseconds(retry_after),
                    Times.since_epoch(now || Time.now), random || Random.urandom(RANDOM_BYTES))
      end
    end

    # @return [Symbol] what the handler did, as it was given
    # @api private
    attr_reader :outcome
    # @return [String] why the attempt failed, in words; "" where it did not
    # @api private
    attr_reader :error
    # @return [String, nil] the attempt's span, as it was given
    # @api private
    attr_reader :traceparent
    # @api private
    attr_reader :native

    # @return [Symbol] what to do
    def action = ACTIONS.fetch(@native.action)

    # @return [Boolean] whether a copy is published: :retry, :park, :replay
    def publishes? = @native.publishes == 1

    # @return [Integer] failed attempts, this one included where it failed
    def attempts = @native.attempts

    # @return [Float] how long the message will wait, in seconds; 0 where it does not
    def delay = Times.seconds(@native.delay_ms)

    # @return [Boolean] false where the delay is shorter than the handler asked for
    def retry_after_met? = @native.retry_after_met == 1

    # @return [String, nil] of :park: exhausted, permanent, too-old, oversized or poison
    def reason = Core.text(@native.reason)

    # @return [String, nil] the id that the copy carries; nil where none is published
    def id = Core.text(@native.id)

    # @return [String] where the copy goes
    def exchange = @native.exchange

    # @return [String] the copy's routing key
    def routing_key = @native.routing_key

    # @return [Boolean] whether the publish is mandatory: always, but for the delayed exchange, which returns what it keeps
    def mandatory? = @native.mandatory == 1

    # @return [Boolean] whether the topology's declarations whose wait is this delay must be made before the publish
    def on_demand? = @native.on_demand == 1

    # @return [Array<Symbol>] properties that the copy keeps as the original has them, if it has; its delivery_mode is 2
    def kept_properties = Delivery::PROPERTIES.filter_map { |name, number| name if @native.keeps_property(number) == 1 }

    # @return [String, nil] the copy's expiration, as the digits of its milliseconds
    def expiration = Core.text(@native.expiration)

    # @param name [String, Symbol]
    # @return [Boolean] whether the copy keeps the original's header of this name
    def keeps_header?(name) = @native.keeps_header(name.to_s) == 1

    # @return [Array<Array(String, Typed)>] headers that the copy gets besides. A :void stands for the value of the
    #   original's header that it names
    def headers = Array.new(@native.header_count) { |index| [@native.header_name(index), typed(index)] }

    # All headers of the copy, for a client to publish.
    #
    # @param headers [Hash, nil] the original's, as the client gave them; those that are kept go out as they are
    # @return [Hash{String => Object}]
    def copy_headers(headers) = @native.copy_headers(headers)

    # All properties of the copy but its headers, for a client to publish.
    #
    # @param properties [Hash, #[], nil] the original's, as the client gave them
    # @return [Hash{Symbol => Object}] a timestamp is in seconds since the epoch, as Bunny publishes it
    def copy_properties(properties)
      copy = { delivery_mode: 2 }
      if properties
        kept = @native.kept_properties
        Delivery::PROPERTIES.each do |name, number|
          value = kept[number] == 1 ? properties[name] : nil
          copy[name] = value unless value.nil?
        end
      end
      copy[:timestamp] = copy[:timestamp].to_i if copy[:timestamp]
      copy[:expiration] = expiration if expiration
      copy
    end

    # Enters it in a ledger, as what becomes of one of its entries.
    #
    # @param id [String] the copy's header backhop-id
    # @param makes_rungs [Boolean] whether a rung on demand is made before
    # @return [Integer] the core's status
    # @api private
    def settle(ledger, entry, id, makes_rungs:)
      ledger.settle(entry, @native.action, makes_rungs ? @native.rung_ms : 0, id, @native.exchange, @native.routing_key)
    end

    # @return [String]
    def inspect = "#<#{self.class} #{action}#{" to #{exchange.inspect}" if publishes?}, delay #{format("%g", delay)} s>"

    private

    def decide(frame_max)
      @native = Core.made(Native.bh_plan_new)
      Status.check(@native.set_frame_max(frame_max))
      Status.check(yield(@native))
      freeze
    end

    def typed(index)
      case @native.header_type(index)
      when Native::BH_TYPE_INT64 then Typed.new(:int64, @native.header_int(index))
      when Native::BH_TYPE_ARRAY then Typed.new(:array, [@native.header_string(index)])
      when Native::BH_TYPE_VOID then Typed.new(:void, @native.header_source(index))
      else Typed.new(:string, @native.header_string(index))
      end
    end
  end
end
