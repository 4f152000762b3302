# frozen_string_literal: true

module Backhop
  module Bunny
    # What a handler gets that asks for it: besides what every message has, Bunny's delivery_info and properties.
    class Message < Backhop::Message
      AMQPS = Delivery::PROPERTIES.keys.freeze # an instrumentation of Bunny adds properties of its own
      private_constant :AMQPS

      # @return [::Bunny::DeliveryInfo, ::Bunny::GetResponse]
      attr_reader :delivery_info
      # @return [Original]
      # @api private
      attr_reader :original

      # @return [Exception, nil] what a worker of Kicks raised
      # @api private
      attr_accessor :raised

      # @api private
      def initialize(delivery_info, properties, payload, topology, original, decider)
        super(payload, topology, redelivered: delivery_info.redelivered?)
        @delivery_info = delivery_info
        @decider = decider
        @arrived = [delivery_info.exchange.dup, delivery_info.routing_key.dup, properties.to_hash, payload.b].freeze
        @original = original
      end

      # @return [History] all that the headers tell
      def history
        @history ||= @decider.read(exchange: @arrived[0], routing_key: @arrived[1],
                                   properties: arrived_properties.slice(*AMQPS), headers: arrived_properties[:headers])
      end

      # As they arrived. A handler may change them, and its copy has what arrived all the same.
      #
      # @return [::Bunny::MessageProperties]
      def properties = @properties ||= ::Bunny::MessageProperties.new(Message.duplicate(arrived_properties))

      # @return [Hash{Symbol => Object}]
      # @api private
      def arrived_properties = @arrived[2]

      # @return [String] binary; not frozen, as amq-protocol sets the encoding of long ones
      # @api private
      def arrived_body = @arrived[3]

      # Whether the broker tells that it delivered the message before, which the poison guard has to see.
      # @api private
      def past?
        redelivered? || (arrived_properties[:headers] || {}).any? { |name, _| name.end_with?("-count") }
      end

      # Properties or headers of their own, of any depth: without recursion, which a stack bears as far as it is free.
      # @api private
      def self.duplicate(value)
        pending = []
        copy = ->(item) { copied(item, pending) }
        top = copied(value, pending)
        while (held = pending.pop)
          held.is_a?(Hash) ? held.transform_values!(&copy) : held.map!(&copy)
        end
        top
      end

      def self.copied(value, pending)
        case value
        when String then value.dup
        when Hash, Array then value.dup.tap { |held| pending << held }
        else value
        end
      end
      private_class_method :copied
    end
  end
end
