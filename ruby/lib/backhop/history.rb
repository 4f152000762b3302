# frozen_string_literal: true

module Backhop
  # A record of x-death. The broker keeps one for each queue and reason.
  #
  # @!attribute [r] queue
  #   @return [String] the queue that dead-lettered the message
  # @!attribute [r] reason
  #   @return [String] rejected, expired, maxlen or delivery_limit
  # @!attribute [r] times
  #   @return [Integer] number of times
  # @!attribute [r] time
  #   @return [Time, nil] the first time, in UTC, in whole seconds
  # @!attribute [r] exchange
  #   @return [String] the exchange of the message before
  # @!attribute [r] routing_keys
  #   @return [Array<String>] the routing keys of the message before
  # @!attribute [r] original_expiration
  #   @return [String, nil] the message's expiration before, as decimal digits
  Death = Struct.new(:queue, :reason, :times, :time, :exchange, :routing_keys, :original_expiration, keyword_init: true)

  # Where and why a message was dead-lettered. A field is "" if the message does not have its
  # header.
  #
  # @!attribute [r] queue
  #   @return [String] the queue that dead-lettered the message
  # @!attribute [r] reason
  #   @return [String] rejected, expired, maxlen or delivery_limit
  # @!attribute [r] exchange
  #   @return [String] the exchange of the message before
  DeathPlace = Struct.new(:queue, :reason, :exchange, keyword_init: true)

  # A message's past, from its headers. Headers are untrusted input: an invalid one is ignored and
  # listed in {#problems}.
  class History
    SOURCES = Core.names("BH_SOURCE_")
    private_constant :SOURCES

    # Number of random bytes of an assigned id.
    # @api private
    ID_RANDOM_BYTES = 16

    # @api private
    attr_reader :native

    # @return [Delivery] the message as it arrived
    attr_reader :delivery

    # @param delivery [Delivery] the message as it arrived
    # @param topology [Topology, nil] has the strategy and the work queue. Without one, retries of
    #   the strategies :reject and :native are not counted
    # @param legacy_counter [String, nil] name of a header that counts failures, of your earlier
    #   retry code
    # @param wait_queues [Array<String>] names of wait queues of an earlier setup: each expiry there
    #   counts as a failure
    # @raise [InvalidArgumentError] if legacy_counter is no String of 1 to 255 bytes, or another
    #   name is too long
    def initialize(delivery, topology = nil, legacy_counter: nil, wait_queues: [])
      @delivery = delivery
      @native = History.reader(legacy_counter, wait_queues)
      Status.check(@native.read(delivery.native, topology&.native))
      freeze
    end

    # Returns a history of the core that reads these earlier counters too.
    # @api private
    def self.reader(legacy_counter, wait_queues)
      Core.made(Native.bh_history_new).tap do |native|
        Status.check(native.set_legacy_counter(Checks.legacy_counter(legacy_counter))) unless legacy_counter.nil?
        wait_queues.each { |queue| Status.check(native.add_wait_queue(queue)) }
      end
    end

    # Returns a history that the core has read.
    # @api private
    def self.of(native, delivery)
      allocate.tap do |history|
        history.instance_variable_set(:@native, native)
        history.instance_variable_set(:@delivery, delivery)
        history.freeze
      end
    end

    # @return [Integer] number of failed attempts
    def attempts = @native.attempts

    # @return [Symbol] source of the number of attempts: :none, :backhop, :legacy, :x_death or
    #   :delivery_count
    def source = SOURCES.fetch(past.source)

    # @return [Time, nil] time of the first failure, in UTC; nil if unknown. From x-death it is in
    #   whole seconds
    def first_failure = Times.moment(past.first_failure_ms)

    # @return [Float, nil] the last delay, in seconds; nil if unknown
    def last_delay
      delay = past.last_delay_ms
      Times.seconds(delay) unless delay.negative?
    end

    # @return [String, nil] W3C traceparent of the last failed attempt's span, if a tracing made one
    def traceparent = Core.text(past.traceparent)

    # Returns the arrival time of a retry minus its due time.
    #
    # @param redelivered [Boolean] whether the broker delivered it before: the first of these
    #   deliveries may have been in time
    # @param now [Time, Numeric, nil] the arrival time, as a Time or seconds since the epoch;
    #   default: now
    # @return [Float, nil] seconds; nil if unknown, for example for a first attempt
    def lateness(redelivered: false, now: nil)
      late = @native.lateness_ms(redelivered ? 1 : 0, Times.since_epoch(now || Time.now))
      Times.seconds(late) unless late.negative?
    end

    # @return [String, nil] text of the last error
    def last_error = Core.text(past.last_error)

    # @return [String, nil] the id that all attempts share: backhop-id, else the message-id
    #   property; nil for the first attempt of a message without message-id
    def id = Core.text(@native.id)

    # @return [Boolean] true if it has an id
    def id? = !@native.id.empty?

    # Assigns an id for events and the first copy. Does nothing if the message has an id.
    # @api private
    def assign_id(random) = Status.check(@native.assign_id(random))

    # @return [String, nil] the id of events and logs: {#id}, else the assigned one
    # @api private
    def event_id = Core.text(@native.event_id)

    # @return [String] the exchange of the first publish. It is untrusted: do not publish to it
    def exchange = @native.exchange

    # @return [String] the routing key of the first publish
    def routing_key = @native.routing_key

    # @return [String, nil] why the message was parked: exhausted, permanent, too-old, oversized or
    #   poison; nil if it was not
    def parked = Core.text(past.parked)

    # @return [Integer] number of moves from the parked queue back to the work queue, by replay or
    #   by another tool
    def replays = past.replays

    # @return [Integer] how often Throttled or a breaker deferred it; these were no attempts
    def deferrals = past.deferrals

    # @return [Integer] x-delivery-count of a quorum queue; 0 if absent
    def delivery_count = past.delivery_count

    # @return [Integer] x-acquired-count of a quorum queue (RabbitMQ 4.3 and newer); 0 if absent
    def acquired_count = past.acquired_count

    # @return [Integer] number of deliveries that ended without a settlement, for example because
    #   the consumer was lost; only quorum queues count them
    def crashes = past.crashes

    # @return [Array<Death>] the records of x-death, latest first
    def deaths = Array.new(past.death_count) { |index| death(index) }

    # @return [DeathPlace] the first dead-lettering, from x-first-death-*
    def first_death
      place(@native.first_death)
    end

    # @return [DeathPlace] the last dead-lettering, from x-last-death-* (RabbitMQ 3.13 and newer)
    def last_death
      place(@native.last_death)
    end

    # @return [Array<String>] a sentence for each ignored header, which begins with the header's
    #   name
    def problems = (0..).lazy.map { |index| @native.problem(index) }.take_while { |problem| !problem.empty? }.to_a

    # @return [String]
    def inspect = "#<#{self.class} of #{attempts} failed attempts>"

    private

    # The struct bh_past of the core.
    Past = Struct.new(:attempts, :source, :first_failure_ms, :last_delay_ms, :deferrals, :replays, :crashes,
                      :delivery_count, :acquired_count, :death_count, :last_error, :parked, :traceparent)
    private_constant :Past

    def past = Past.new(*@native.past)

    def death(index)
      queue, reason, exchange, expiration, times, first_time_s, keys = @native.death(index)
      Death.new(
        queue: queue, reason: reason, times: times, time: Times.moment(first_time_s * 1000), exchange: exchange,
        routing_keys: keys, original_expiration: Core.text(expiration)
      ).freeze
    end

    def place((queue, reason, exchange)) = DeathPlace.new(queue: queue, reason: reason, exchange: exchange).freeze
  end

  # Returns the history of a message as text, from its headers.
  #
  #     puts Backhop.explain({
  #       "backhop-attempts" => 2, "backhop-delay" => 30_000, "backhop-error" => "507 queue is full"
  #     })
  #     It failed 2 times.
  #     The last error was: 507 queue is full
  #     Its last wait was 30 s.
  #
  # @param headers [Hash, nil] the headers, as a client returns them
  # @param topology [Topology, nil] needed for the strategies :reject and :native: their retries
  #   count by the broker's headers
  # @param legacy_counter [String, nil] see {History#initialize}; likewise wait_queues
  # @return [String] valid UTF-8
  # @raise [InvalidArgumentError] if a header has a value that AMQP cannot hold
  def self.explain(headers, topology: nil, legacy_counter: nil, wait_queues: [])
    history = History.new(Delivery.new(headers: headers || {}), topology, legacy_counter: legacy_counter,
                                                                          wait_queues: wait_queues)
    history.native.explanation
  end
end
