# frozen_string_literal: true

module Backhop
  # A record of x-death: the broker keeps one for each queue and reason.
  #
  # @!attribute [r] queue
  #   @return [String]
  # @!attribute [r] reason
  #   @return [String] rejected, expired, maxlen or delivery_limit
  # @!attribute [r] times
  #   @return [Integer] how often
  # @!attribute [r] time
  #   @return [Time, nil] the first time, to the second
  # @!attribute [r] exchange
  #   @return [String]
  # @!attribute [r] routing_keys
  #   @return [Array<String>]
  # @!attribute [r] original_expiration
  #   @return [String, nil] the expiration that the message had, as its digits
  Death = Struct.new(:queue, :reason, :times, :time, :exchange, :routing_keys, :original_expiration, keyword_init: true)

  # Where and why a message was dead-lettered; "" for what the headers do not tell.
  #
  # @!attribute [r] queue
  #   @return [String]
  # @!attribute [r] reason
  #   @return [String]
  # @!attribute [r] exchange
  #   @return [String]
  DeathPlace = Struct.new(:queue, :reason, :exchange, keyword_init: true)

  # What the headers tell of a message's past. A header that cannot be trusted is ignored, and named in {#problems}.
  class History
    SOURCES = {
      Native::BH_SOURCE_NONE => :none,
      Native::BH_SOURCE_BACKHOP => :backhop,
      Native::BH_SOURCE_LEGACY => :legacy,
      Native::BH_SOURCE_X_DEATH => :x_death,
      Native::BH_SOURCE_DELIVERY_COUNT => :delivery_count
    }.freeze
    private_constant :SOURCES

    # @api private
    attr_reader :native

    # @return [Delivery] what arrived
    attr_reader :delivery

    # @param delivery [Delivery] what arrived
    # @param topology [Topology, nil] tells the strategy and the work queue; without one, no strategy counts
    # @param legacy_counter [String, nil] a header in which an earlier retry code of the application counted failures
    # @param wait_queues [Array<String>] wait queues of an earlier, hand-made set-up: each expiry there was a failure
    def initialize(delivery, topology = nil, legacy_counter: nil, wait_queues: [])
      @delivery = delivery
      @native = Core.made(Native.bh_history_new)
      Status.check(@native.set_legacy_counter(legacy_counter)) if legacy_counter
      wait_queues.each { |queue| Status.check(@native.add_wait_queue(queue)) }
      Status.check(@native.read(delivery.native, topology&.native))
      freeze
    end

    # A history that the core has read.
    # @api private
    def self.of(native, delivery)
      allocate.tap do |history|
        history.instance_variable_set(:@native, native)
        history.instance_variable_set(:@delivery, delivery)
        history.freeze
      end
    end

    # @return [Integer] failed attempts so far
    def attempts = @native.attempts

    # @return [Symbol] where the count of attempts comes from: :none, :backhop, :legacy, :x_death or :delivery_count
    def source = SOURCES.fetch(@native.attempts_source)

    # @return [Time, nil] the first failure, in UTC; nil where it is unknown. From a broker's x-death it is whole seconds
    def first_failure = Times.moment(@native.first_failure_ms)

    # @return [Float, nil] the last delay, in seconds; nil where it is unknown
    def last_delay
      delay = @native.last_delay_ms
      Times.seconds(delay) unless delay.negative?
    end

    # @return [String, nil] the span of the last attempt that failed, as W3C's traceparent, where a tracing made one
    def traceparent = Core.text(@native.traceparent)

    # How many seconds later than due a retry is there; nil where it is unknown, as of a first attempt.
    #
    # @param redelivered [Boolean] whether the broker delivered it before: then it may have come in time
    # @param now [Time, Numeric, nil] a moment, or seconds since the epoch; default: the clock
    # @return [Float, nil]
    def lateness(redelivered: false, now: nil)
      late = @native.lateness_ms(redelivered ? 1 : 0, Times.since_epoch(now || Time.now))
      Times.seconds(late) unless late.negative?
    end

    # @return [String, nil] the last error's text
    def last_error = Core.text(@native.last_error)

    # @return [String, nil] the id that all further attempts share: backhop-id, else the message-id property; nil where there
    #   is neither: a first attempt of a message without message-id, whose first copy gets an id
    def id = Core.text(@native.id)

    # @return [Boolean] whether it has an id of its own yet
    def id? = @native.has_id == 1

    # @return [String] where the message was first published. Show it; do not route by it
    def exchange = @native.exchange

    # @return [String] the routing key with which it was first published
    def routing_key = @native.routing_key

    # @return [String, nil] why the message was parked: exhausted, permanent, too-old, oversized, poison; nil where it was
    #   not
    def parked = Core.text(@native.parked)

    # @return [Integer] how often it was sent back from the parked queue, by replay or by other hands
    def replays = @native.replays

    # @return [Integer] what a quorum queue counted in x-delivery-count; 0 where absent
    def delivery_count = @native.delivery_count

    # @return [Integer] what a quorum queue of RabbitMQ 4.3 counted in x-acquired-count; 0 where absent
    def acquired_count = @native.acquired_count

    # @return [Integer] deliveries that ended without being settled, as far as quorum queues count: consumers that were lost,
    #   or gave it back, while it, or a message beside it, was in hand
    def crashes = @native.crashes

    # @return [Array<Death>] the records of x-death, most recent first
    def deaths = Array.new(@native.death_count) { |index| death(index) }

    # @return [DeathPlace] x-first-death-*: the first time that the broker dead-lettered the message
    def first_death
      DeathPlace.new(
        queue: @native.first_death_queue, reason: @native.first_death_reason, exchange: @native.first_death_exchange
      ).freeze
    end

    # @return [DeathPlace] x-last-death-*: the last time (RabbitMQ 3.13 and newer)
    def last_death
      DeathPlace.new(
        queue: @native.last_death_queue, reason: @native.last_death_reason, exchange: @native.last_death_exchange
      ).freeze
    end

    # @return [Array<String>] headers that were ignored: each a sentence that begins with the header's name
    def problems = Array.new(@native.problem_count) { |index| @native.problem(index) }

    # @return [String]
    def inspect = "#<#{self.class} of #{attempts} failed attempts>"

    private

    def death(index)
      Death.new(
        queue: @native.death_queue(index),
        reason: @native.death_reason(index),
        times: @native.death_times(index),
        time: Times.moment(@native.death_first_time_s(index) * 1000),
        exchange: @native.death_exchange(index),
        routing_keys: Array.new(@native.death_routing_key_count(index)) { |key| @native.death_routing_key(index, key) },
        original_expiration: Core.text(@native.death_original_expiration(index))
      ).freeze
    end
  end
end
