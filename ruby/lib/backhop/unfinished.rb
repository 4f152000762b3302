# frozen_string_literal: true

module Backhop
  # Finds work that a handler started or described, and that has not ended when the handler returns
  # it. Nothing waits for such work, so the message would be acknowledged too early.
  #
  # In Ruby each handler returns its last value. So only values that are surely unfinished count.
  # @api private
  module Unfinished
    PENDING = %i[unscheduled pending processing].freeze # states of concurrent-ruby's obligations
    RUNNING = %i[initialized running stopping].freeze # states of Async's tasks
    private_constant :PENDING, :RUNNING

    class << self
      # Returns the error of a handler that returned this value: what failed in the work, or that
      # the work has not ended. Returns nil for any other value.
      def error_of(value)
        case value
        # Most handlers return one of these. A Waiter is of a process that the handler detached.
        when nil, true, false, String, Symbol, Numeric, Array, Hash, Process::Waiter,
             Enumerator::ArithmeticSequence then nil
        when Thread then of_thread(value)
        when Enumerator then unfinished("an Enumerator, and nothing runs its block", "call each")
        when Method then unfinished("a Method, and nothing calls it", "call it")
        when Proc then of_proc(value)
        when Fiber then of_fiber(value)
        else of_library(value)
        end
      rescue *Outcomes::FAILURES
        nil # it cannot be read, so it may be any value
      end

      private

      def unfinished(what, remedy)
        advice = "#{remedy} in the handler, or return nil if its work is no part of it"
        StateError.new("the handler returned #{what}: #{advice}")
      end

      def of_thread(thread)
        return if thread.equal?(Thread.current)

        thread.alive? ? unfinished("a Thread that still runs", "join it") : failure { thread.join }
      end

      # A library may return a block that it got and calls later. A lambda is the handler's own.
      def of_proc(function)
        unfinished("a lambda, and nothing calls it", "call it") if function.lambda?
      end

      def of_fiber(fiber)
        unfinished("a Fiber that has not ended", "resume it") if fiber.alive? && !fiber.equal?(Fiber.current)
      end

      def of_library(value)
        case value
        when constant("Concurrent", "Promises", "AbstractEventFuture") then of_promise(value, value.pending?)
        when constant("Concurrent", "Concern", "Obligation") then of_promise(value, PENDING.include?(value.state))
        when constant("Async", "Task") then of_task(value)
        end
      end

      def of_promise(promise, is_pending)
        return unfinished("a #{promise.class} that is pending", "wait for its value") if is_pending
        return unless promise.respond_to?(:reason)

        case (reason = promise.reason)
        when Exception then reason
        end
      end

      def of_task(task)
        return if task.equal?(::Async::Task.current?)
        return unfinished("an Async::Task that still runs", "wait for it") if RUNNING.include?(task.status)

        failure { task.wait } if task.failed?
      end

      # Returns what the block raises: the error of work that has ended.
      def failure
        yield
        nil
      rescue Exception => e # rubocop:disable Lint/RescueException
        e
      end

      # Returns a class or module of a library; nil, which no value matches here, if it is not
      # loaded.
      def constant(*names)
        names.inject(Object) do |found, name|
          break unless found.const_defined?(name, false)

          found.const_get(name, false)
        end
      end
    end
  end
  private_constant :Unfinished
end
