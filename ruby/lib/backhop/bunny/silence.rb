# frozen_string_literal: true

module Backhop
  module Bunny
    # Reports a broker that does not answer a look for the return exchange. The core decides when.
    # @api private
    class Silence
      # @param timeout_ms [Integer] how long an answer may take
      def initialize(retrier, timeout_ms)
        @retrier = retrier
        @native = Core.made(Native.bh_silence_new(timeout_ms))
        @lock = Mutex.new # also held while it emits, so that no later answer is reported first
      end

      # Records that a look begins.
      def looking = @lock.synchronize { @native.begin(Times.monotonic_ms) }

      # Records that a look ended.
      #
      # @param error [Error, nil] a ConnectionFailedError: Bunny gave up without an answer
      def looked(error) = @lock.synchronize { emit(@native.end(error ? error.status : 0)) }

      # Reports a look whose answer is late. Call it about once a second, in any thread.
      def check(is_blocked) = @lock.synchronize { emit(@native.check(is_blocked ? 1 : 0, Times.monotonic_ms)) }

      # Records that the connection is lost.
      def lost = @lock.synchronize { @native.lost }

      # Returns how long after the end of a look the next one begins.
      def pause_ms = @native.pause_ms

      private

      def emit(kind)
        case kind
        when Native::BH_EVENT_UNAVAILABLE
          error = Status.error(WaitTimeoutError.status, @native.text)
          @retrier.emit(:unavailable, connection: "consume", text: @native.text, error: error, count: 0)
        when Native::BH_EVENT_CONNECTED
          @retrier.emit(:connected, connection: "consume", text: @native.text, to: @retrier.consuming)
        end
      end
    end
    private_constant :Silence
  end
end
