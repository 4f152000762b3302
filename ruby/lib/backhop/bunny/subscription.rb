# frozen_string_literal: true

module Backhop
  module Bunny
    # A consumer of the retrier's own queue, on a channel of its own, which is made again where it is lost.
    #
    # After Bunny's own recovery it goes on by itself. Where the broker closed the channel, or cancelled the consumer, as it
    # does when the queue is deleted, a thread of its own declares and subscribes again, until it can.
    class Subscription
      LOOK_AFTER = 0.5 # seconds: how often it looks for a lost channel
      RECOVERS = 20 # looks that Bunny may take to open a channel after it connected again

      # A consumer's queue, which an instrumentation of Bunny asks for its channel and its name. Bunny 3 would declare one of
      # its own making again after a reconnect.
      class Consumed < ::Bunny::Queue
        def initialize(channel, name) # rubocop:disable Lint/MissingSuper
          @channel = channel
          @name = name
        end
      end
      private_constant :LOOK_AFTER, :RECOVERS, :Consumed

      # @api private
      def initialize(retrier, connection, prefetch, threads, handler)
        @retrier = retrier
        @connection = connection
        @prefetch = prefetch
        @threads = threads
        @handler = handler
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @is_over = @is_cancelled = @is_told = false
        @retrier.look
        @looks = 0 # at a channel that Bunny has not opened again
        begin_consuming
        @watch = Thread.new { watch }
        @watch.name = "backhop-#{retrier.topology.queue}"
      end

      # Consumes no more. What was delivered is handled still, unless it is called by a handler.
      #
      # @return [self]
      def cancel
        @lock.synchronize do
          @is_over = true
          @changed.broadcast
        end
        channel = @channel
        @consumer.cancel if !channel.closed? && @connection.open?
        self
      rescue *Declarer::LOST
        self
      end

      # Waits until it is cancelled.
      #
      # @param timeout [Numeric, nil] seconds; nil: as long as it takes
      # @return [Boolean] whether it is cancelled
      def wait(timeout = nil)
        deadline = timeout && (Outbox.now_ms + Times.milliseconds(timeout))
        @lock.synchronize do
          until @is_over
            left = deadline && Times.seconds(deadline - Outbox.now_ms)
            return false if left && left <= 0

            @changed.wait(@lock, left)
          end
        end
        true
      end

      # Whether it is cancelled.
      # @api private
      def over? = @lock.synchronize { @is_over }

      # @return [::Bunny::Channel] its channel now
      attr_reader :channel

      # @return [::Bunny::Consumer] its consumer now
      attr_reader :consumer

      # @return [String]
      def inspect = "#<#{self.class} of queue #{@retrier.topology.queue.inspect}>"

      private

      def begin_consuming
        @transport = @connection.transport
        channel = Declarer.channel(@connection, nil, @threads)
        channel.prefetch(@prefetch)
        channel.on_error { |_, close| tell_settling(close) }
        queue = Consumed.new(channel, @retrier.topology.queue.b)
        consumer = ::Bunny::Consumer.new(channel, queue, channel.generate_consumer_tag("backhop"), false)
        consumer.on_delivery(&@handler)
        consumer.on_cancellation { @is_cancelled = true }
        @channel = channel
        @consumer = consumer
        channel.basic_consume_with(consumer)
      rescue *Declarer::LOST => e
        Declarer.close(channel)
        raise error(e)
      end

      # The error that Bunny's is for the user.
      def error(error)
        case error
        when ::Bunny::ChannelLevelException then refused(Declarer.refusal(error))
        else ConnectionFailedError.new("the connection was lost: #{Outcomes.text(error)}")
        end
      end

      def refused(refusal)
        Declaring.new(@retrier.topology).diagnosis { |native| native.refuse_consumer(*refusal) }
      end

      # The broker closes the channel: where a delivery was settled twice, it says no more.
      def tell_settling(close)
        why = [close.reply_code, Outcomes.writable(close.reply_text), "manual_ack: true"]
        advice = Declaring.new(@retrier.topology).diagnosis { |native| native.refuse_settling(*why) }
        Backhop.log(Logger::ERROR) { advice.message } if advice
      end

      def watch
        failures = 0
        patience = LOOK_AFTER
        until cancelled_in?(patience)
          begin
            patience = LOOK_AFTER
            @retrier.look
            next unless lost?

            again
            failures = 0
          rescue *Outcomes::FAILURES => e
            failures += 1
            patience = @retrier.back_off(failures)
            @retrier.tell(:unavailable, connection: "consume", cause: Outcomes.text(e), delay: patience, count: 0,
                                        error: e.is_a?(Error) ? e : ConnectionFailedError.new(Outcomes.text(e)))
          end
        end
      end

      def cancelled_in?(seconds)
        @lock.synchronize do
          @changed.wait(@lock, seconds) unless @is_over
          @is_over
        end
      end

      # Whether nobody else will make the consumer again: on a connection that was lost Bunny does.
      def lost?
        transport = @connection.transport
        return false unless @connection.open? && transport.open?
        return true if @is_cancelled || (@channel.closed? && transport.equal?(@transport))

        if @channel.closed?
          @looks += 1
        else
          @transport = transport
          @looks = 0
        end
        @looks > RECOVERS
      end

      def again
        unless @is_told
          error = Status.error((@is_cancelled ? ConsumerCancelledError : ChannelClosedError).status)
          @retrier.tell(:cancelled, connection: "consume", error: error, count: 0)
        end
        @is_told = true
        old = @channel
        @retrier.doubt
        @retrier.declare
        @is_cancelled = @is_told = false
        @looks = 0
        begin_consuming
        Declarer.close(old)
      end
    end
  end
end
