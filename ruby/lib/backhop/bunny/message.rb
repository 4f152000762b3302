# frozen_string_literal: true

module Backhop
  module Bunny
    # A message from Bunny: a {Backhop::Message} with Bunny's delivery_info and properties.
    class Message < Backhop::Message
      PROPERTIES = Delivery::PROPERTIES.keys.freeze # AMQP's; an instrumentation of Bunny adds others
      private_constant :PROPERTIES

      # @return [::Bunny::DeliveryInfo, ::Bunny::GetResponse]
      attr_reader :delivery_info
      # @return [Original]
      # @api private
      attr_reader :original

      # @return [Exception, nil] the RetryAfter, Park or Drop that a worker of Kicks raised
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

      # @return [History] the message's past, from its headers
      def history
        @history ||= @decider.read(exchange: @arrived[0], routing_key: @arrived[1],
                                   properties: arrived_properties.slice(*PROPERTIES),
                                   headers: arrived_properties[:headers])
      end

      # Returns the properties as they arrived, as an object of its own: changing it does not change
      # the copy.
      #
      # @return [::Bunny::MessageProperties]
      def properties = @properties ||= ::Bunny::MessageProperties.new(Message.duplicate(arrived_properties))

      # Returns the id of events and logs, also if the headers cannot be read.
      # @api private
      def event_id = super || arrived_properties[:message_id]

      # @return [Hash{Symbol => Object}]
      # @api private
      def arrived_properties = @arrived[2]

      # Returns the tag of its consumer; nil for a message of queue.pop.
      # @api private
      def consumer_tag = delivery_info.respond_to?(:consumer_tag) ? delivery_info.consumer_tag : nil

      # Returns true if it may have an id.
      # @api private
      def identified? = !arrived_properties[:message_id].to_s.empty? || !arrived_properties[:headers].to_h.empty?

      # @return [String] binary; not frozen, since amq-protocol sets the encoding of long ones
      # @api private
      def arrived_body = @arrived[3]

      # Returns true if the broker delivered the message before, so that the poison guard has to
      # check it.
      # @api private
      def past?
        redelivered? || (arrived_properties[:headers] || {}).any? { |name, _| name.end_with?("-count") }
      end

      # Returns a deep copy of properties or headers. It does not recurse, since untrusted headers
      # can be deeper than the stack.
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
