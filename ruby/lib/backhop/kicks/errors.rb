# frozen_string_literal: true

module Backhop
  # Retries for workers of Kicks and Sneakers.
  module Kicks
    # The worker answered reject!. The message is retried.
    class RejectedError < Error; end

    # The worker answered :error without raising. The message is retried.
    class WorkError < Error; end

    # The worker took longer than Sneakers allows. The message is retried.
    class JobTimeoutError < Error; end
  end
end
