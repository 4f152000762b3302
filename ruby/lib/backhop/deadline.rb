# frozen_string_literal: true

module Backhop
  # The ends of time limits, on the monotonic clock, in ms. nil is no limit.
  # @api private
  module Deadline
    LONGEST_MS = 100_000_000_000
    private_constant :LONGEST_MS

    module_function

    # Returns the end of a time limit. Raises InvalidArgumentError if it is no time or negative.
    #
    # @param timeout [Numeric, String, nil] as Times.read takes it
    def after(timeout) = timeout && (Times.monotonic_ms + Checks.time(timeout, "timeout", (0..LONGEST_MS)))

    # Returns the seconds until a deadline, 0 or more.
    def remaining(deadline_ms) = deadline_ms && Times.seconds([deadline_ms - Times.monotonic_ms, 0].max)
  end
  private_constant :Deadline
end
