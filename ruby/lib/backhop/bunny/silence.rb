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
        @lock = Mutex.new
        @events = Queue.new # kinds and texts to emit
        @emitting = Mutex.new # one thread emits, so that no later event is reported first
      end

      # Records that a look begins.
      def looking = @lock.synchronize { @native.begin(Times.monotonic_ms) }

      # Records that a look ended.
      #
      # @param error [Error, nil] a ConnectionFailedError: Bunny gave up without an answer
      def looked(error) = report { @native.end(error ? error.status : 0) }

      # Reports a look whose answer is late. Call it about once a second, in any thread.
      def check(is_blocked) = report { @native.check(is_blocked ? 1 : 0, Times.monotonic_ms) }

      # Records that the connection is lost.
      def lost = @lock.synchronize { @native.lost }

      # Returns how long after the end of a look the next one begins.
      def pause_ms = @native.pause_ms

      private

      # Emits the event that the block returns. If a listener holds another thread, that thread
      # emits it next.
      def report
        @lock.synchronize do
          kind = yield
          @events << [kind, @native.text] unless kind == Native::BH_EVENT_LAST
        end
        emit_next until @events.empty? || !@emitting.try_lock
      end

      # Emits an event as the thread that has the lock of emitting.
      def emit_next
        kind, text = @events.pop(true)
        if kind == Native::BH_EVENT_UNAVAILABLE
          error = Status.error(WaitTimeoutError.status, text)
          @retrier.emit(:unavailable, connection: "consume", text: text, error: error, count: 0)
        else
          @retrier.emit(:connected, connection: "consume", text: text, to: @retrier.consuming)
        end
      rescue ThreadError
        nil # another thread emitted it
      ensure
        @emitting.unlock
      end
    end
    private_constant :Silence
  end
end
