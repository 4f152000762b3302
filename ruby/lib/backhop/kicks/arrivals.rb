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
      attr_writer :backhop_intake

      def subscribe(options = {}, &block)
        return super unless options[:manual_ack]

        intake = @backhop_intake
        intake.work = block
        arguments = Bunny::Channels::CONSUME_ARGUMENTS.merge(options[:arguments] || {})
        super(options.merge(arguments: arguments)) { |*delivery| intake.call(*delivery) }.tap { intake.watch(channel) }
      rescue ::Bunny::ChannelLevelException => e
        raise intake ? intake.refused(e) : e
      end
    end

    # Hands the deliveries to the worker's pool: at once, or later if a breaker holds them.
    # @api private
    class Intake
      # Sets the block that gets delivery_info, properties and payload, and adds a job to the pool.
      attr_writer :work

      # @param retrier [Bunny::Retrier]
      # @param threads [Integer] number of threads of the pool
      def initialize(retrier, threads)
        @retrier = retrier
        @gate = retrier.gate(threads) { run }
      end

      # Returns Backhop's error if the broker closed the channel of the new consumer.
      def refused(exception) = Bunny::Channels.consumer_refused(@retrier.topology, exception)

      # Hands a delivery to the pool, or holds it.
      def call(*delivery)
        hand(@retrier.arrived(*delivery) { |message| call_again(message) })
      end

      # Looks for changes of the breaker, and for the return exchange, from now on.
      def watch(channel)
        @retrier.keep_looking
        @gate&.watch(channel)
      end

      private

      # Hands over a message that waited for an earlier call of it.
      def call_again(message) = hand(@retrier.look_up(message) { |again| call_again(again) })

      def hand(message)
        return unless message
        return @retrier.admit(message) && work(message) unless @gate

        @gate.hold(message)
        run
      end

      # Hands held messages to threads of the pool that are free.
      def run
        while (message = @gate.take)
          work(message)
        end
      end

      def work(message)
        @retrier.listeners.emit_message(:delivered, message)
        message.delivery_info.extend(MessageInfo).backhop = message
        @work.call(message.delivery_info, message.properties, message.body)
      rescue StandardError # the pool is shut down
        @retrier.give_back(message)
        raise
      end
    end
    private_constant :Intake
  end
end
