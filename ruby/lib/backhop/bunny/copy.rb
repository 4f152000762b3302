# frozen_string_literal: true

module Backhop
  module Bunny
    # A copy to publish, and to confirm before its original is acknowledged.
    # @api private
    class Copy
      # Options of a publish, or headers, to which nobody adds anything: Bunny gives a message without them a content type and a
      # priority, and an instrumentation of it writes its own trace into the headers.
      class Exact < Hash
        def []=(*); end
        alias store []=
      end
      private_constant :Exact

      # @return [Plan]
      attr_reader :plan
      # @return [Original]
      attr_reader :original
      # @return [Proc, nil] of a replay: called with nil, or with the error at its end; nothing is tried again
      attr_reader :replayed
      # @return [Exception, nil] what the handler raised
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
        @sent_us = Listeners.now_us
        channel.basic_publish(@body, @exchange, @plan.routing_key.b, @properties)
      end

      # How long ago it was published last, in us.
      def took_us = Listeners.now_us - @sent_us

      # The header by which a return names it.
      def id = @properties[:headers]["backhop-id"].to_s
    end
  end
end
