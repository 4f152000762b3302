# frozen_string_literal: true

module Backhop
  module Bunny
    # How a retrier takes the deliveries of a consumer and calls a handler.
    # @api private
    module Consuming
      # Returns a message for the handler. Returns nil if a call of an earlier delivery runs or was
      # enough. Also returns nil if the poison guard delayed or parked the message, or if it cannot
      # be read.
      #
      # @yieldparam message [Message] in a thread of Bunny's pool: a call that ran has ended, see
      #   {#look_up}
      # @api private
      def arrived(delivery_info, properties, payload, &again)
        look_up(message_of(delivery_info, properties, payload), &again)
      rescue ForkedError
        raise
      rescue *Outcomes::FAILURES => e
        emit_refused(nil, e)
        nil
      end

      # Returns a message if a handler may get it, as {#arrived} does.
      # @api private
      def look_up(message, &again)
        return if message.original.gone? # the broker delivers it again

        earlier = EarlierCalls.arrive(message) { hand_later(message, again) } unless message.original.settled?
        return earlier == :wait ? nil : settle_again(message, earlier) if earlier

        poison = message.past? && guard(message)
        poison ? settle_by(message, poison) && nil : message
      rescue ForkedError
        raise
      rescue *Outcomes::FAILURES => e
        refuse(message, e)
        nil
      end

      # Returns true if a handler may get the message now. If the breaker of its key is open, the
      # message waits without an attempt.
      # @api private
      def admit(message)
        return true unless @breaker&.by_key?

        permit = @breaker.permit(message)
        message.permit = permit if permit.granted?
        defer(message, permit.delay) unless permit.granted?
        permit.granted?
      rescue ForkedError
        raise
      rescue *Outcomes::FAILURES => e # the key function's
        @listeners.emit_message(:delivered, message)
        settle(message, e)
        false
      end

      # Lets a message wait without an attempt, as its breaker is open.
      #
      # @param delay [Numeric] about how long, in seconds
      # @api private
      def defer(message, delay)
        @decider.frame_max = @connection.frame_max
        settle_by(message, @decider.defer(message.history, delay), is_deferred: true)
      rescue ForkedError
        raise
      rescue *Outcomes::FAILURES => e # an exception would end Bunny's thread
        refuse(message, e)
      end

      private

      # Acknowledges a message whose call ended at an earlier delivery. Returns nil.
      #
      # @param action [Integer] of the call. Only a success has its events again: the first ones may
      #   be missing
      def settle_again(message, action)
        if action == Native::BH_ACTION_ACK
          @listeners.emit_message(:delivered, message)
          settle(message)
        elsif !message.original.settle(:ack)
          emit_stale(message.event_id)
        end
        nil
      end

      # Yields a message in a thread of its channel's pool.
      def hand_later(message, again)
        pool = message.delivery_info.channel.work_pool
        pool.submit { again.call(message) } if pool.running? && !message.original.gone?
      end

      # Returns a lambda that calls the handler with a message and settles it. It raises only
      # exceptions that end the program.
      def handling_of(handler, limit = HandlerLimit::NONE)
        handle = Checks.callable(handler, "the handler")
        arity = (handle.respond_to?(:arity) ? handle : handle.method(:call)).arity
        lambda do |message|
          @listeners.emit_message(:delivered, message)
          settle_after(message, limit) do
            case arity
            when 1 then handle.call(message)
            when 4 then handle.call(message.delivery_info, message.properties, message.body, message)
            else handle.call(message.delivery_info, message.properties, message.body)
            end
          end
        end
      end

      def settle_after(message, limit = HandlerLimit::NONE)
        thread_ended = lambda do |error|
          is_ours = message.original.here? # else Bunny ends the threads of a closed channel
          is_ours ? settle(message, error) : abandon_call(message)
          is_ours
        ensure
          Pool.replace_thread(message.delivery_info.channel.work_pool)
        end
        began_ms = Times.monotonic_ms
        error = HandlerCall.error_of(message, @listeners, thread_ended) { limit.within { yield message } }
        @listeners.log_severe(message, error)
        settle(message, limit.applied(error, began_ms))
      rescue *HandlerCall::ENDS_PROGRAM => e
        emit_end(message, e)
        raise
      end

      def abandon_call(message)
        forget_call(message)
        emit_stale(message.event_id)
      end

      # Raises InvalidArgumentError if a consumer is of another queue. Logs an error if it loses
      # messages.
      def check_consumer(consumer)
        return unless consumer

        declaring = Declaring.new(topology)
        foreign = declaring.diagnosis(:queue, of: consumer.queue_name)
        raise foreign if foreign

        Backhop.log(Logger::ERROR) { without_ack(declaring).message } if consumer.no_ack
        consumer.extend(CancelNoted) unless consumer.is_a?(CancelNoted)
        watch(consumer.channel)
        @consumer = consumer
      end

      # Returns the error of a consumer without acknowledgements.
      def without_ack(declaring)
        declaring.diagnosis(:no_ack, of: "manual_ack: true")
      end

      # Up to Bunny 2 the delivery tag of queue.pop knows if it is from before a recovery. Tags of a
      # consumer need no check: Bunny ends its thread at a recovery, and marks new deliveries as old
      # while it recovers.
      def original(delivery_info, is_settled)
        tag = delivery_info.delivery_tag
        channel = delivery_info.channel
        is_stale = tag.respond_to?(:stale?) && tag.stale?(channel.recoveries_counter.get)
        Original.new(channel, tag.to_i, is_stale: is_stale, is_settled: is_settled)
      end
    end
    private_constant :Consuming

    # Keeps the number of threads in the pool of a channel of Bunny.
    # @api private
    module Pool
      # Starts a thread in place of the current one, which ends. Does nothing if the pool is closed,
      # or if the current thread is none of its threads.
      #
      # @param pool [::Bunny::ConsumerWorkPool]
      def self.replace_thread(pool)
        index = pool.running? && pool.threads.index(Thread.current)
        start(pool, index) if index
      end

      # Starts a thread in place of each one that another thread has killed or raised into while it
      # was idle. Returns how many.
      def self.revive(pool)
        return 0 unless pool.running?

        dead = pool.threads.each_index.reject { |index| pool.threads[index].alive? }
        dead.each { |index| start(pool, index) }.size
      end

      def self.start(pool, index) = pool.threads[index] = Thread.new { pool.__send__(:run_loop) }
      private_class_method :start
    end

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
