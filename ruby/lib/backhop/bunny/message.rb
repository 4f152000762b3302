# frozen_string_literal: true

module Backhop
  module Bunny
    # What a handler gets that asks for it: besides what every message has, Bunny's delivery_info and properties.
    class Message < Backhop::Message
      # @return [::Bunny::DeliveryInfo, ::Bunny::GetResponse]
      attr_reader :delivery_info
      # @return [::Bunny::MessageProperties]
      attr_reader :properties
      # @api private
      attr_reader :original, :kept_body

      # @api private
      def initialize(delivery_info, properties, payload, history, original)
        super(payload, history, redelivered: delivery_info.redelivered?)
        @delivery_info = delivery_info
        @properties = properties
        @original = original
        @kept_body = payload.b # a handler may change its own; not frozen, as amq-protocol sets the encoding of long ones
      end
    end
  end
end
