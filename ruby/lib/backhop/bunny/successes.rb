# frozen_string_literal: true

module Backhop
  module Bunny
    # Messages whose handler succeeded after their channel was closed. The broker delivers them again,
    # and they need no second call in this process. All retriers share this object, because a message
    # can come back by another connection.
    # @api private
    module Successes
      RANDOM_BYTES = 16
      private_constant :RANDOM_BYTES

      @lock = Mutex.new

      class << self
        # Keeps the success of a message that the broker delivers again.
        def keep(message) = about(message) { |native, *about| native.keep(*about, Times.monotonic_ms) }

        # Returns true if the handler of a message succeeded at an earlier delivery, and forgets that.
        def take?(message)
          message.redelivered? && about(message) { |native, *about| native.take(*about, 1, Times.monotonic_ms) } == 1
        end

        private

        def about(message)
          history = message.history
          @lock.synchronize do
            @native ||= Core.made(Native.bh_successes_new(Random.urandom(RANDOM_BYTES)))
            yield @native, history.native, message.queue, message.arrived_body
          end
        rescue Error # the message cannot be read
          nil
        end
      end
    end
    private_constant :Successes
  end
end
