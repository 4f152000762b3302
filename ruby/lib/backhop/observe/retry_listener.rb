# frozen_string_literal: true

module Backhop
  # Marks listeners that need an event for each retry, from a worker too. Their presence in on_event
  # implies retry_events.
  # @api private
  module RetryListener; end
  private_constant :RetryListener
end
