# frozen_string_literal: true

require "io/wait"

module Backhop
  class Worker
    # The state that the threads of one run share. A thread whose handler takes longer outlives its
    # run, and takes no part in the next one.
    # @api private
    class Run
      # @return [Array<Exception>] exceptions that are no failures of a handler
      attr_reader :failures

      def initialize
        @failures = []
        @lock = Mutex.new
        @busy = 0
        @tasks = [] # Async's tasks that run handlers
        @is_drained = @is_cut = false
        # A pipe and no ConditionVariable: an exception breaks that under a fiber scheduler.
        @ended, @ending = IO.pipe
      end

      def drained? = @is_drained

      # Returns true if it ends without waiting for its handlers.
      def cut? = @is_cut

      def drained
        @is_drained = true
        @ending.write(".")
        @ending.close
      end

      # Yields while a handler has a message in hand.
      def handling
        task = ::Async::Task.current? if defined?(::Async::Task)
        @lock.synchronize do
          @busy += 1
          @tasks << task if task
        end
        yield
      ensure
        @lock.synchronize do
          @busy -= 1
          @tasks.delete(task)
        end
      end

      # Ends the run without waiting for its handlers. Stops the handlers in tasks of Async.
      def abort
        @is_cut = true
        @lock.synchronize { @tasks.dup }.each(&:stop)
      end

      # Returns true if it failed and no handler has a message in hand.
      def failed_and_idle? = !failures.empty? && @lock.synchronize { @busy.zero? }

      # Waits until it has drained. Returns nil if that takes longer than `seconds`.
      def wait(seconds) = @ended.wait_readable(seconds)

      def close
        @ended.read(1) # the thread that calls drained may not have written yet
        @ended.close
      end
    end
    private_constant :Run
  end
end
