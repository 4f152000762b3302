# frozen_string_literal: true

module Backhop
  # The decision for one delivery. Acknowledge an original only after the broker confirmed its copy.
  #
  # | action         | what to do, in this order                                            |
  # |----------------|----------------------------------------------------------------------|
  # | :ack, :drop    | basic.ack                                                            |
  # | :none          | nothing was decided (guard): call the handler                        |
  # | :reject        | basic.nack(requeue: false)                                           |
  # | :return        | basic.reject(requeue: true)                                          |
  # | :retry, :defer | basic.publish of a copy, its confirm, then basic.ack of the original |
  # | :park, :replay | the same                                                             |
  class Plan
    OUTCOMES = Core.numbers("BH_OUTCOME_", :released)
    ACTIONS = Core.names("BH_ACTION_")
    private_constant :OUTCOMES, :ACTIONS

    # The frame_max that RabbitMQ offers by default, in bytes.
    FRAME_MAX = 131_072
    # The number of random bytes that a plan needs.
    RANDOM_BYTES = 32

    class << self
      # Returns the plan before the handler. The action is :none if the handler may get the message.
      # If its consumers were lost as often as the policy's max_crashes, the action is :retry, and
      # :park after 16 such retries.
      #
      # @param (see #initialize)
      # @return [Plan]
      # @raise (see #initialize)
      def guard(history, topology, frame_max: FRAME_MAX, now: nil, random: nil)
        of(frame_max) do |native|
          native.guard(history.delivery.native, history.native, topology.policy.native, topology.native,
                       Times.since_epoch(now || Time.now), random || Random.urandom(RANDOM_BYTES))
        end
      end

      # Returns the plan that moves a parked message back to its work queue, with a cleared history.
      #
      # @param (see #initialize)
      # @return [Plan]
      # @raise (see #initialize)
      def replay(history, topology, frame_max: FRAME_MAX, random: nil)
        of(frame_max) do |native|
          native.replay(history.delivery.native, history.native, topology.native,
                        random || Random.urandom(RANDOM_BYTES))
        end
      end

      # Returns the name of the event of an attempt's end.
      #
      # @param policy [Policy, nil] nil: the topology's own
      # @api private
      def end_of(history, topology, name, policy = nil)
        number = Native.bh_plan_outcome(
          history.native, (policy || topology.policy).native, topology.native, outcome(name)
        )
        Native.bh_event_name(Native.bh_event_of(number)).to_sym
      end

      # Returns the core's number of an outcome.
      # @api private
      def outcome(name) = Core.number(OUTCOMES, name, "outcome")

      private

      def of(frame_max, &decide) = allocate.tap { |plan| plan.send(:decide, frame_max, &decide) }
    end

    # @param history [History] the message's history, read with this topology
    # @param topology [Topology] the topology, with its policy
    # @param outcome [Symbol] what the handler decided: :ok, :failed, :permanent (park now),
    #   :dropped or :throttled (the message waits, and this is no attempt). Or :deferred, for a
    #   message that no handler got: it waits for about retry_after
    # @param error [String, nil] the error's text; at most 1 KiB is kept
    # @param retry_after [Numeric] the handler's shortest delay, in seconds; 0: none
    # @param policy [Policy, nil] a policy that the topology serves; default: the topology's own
    # @param frame_max [Integer] frame_max of the publishing connection, in bytes; 0: no limit
    # @param now [Time, Numeric, nil] the time, as a Time or seconds since the epoch; default: now
    # @param random [String, nil] 32 random bytes; default: from the system
    # @param traceparent [String, nil] W3C traceparent of the attempt's span. The copy carries it;
    #   the next attempt can link to it
    # @raise [InvalidArgumentError] if the outcome or the traceparent is malformed
    # @raise [FrameError] if the message's own headers do not fit frame_max
    # @raise [ForeignPolicyError] if the topology does not serve the policy
    # @raise [StrategyError] if the outcome is :deferred, and the strategy :reject or :native
    def initialize(history, topology, outcome = :failed, error: nil, retry_after: 0, policy: nil, frame_max: FRAME_MAX,
                   now: nil, random: nil, traceparent: nil)
      @outcome = outcome
      @error = error || ""
      @policy = policy
      @traceparent = traceparent
      decide(frame_max) do |native|
        Status.check(native.set_traceparent(traceparent)) if traceparent
        native.make(history.delivery.native, history.native, (policy || topology.policy).native, topology.native,
                    self.class.outcome(outcome), error || "", Times.milliseconds(retry_after),
                    Times.since_epoch(now || Time.now), random || Random.urandom(RANDOM_BYTES))
      end
    end

    # @return [Symbol] the given outcome
    # @api private
    attr_reader :outcome
    # @return [String] the error's text; "" if the attempt did not fail
    # @api private
    attr_reader :error
    # @return [Policy, nil] the given policy
    # @api private
    attr_reader :policy
    # @return [String, nil] the given traceparent
    # @api private
    attr_reader :traceparent
    # @api private
    attr_reader :native

    # @return [Symbol] the action
    def action = ACTIONS.fetch(@native.action)

    # @return [Boolean] true if a copy is to be published: :retry, :defer, :park or :replay
    def publishes? = %i[retry defer park replay].include?(action)

    # @return [Integer] number of failed attempts, this one included if it failed
    def attempts = @native.read[1]

    # @return [Integer] how often the message was deferred, this time included
    def deferrals = @native.read[2]

    # @return [Float] delay until the next attempt, in seconds; 0 if there is none
    def delay = Times.seconds(@native.read[3])

    # @return [Boolean] false if the delay is shorter than the handler's shortest delay
    def retry_after_met? = @native.read[4] == 1

    # @return [String, nil] for :park the reason: exhausted, permanent, too-old, oversized or
    #   poison; else nil
    def reason = Core.text(@native.read[5])

    # @return [String, nil] the id of the copy; nil if there is no copy
    def id = Core.text(@native.copy[0])

    # @return [String] the copy's exchange
    def exchange = @native.copy[1]

    # @return [String] the copy's routing key
    def routing_key = @native.copy[2]

    # @return [Boolean] whether to publish with mandatory. It is false only for the delayed
    #   exchange, which returns every message that it delays
    def mandatory? = @native.copy[5] == 1

    # @return [Boolean] true if the rung of this delay must be declared before the publish: see
    #   {Declaration#wait}
    def on_demand? = @native.copy[6] == 1

    # @return [Array<Symbol>] names of properties that the copy takes from the original; its
    #   delivery_mode is 2
    def kept_properties = Delivery::PROPERTIES.filter_map { |name, number| name if @native.keeps_property(number) == 1 }

    # @return [String, nil] the copy's expiration in ms, as decimal digits; nil if it has none
    def expiration = Core.text(@native.copy[3])

    # @param name [String, Symbol] name of a header of the original
    # @return [Boolean] true if the copy takes this header from the original
    def keeps_header?(name) = @native.keeps_header(name.to_s) == 1

    # @return [Array<Array(String, Typed)>] further headers of the copy. A value of type :void has
    #   the name of a header of the original: take that header's value
    def headers = Array.new(@native.read[6]) { |index| typed(*@native.header(index)) }

    # Returns all headers of the copy, for a client to publish.
    #
    # @param headers [Hash, nil] the original's headers, as the client returned them; kept values
    #   are not changed
    # @return [Hash{String => Object}]
    def copy_headers(headers) = @native.copy_headers(headers)

    # Returns all properties of the copy without its headers, for a client to publish.
    #
    # @param properties [Hash, #[], nil] the original's properties, as the client returned them
    # @return [Hash{Symbol => Object}] a timestamp is in seconds since the epoch, as Bunny takes it
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

    # Enters the decision for an entry into a ledger.
    #
    # @param id [String] the copy's header backhop-id
    # @param makes_rungs [Boolean] whether a rung on demand is declared before the publish
    # @return [Integer] the core's status
    # @api private
    def settle(ledger, entry, id, makes_rungs:)
      _, exchange, routing_key, _, rung_ms = @native.copy
      ledger.settle(entry, @native.action, makes_rungs ? rung_ms : 0, id, exchange, routing_key)
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

    def typed(name, type, string, integer, source)
      value = case type
              when Native::BH_TYPE_INT64 then Typed.new(:int64, integer)
              when Native::BH_TYPE_ARRAY then Typed.new(:array, [string])
              when Native::BH_TYPE_VOID then Typed.new(:void, source)
              else Typed.new(:string, string)
              end
      [name, value]
    end
  end
end
