# frozen_string_literal: true

require "set"

module Backhop
  # The message was parked, as its consumers were lost too often while they held it; see Policy's max_crashes.
  class PoisonError < Error; end

  # What the retriers over each client share: what they decide, what they tell, how they wait.
  class Retrier
    FIRST_BACK_OFF = 0.25 # seconds, as all times
    LAST_BACK_OFF = 30.0
    private_constant :FIRST_BACK_OFF, :LAST_BACK_OFF

    # @return [Topology] the exchanges, queues and bindings that the strategy needs; topology.definitions is their JSON
    attr_reader :topology

    # @api private
    def initialize(queue, policy:, never:, legacy_counter:, wait_queues:, confirm_timeout:, clock:, random:, **topology)
      @topology = Topology.new(queue, policy: policy || Policy.new, **topology)
      @decider = Decider.new(@topology, never: never, legacy_counter: legacy_counter, wait_queues: wait_queues,
                                        clock: clock, random: random)
      @confirm_timeout = Times.seconds(Times.milliseconds(confirm_timeout))
      unless @confirm_timeout.positive?
        raise InvalidArgumentError, "confirm_timeout is #{confirm_timeout}: give seconds, more than 0"
      end

      @restores = false # whether declare made the topology, and may make it again
      @is_declared = true
      @rungs = Set.new
    end

    # @return [Policy] how long, how often, how random, when to give up
    def policy
      @topology.policy
    end

    # How long to wait before a copy is published again, in seconds.
    # @api private
    def self.back_off(failures)
      [LAST_BACK_OFF, FIRST_BACK_OFF * (2.0**[failures - 1, 16].min)].min
    end

    # What has to be declared before the plan's copy is published.
    # @api private
    def needed(plan)
      needed = @is_declared ? [] : @topology.declarations.reject(&:on_demand?)
      if plan.on_demand? && !@rungs.include?(plan.delay)
        needed += @topology.declarations.select { |each| each.wait == plan.delay }
      end
      needed
    end

    # What needed told is declared.
    # @api private
    def made(plan)
      @is_declared = true
      @rungs << plan.delay if plan.on_demand?
    end

    # Something of the topology may be gone.
    # @api private
    def doubt
      @is_declared = !@restores
      @rungs.clear
    end

    private

    def plan(message, error)
      plan = @decider.plan(message.history, error)
      Telling.failed(plan, message, error) if error
      plan
    end

    def guard(message)
      plan = @decider.guard(message.history)
      if plan
        Backhop.logger.warn do
          "#{message.inspect}: its consumers were lost #{message.history.crashes} times: parking it"
        end
      end
      plan
    end
  end

  # What the retriers log.
  # @api private
  module Telling
    class << self
      # What becomes of a message that failed.
      def failed(plan, message, error)
        if plan.action == :park
          Backhop.logger.warn { "#{message.inspect} failed, and is parked (#{plan.reason}): #{Outcomes.text(error)}" }
        else
          after = plan.delay.positive? ? ", again in #{Times.duration(plan.delay)}" : ""
          Backhop.logger.info { "#{message.inspect} failed#{after}: #{Outcomes.text(error)}" }
        end
      end

      # A copy did not get to a queue.
      def unpublished(history, why, wait)
        Backhop.logger.warn do
          "the copy of message #{history.id.inspect} #{why}: its original stays unacknowledged, and it is published " \
            "again in #{Times.duration(wait)}"
        end
      end

      # No copy can be made, so that the original stays with the broker.
      def refused(history, error)
        Backhop.logger.error do
          "message #{history&.id.inspect} can be neither read nor copied: it stays unacknowledged, and " \
            "the broker delivers it again once the channel is closed: #{Outcomes.text(error)}"
        end
      end
    end
  end
end
