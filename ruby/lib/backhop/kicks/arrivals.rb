# frozen_string_literal: true

module Backhop
  module Kicks
    # Extends a delivery_info with its {Bunny::Message}, as delivery_info[:backhop].
    # @api private
    module MessageInfo
      attr_writer :backhop

      def [](key) = key == :backhop ? @backhop : super
    end

    # Extends the worker's queue to read each message in Bunny's thread. Only there it is known
    # whether the delivery is from before a reconnect. The poison guard also runs here, before the
    # worker gets the message.
    # @api private
    module Arrivals
      attr_writer :backhop_retrier

      def subscribe(options = {}, &block)
        return super unless options[:manual_ack]

        retrier = @backhop_retrier
        super(options) do |delivery_info, metadata, payload|
          message = retrier.arrived(delivery_info, metadata, payload)
          next unless message

          delivery_info.extend(MessageInfo).backhop = message
          block.call(delivery_info, message.properties, payload)
        end
      end
    end
  end
end
