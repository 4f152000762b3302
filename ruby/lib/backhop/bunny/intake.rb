# frozen_string_literal: true

module Backhop
  module Bunny
    # Hands the deliveries of one consumer to a handler: at once, or later if a breaker holds them.
    # @api private
    class Intake
      # @return [Gate, nil] nil without a breaker, and if it is by key
      attr_reader :gate

      # @param handle [#call] handles and settles a message
      # @param runner [#call, nil] called in a thread of Bunny's pool if held messages can be
      #   handled; default: {#run}
      # @param again [#call, nil] called in a thread of Bunny's pool with a message that waited for
      #   an earlier call of it; default: {#call_again}
      # @param changed [#call, nil] see {Gate#initialize}
      def initialize(retrier, handle, runner: nil, again: nil, changed: nil)
        @retrier = retrier
        @handle = handle
        @runner = runner || method(:run)
        @again = again || method(:call_again)
        @gate = retrier.gate(changed: changed) { |*oldest| wake(*oldest) }
      end

      # Handles a delivery, or holds it.
      def call(delivery_info, properties, payload)
        hand(@retrier.arrived(delivery_info, properties, payload, &@again))
      end

      # Handles a message that waited for an earlier call of it.
      def call_again(message) = hand(@retrier.look_up(message, &@again))

      # Handles held messages until no handler may get one.
      def run
        while (message = @gate.take)
          @handle.call(message)
        end
      end

      private

      def hand(message)
        return unless message
        return @retrier.admit(message) && @handle.call(message) unless @gate

        @gate.hold(message) ? run : message.original.settle(:requeue)
      end

      # Runs a handler in the pool of the message's channel. A pool with a backlog has jobs that do
      # so. A channel without a consumer has no pool: then the message came by queue.pop.
      def wake(message, is_free)
        pool = message.delivery_info.channel.work_pool
        if !pool.running?
          @runner.call if is_free
        elsif pool.backlog.zero?
          pool.submit { @runner.call }
        end
      end
    end
    private_constant :Intake
  end
end
