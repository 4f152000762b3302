# frozen_string_literal: true

module Backhop
  module Bunny
    # A copy to publish. Its original is acknowledged after the confirm.
    #
    # The core can write a copy's properties as bytes, but they cannot be used here: Bunny publishes
    # only Hashes of properties, which amq-protocol encodes.
    # @api private
    class Copy
      # A Hash that ignores added keys. Bunny adds a content type and a priority to a message
      # without them. An instrumentation of Bunny adds its own trace to the headers. But a copy must
      # not change.
      class Exact < Hash
        def []=(*); end
        alias store []=
      end
      private_constant :Exact

      # @return [Plan]
      attr_reader :plan
      # @return [Original]
      attr_reader :original
      # @return [Proc, nil] for a replay: called once, with nil or the error. A replayed copy is not
      #   published again
      attr_reader :replayed
      # @return [Exception, nil] the handler's exception
      attr_reader :error
      # @return [String] binary
      attr_reader :exchange

      def initialize(plan, properties, body, original, replayed = nil, error: nil)
        @plan = plan
        @properties = Exact[{ **properties, headers: Exact[properties[:headers]], mandatory: plan.mandatory? }]
        @body = body
        @original = original
        @replayed = replayed
        @error = error
        @exchange = plan.exchange.b
      end

      # Returns a header's value as amq-protocol can encode it. It cuts the digits of decimals, and
      # encodes arrays with decimals so that the broker closes the connection.
      def self.writable(value)
        case value
        when Hash then value.transform_values { |item| writable(item) }
        when Array then value.map { |item| writable(item) }
        when BigDecimal then value.to_f
        when Symbol then value.to_s
        else value
        end
      end

      # Publishes the copy on a Bunny::Channel.
      def publish(channel)
        @sent_us = Times.monotonic_us
        channel.basic_publish(@body, @exchange, @plan.routing_key.b, @properties)
      end

      # Returns the time since the last publish, in us.
      def took_us = Times.monotonic_us - @sent_us

      # Returns the header backhop-id. It identifies the copy in a basic.return.
      def id = @properties[:headers]["backhop-id"].to_s
    end
  end
end
