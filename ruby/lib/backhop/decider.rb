# frozen_string_literal: true

module Backhop
  # Reads a client's messages and makes plans, for one work queue. Use it to write an adapter.
  class Decider
    # Placeholder for the random bytes of a plan that publishes no copy.
    NO_COPY = ("\0".b * Plan::RANDOM_BYTES).freeze
    private_constant :NO_COPY

    # @return [Topology] the topology, with its policy
    attr_reader :topology
    # @return [Integer] frame_max of the publishing connection, in bytes; 0: no limit
    attr_accessor :frame_max

    # @param topology [Topology] the topology, with its policy
    # @param never [Class, #call, Array] classes of exceptions, or predicates, that park a message
    #   at once
    # @param only [Class, #call, Array] classes or predicates likewise; an exception that matches
    #   none of them parks at once
    # @param policies [Hash{Class, #call => Policy}] policies by class of exception or predicate;
    #   the topology must serve them
    # @param legacy_counter [String, nil] see {History#initialize}; likewise wait_queues
    # @param frame_max [Integer] frame_max of the publishing connection, in bytes; 0: no limit
    # @param clock [#call] returns the time, as a Time or seconds since the epoch
    # @param random [#call] returns the given number of random bytes
    # @raise [InvalidArgumentError] if an option has a wrong value
    def initialize(topology, never: [], only: [], policies: {}, legacy_counter: nil, wait_queues: [],
                   frame_max: Plan::FRAME_MAX, clock: Time.method(:now), random: Random.method(:urandom))
      @topology = topology
      @rules = FailureRules.new(never, only, policies)
      @legacy_counter = legacy_counter.nil? ? nil : Checks.legacy_counter(legacy_counter)
      @wait_queues = Checks.texts(wait_queues, "wait_queues")
      @frame_max = frame_max
      @clock = Checks.callable(clock, "clock")
      @random = Checks.callable(random, "random")
    end

    # Reads a message, and assigns an id if it has none: for its events and its first copy. Call it
    # once per delivery.
    #
    # @param (see Delivery#initialize)
    # @return [History]
    # @raise (see Delivery#initialize)
    def read(exchange: "", routing_key: "", properties: nil, headers: nil)
      delivery = Delivery.new(exchange: exchange, routing_key: routing_key, properties: properties, headers: headers)
      history = History.new(delivery, topology, legacy_counter: @legacy_counter, wait_queues: @wait_queues)
      history.assign_id(@random.call(History::ID_RANDOM_BYTES)) unless history.id?
      history
    end

    # Returns the plan for a message whose consumers were lost too often. Call it before the
    # handler.
    #
    # @param history [History]
    # @return [Plan, nil] nil if the handler may get the message
    # @raise (see Plan#initialize)
    def guard(history)
      guarded(history, random) unless guarded(history, NO_COPY).action == :none
    end

    # Returns the plan for a message after its handler.
    #
    # @param history [History]
    # @param exception [Exception, nil] the handler's exception; nil if it returned
    # @param traceparent [String, nil] W3C traceparent of the attempt's span; the next attempt can
    #   link to it
    # @return [Plan]
    # @raise (see Plan#initialize)
    def plan(history, exception = nil, traceparent = nil)
      plan_of(history, result_of(exception), traceparent)
    end

    # Returns the plan for a message that no handler gets, as its breaker is open. It waits without
    # an attempt.
    #
    # @param history [History]
    # @param delay [Numeric] about how long, in seconds
    # @return [Plan]
    # @raise (see Plan#initialize)
    def defer(history, delay) = plan_of(history, Outcomes::Result.new(:deferred, "", delay))

    # Returns the outcome of an exception.
    #
    # @return [Outcomes::Result]
    # @api private
    def result_of(exception) = exception ? @rules.result_of(exception) : Outcomes::OK

    # Returns the plan for an outcome.
    # @api private
    def plan_of(history, result, traceparent = nil)
      bytes = %i[ok dropped].include?(result.outcome) ? NO_COPY : random
      Plan.new(
        history, topology, result.outcome,
        error: result.error, retry_after: result.retry_after, policy: result.policy, frame_max: frame_max,
        now: @clock.call, random: bytes, traceparent: traceparent
      )
    end

    # Returns the plan that moves a parked message back to its work queue.
    #
    # @param history [History]
    # @return [Plan]
    # @raise (see Plan#initialize)
    def replay(history) = Plan.replay(history, topology, frame_max: frame_max, random: random)

    private

    def guarded(history, random)
      Plan.guard(history, topology, frame_max: frame_max, now: @clock.call, random: random)
    end

    def random = @random.call(Plan::RANDOM_BYTES)
  end
end
