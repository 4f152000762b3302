# frozen_string_literal: true

module Backhop
  module Bunny
    # The calls of handlers that run in threads of the application. A drain waits for them.
    # @api private
    class Calls
      def initialize
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @threads = [] # one entry for each call
        @draining = [] # threads in wait
      end

      # Yields, and counts the block as a call.
      def during
        @lock.synchronize { @threads << Thread.current }
        yield
      ensure
        @lock.synchronize do
          @threads.delete_at(@threads.index(Thread.current) || @threads.size)
          @changed.broadcast
        end
      end

      # Returns the number of calls in other threads.
      def size = @lock.synchronize { others }

      # Waits until no call runs in another thread. Returns false if that takes longer than until
      # the deadline; nil: no limit.
      def wait(deadline_ms)
        @lock.synchronize do
          @draining << Thread.current
          @changed.broadcast
          until others.zero?
            remaining = Deadline.remaining(deadline_ms)
            return false if remaining&.zero?

            @changed.wait(@lock, remaining)
          end
          true
        ensure
          @draining.delete_at(@draining.index(Thread.current))
        end
      end

      private

      # A handler that drains does not wait for itself, nor for another handler that drains.
      def others = (@threads - @draining - [Thread.current]).size
    end
    private_constant :Calls
  end
end
