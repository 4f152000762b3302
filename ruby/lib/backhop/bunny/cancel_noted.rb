# frozen_string_literal: true

module Backhop
  module Bunny
    # Extends a consumer, and notes that the broker cancelled it.
    # @api private
    module CancelNoted
      # Bunny calls it in a thread of the pool, just after it has removed the consumer from the
      # channel.
      def handle_cancellation(basic_cancel)
        @is_cancelled_by_broker = true
        super
      end

      def cancelled_by_broker? = @is_cancelled_by_broker ? true : false
    end
    private_constant :CancelNoted
  end
end
