# frozen_string_literal: true

module Backhop
  # What the adapters share, from a client's message to a plan, for one work queue.
  class Decider
    # Random bytes for a plan that publishes no copy, and has no use for them.
    NO_COPY = ("\0".b * Plan::RANDOM_BYTES).freeze
    private_constant :NO_COPY

    # @return [Topology] and its policy
    attr_reader :topology
    # @return [Integer] what the publishing connection negotiated, in bytes; 0: no limit
    attr_accessor :frame_max

    # @param topology [Topology] and its policy
    # @param never [Class, #call, Array] classes of exceptions, or predicates, that park a message at once
    # @param only [Class, #call, Array] likewise: what is none of these parks at once
    # @param policies [Hash{Class, #call => Policy}] policies of their own for classes of exceptions, or by predicates; the
    #   topology has to serve them
    # @param legacy_counter [String, nil] as History's
    # @param wait_queues [Array<String>] as History's
    # @param frame_max [Integer] what the publishing connection negotiated, in bytes; 0: no limit
    # @param clock [#call] gives the moment, as a Time or seconds since the epoch
    # @param random [#call] gives that many random bytes
    def initialize(topology, never: [], only: [], policies: {}, legacy_counter: nil, wait_queues: [],
                   frame_max: Plan::FRAME_MAX, clock: Time.method(:now), random: Random.method(:urandom))
      @topology = topology
      @choice = Choice.new(never, only, policies)
      @legacy_counter = legacy_counter && Values.text(legacy_counter, "legacy_counter")
      @wait_queues = Values.texts(wait_queues, "wait_queues")
      @frame_max = frame_max
      @clock = Values.callable(clock, "clock")
      @random = Values.callable(random, "random")
    end

    # What a client's message tells; arguments as Delivery's.
    #
    # @return [History]
    def read(exchange: "", routing_key: "", properties: nil, headers: nil)
      delivery = Delivery.new(exchange: exchange, routing_key: routing_key, properties: properties, headers: headers)
      History.new(delivery, topology, legacy_counter: @legacy_counter, wait_queues: @wait_queues)
    end

    # What becomes of a message whose consumers were lost too often, before a handler sees it.
    #
    # @param history [History]
    # @return [Plan, nil] nil for any other message
    def guard(history)
      guarded(history, random) unless guarded(history, NO_COPY).action == :none
    end

    # What to do with a message that a handler has seen.
    #
    # @param history [History]
    # @param exception [Exception, nil] what the handler raised; nil: it returned
    # @param traceparent [String, nil] the attempt's span, as W3C's traceparent: the next attempt can link to it
    # @return [Plan]
    def plan(history, exception = nil, traceparent = nil)
      result = exception ? @choice.result_of(exception) : Outcomes::OK
      bytes = %i[ok dropped].include?(result.outcome) ? NO_COPY : random
      Plan.new(history, topology, result.outcome, error: result.error, retry_after: result.retry_after, policy: result.policy,
                                                  frame_max: frame_max, now: @clock.call, random: bytes,
                                                  traceparent: traceparent)
    end

    # How to send a parked message back to its work queue.
    #
    # @param history [History]
    # @return [Plan]
    def replay(history) = Plan.replay(history, topology, frame_max: frame_max, random: random)

    private

    def guarded(history, random)
      Plan.guard(history, topology, frame_max: frame_max, now: @clock.call, random: random)
    end

    def random = @random.call(Plan::RANDOM_BYTES)
  end
end
