# frozen_string_literal: true

module Backhop
  # The time limit of handlers, the option timeout.
  # @api private
  class HandlerLimit
    DAY_MS = 24 * Times::HOUR_MS
    private_constant :DAY_MS

    # @return [Integer] in ms; 0: no limit
    attr_reader :ms

    # @param timeout [Numeric, String, nil] seconds, or "30s"; nil: no limit
    def initialize(timeout)
      @ms = timeout.nil? ? 0 : Checks.time(timeout, "timeout", (1..DAY_MS))
    end

    # Yields. Raises TimeoutError in a task of Async that waits at the limit.
    def within(&block)
      task = ::Async::Task.current? if @ms.positive? && defined?(::Async::Task)
      task ? task.with_timeout(Times.seconds(@ms), TimeoutError, &block) : yield
    end

    # Returns the exception that counts for a handler that ended now. It is a TimeoutError if the
    # handler took too long and did not fail by itself.
    #
    # @param error [Exception, nil] the handler's exception
    # @param began_ms [Integer] of the monotonic clock
    def applied(error, began_ms)
      outcome = case error
                when nil, TimeoutError then :ok
                when Drop then :dropped
                else return error
                end
      text = Native.bh_overrun_text(Plan.outcome(outcome), Times.monotonic_ms - began_ms, @ms)
      text.empty? ? error : TimeoutError.new(text)
    end

    NONE = new(nil).freeze
  end
  private_constant :HandlerLimit
end
