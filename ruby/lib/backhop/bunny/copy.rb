# frozen_string_literal: true

module Backhop
  module Bunny
    # A copy to publish, and to confirm before its original is acknowledged.
    # @api private
    class Copy
      # Options of a publish, to which Bunny adds nothing: it gives a message that has none a content type and a priority.
      class Exact < Hash
        def []=(*); end
      end
      private_constant :Exact

      attr_reader :plan, :history, :original, :replayed, :exchange
      attr_accessor :failures, :is_suspect, :is_returned, :sent_at

      # @param replayed [Proc, nil] of a replay: called with nil or the error at its end, and nothing is tried again
      def initialize(plan, history, properties, body, original, replayed = nil)
        @plan = plan
        @history = history
        @properties = properties
        @body = body
        @original = original
        @replayed = replayed
        @exchange = plan.exchange.b
        @routing_key = plan.routing_key.b
        @failures = 0
        @is_suspect = @is_returned = false
      end

      # A header's value as amq-protocol can write it: it cuts decimals, and writes arrays that hold one so that the broker
      # closes the connection.
      def self.writable(value)
        case value
        when Hash then value.transform_values { |item| writable(item) }
        when Array then value.map { |item| writable(item) }
        when BigDecimal then value.to_f
        when Symbol then value.to_s
        else value
        end
      end

      # Publishes it on a Bunny::Channel.
      def publish(channel)
        channel.basic_publish(@body, @exchange, @routing_key, Exact[@properties].update(mandatory: @plan.mandatory?))
      end

      # Whether a return may be about it: a return names no delivery tag.
      def like?(exchange, routing_key, id)
        @exchange == exchange && @routing_key == routing_key && @properties[:headers]["backhop-id"].to_s.b == id
      end
    end
  end
end
