# frozen_string_literal: true

require "set"

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
    def initialize(topology, mode:, never:, only:, legacy_counter:, wait_queues:, confirm_timeout:, back_off:, clock:, random:)
      @topology = topology
      @mode = Core.number(MODES, mode, "mode")
      @decider = Decider.new(@topology, never: never, only: only, legacy_counter: legacy_counter, wait_queues: wait_queues,
                                        clock: clock, random: random)
      @confirm_timeout = Times.seconds(Values.time(confirm_timeout, "confirm_timeout", (1..Times::DAY_MS)))
      @back_off = Values.object(back_off || Policy.back_off, "back_off", Policy)
      @restores = false # whether declare made the topology, and may make it again
      @is_declared = true
      @rungs = Set.new
    end

    # @return [Policy] how long, how often, how random, when to give up
    def policy
      @topology.policy
    end

    # How long to wait before a copy is published again, or a consumer made again, in seconds.
    # @api private
    def back_off(failures)
      @back_off.delay([failures, 1].max, random: Random.rand)
    end

    # What has to be declared before the plan's copy is published.
    # @api private
    def needed(plan)
      needed = @is_declared ? [] : @topology.declarations.reject(&:on_demand?)
      if plan.on_demand? && @mode != :none && !@rungs.include?(plan.delay)
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

    # What to do where something of the topology is missing.
    # @api private
    def advice
      if @restores
        ""
      else
        "; #{mode == :none ? "declare it, or import topology.definitions" : "call declare before"}"
      end
    end

    private

    def plan(message, error)
      plan = @decider.plan(message.history, error)
      Telling.failed(plan, message, error)
      plan
    end

    def guard(message)
      plan = @decider.guard(message.history)
      Backhop.log(:warn) { told(message, plan) } if plan
      plan
    end

    # What becomes of a message by a plan of the guard's.
    def told(message, plan)
      becomes = plan.action == :retry ? "it waits #{Times.duration(plan.delay)}" : "it is parked"
      "#{message.inspect}: its consumer was lost #{message.history.crashes} times: #{becomes}"
    end
  end

  # What the retriers log.
  # @api private
  module Telling
    class << self
      # What becomes of a message that failed.
      def failed(plan, message, error)
        if plan.action == :park
          Backhop.log(:warn) { "#{message.inspect} failed, and is parked (#{plan.reason}): #{Outcomes.text(error)}" }
        else
          after = plan.delay.positive? ? ", again in #{Times.duration(plan.delay)}" : ""
          Backhop.log(:info) { "#{message.inspect} failed#{after}: #{Outcomes.text(error)}" }
        end
        Backhop.log(:debug) { "#{message.inspect}: #{error.backtrace&.join("\n")}" }
      end

      # A copy did not get to a queue.
      def unpublished(queue, id, why, wait)
        Backhop.log(:warn) do
          "the copy of message #{id.inspect} of queue #{queue.inspect} #{why}: its original stays unacknowledged, " \
            "and it is published again in #{Times.duration(wait)}"
        end
      end

      # No copy can be made, so that the original stays with the broker.
      def refused(queue, id, error)
        Backhop.log(:error) do
          "message #{id.inspect} of queue #{queue.inspect} can be neither read nor copied: it stays " \
            "unacknowledged, and the broker delivers it again once the channel is closed: #{Outcomes.text(error)}"
        end
      end
    end
  end
  private_constant :Telling
end
