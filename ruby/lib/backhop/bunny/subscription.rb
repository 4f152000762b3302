# frozen_string_literal: true

module Backhop
  module Bunny
    # A consumer of the work queue, on a channel of its own.
    #
    # After Bunny's own recovery it goes on. A thread declares and subscribes again if Bunny did not
    # open the channel, the broker closed it, or the broker cancelled the consumer. It retries
    # without end. The core's subscription decides when; this class executes its steps.
    class Subscription
      LOOK_AFTER = 0.5 # seconds: how often the thread looks for a lost channel
      RANDOM_BYTES = 8
      RECOVERS = 20 # number of looks after a reconnect, for Bunny to open the channel again

      # The queue object of the consumer: an instrumentation of Bunny reads its channel and its
      # name. Bunny 3 would declare a queue of its own class again after a reconnect.
      class Consumed < ::Bunny::Queue
        def initialize(channel, name) # rubocop:disable Lint/MissingSuper
          @channel = channel
          @name = name
        end
      end

      # The consumer. Bunny 2 does not consume again after a reconnect while the breaker cancels it.
      class Consumer < ::Bunny::Consumer
        prepend CancelNoted

        # @return [Gate, nil]
        attr_accessor :gate

        # Consumes again, as Bunny 2 does it after a reconnect.
        # @api private
        def recover_from_network_failure = gate&.cancelled? ? nil : super
      end

      private_constant :LOOK_AFTER, :RANDOM_BYTES, :RECOVERS, :Consumed, :Consumer

      # @api private
      def initialize(retrier, connection, prefetch, threads, limit, handle)
        @retrier = retrier
        @connection = connection
        @prefetch = prefetch
        @threads = threads
        @limit = limit
        @intake = Intake.new(retrier, ->(message) { handle_one(message, handle) },
                             runner: -> { working { @intake.run } }, again: method(:handle_again),
                             changed: -> { @lock.synchronize { @changed.broadcast } })
        @gate = @intake.gate
        @busy = {}.compare_by_identity # since when, in ms, by thread whose handler has a message
        @health = Health.new
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @steps = Core.made(Native.bh_subscription_new(retrier.back_off_policy.native, Random.urandom(RANDOM_BYTES)))
        @is_over = @is_cancelled = @is_consumer_gone = @is_busy = false
        @is_absent = false # the breaker cancelled the consumer
        @retired = [] # channels of consumers that the broker cancelled
        @looks = nil # looks at a channel that Bunny may open again; nil: it does not
        @error = nil # of the last attempt
      end

      # @api private
      def start
        @retrier.check_connection
        @steps.next(1, Times.monotonic_ms) # the retrier has declared
        @steps.declared
        execute_steps(is_first: true)
        @watch = Thread.new { watch }
        @watch.name = "backhop-#{@retrier.topology.queue}"
        self
      ensure
        give_up unless @watch
      end

      # Stops consuming at once: messages that no handler has return to the queue. Then waits until
      # the handlers have ended and the broker has answered, unless a handler calls it. During an
      # alarm the broker does not answer.
      #
      # @param timeout [Numeric, String, nil] the limit: seconds, or "20s"; nil: no limit
      # @return [Boolean] false if a handler still runs at the limit
      # @raise [InvalidArgumentError] if the timeout is no time or negative
      def cancel(timeout = 20)
        deadline_ms = Deadline.after(timeout)
        finish
        return true if @lock.synchronize { @busy.key?(Thread.current) }

        wait_until(deadline_ms) { @is_consumer_gone && @busy.empty? } || busy.zero?
      end

      # Waits until {#cancel} is called, or a handler ends the program.
      #
      # @param timeout [Numeric, String, nil] the limit: seconds, or "20s"; nil: no limit
      # @return [Boolean] false if the time passed before
      # @raise [InvalidArgumentError] if the timeout is no time or negative
      def wait(timeout = nil) = wait_until(Deadline.after(timeout)) { @is_over }

      # Waits until it consumes, for example after a lost connection.
      #
      # @param timeout [Numeric, String, nil] the limit: seconds, or "20s"; nil: no limit
      # @return [self]
      # @raise [WaitTimeoutError] it does not consume in that time; the text has the state and its
      #   reason
      # @raise [StateError] it is cancelled, or a handler ended the program
      # @raise [InvalidArgumentError] the timeout is no time or negative
      def ready(timeout = nil)
        is_in_time = wait_until(Deadline.after(timeout)) { @is_over || state == :ready }
        raise @health.late(timeout) unless is_in_time
        raise @health.over if over?

        self
      end

      # @return [Symbol] :starting, :ready, :reconnecting, :paused (the broker blocks the
      #   connection, or the breaker is not closed) or :stopped
      def state = @health.state

      # @return [String, nil] the text of the event that led to the state
      def state_reason = @health.reason

      # Returns true if its consumer was not lost.
      # @api private
      def consuming? = @steps.is_consuming == 1

      # Applies an event to the state. Nothing changes the state of a subscription that is over.
      # @api private
      def observe(event)
        @lock.synchronize do
          @health.observe(event) unless @is_over
          @changed.broadcast
        end
      end

      # Returns true if it is cancelled.
      # @api private
      def over? = @lock.synchronize { @is_over }

      # Returns the number of handlers that have a message.
      # @api private
      def busy = @lock.synchronize { @busy.size }

      # @return [::Bunny::Channel] the current channel
      attr_reader :channel

      # @return [::Bunny::Consumer] the current consumer
      attr_reader :consumer

      # @return [String]
      def inspect = "#<#{self.class} of queue #{@retrier.topology.queue.inspect}>"

      private

      def begin_consuming
        @transport = @connection.transport
        channel = Channels.open(@connection, @threads)
        channel.prefetch(@prefetch)
        @retrier.watch(channel)
        queue = Consumed.new(channel, @retrier.topology.queue.b)
        tag = channel.generate_consumer_tag("backhop")
        consumer = Consumer.new(channel, queue, tag, false, false, Channels::CONSUME_ARGUMENTS)
        consumer.gate = @gate
        consumer.on_delivery { |*delivery| handle(*delivery) }
        consumer.on_cancellation { @is_cancelled = true }
        @channel = channel
        @consumer = consumer
        channel.basic_consume_with(consumer)
      rescue *Channels::LOST => e
        Channels.close(channel)
        raise error(e)
      end

      # Ends a subscription that did not begin: a drain must not wait for its consumer.
      def give_up
        @lock.synchronize do
          @is_over = @is_consumer_gone = true
          @changed.broadcast
        end
      end

      # Returns Backhop's error for an exception of Bunny.
      def error(exception)
        case exception
        when ::Bunny::ChannelLevelException then Channels.consumer_refused(@retrier.topology, exception)
        else Channels.lost(exception)
        end
      end

      def handle(delivery_info, properties, payload)
        working { @intake.call(delivery_info, properties, payload) } || @retrier.return_delivery(delivery_info)
      end

      # Handles a message that waited for an earlier call of it.
      def handle_again(message) = working { @intake.call_again(message) } || message.original.settle(:requeue)

      # Yields as a thread that handles messages. Returns false if the subscription is over.
      def working
        return false unless enter

        begin
          yield
        rescue *HandlerCall::ENDS_PROGRAM => e
          end_program(e)
        ensure
          leave
        end
        true
      end

      # Handles a message, from now on.
      def handle_one(message, handle)
        enter ? handle.call(message) : @retrier.give_back(message)
      end

      # Returns false if the subscription is over.
      def enter = @lock.synchronize { !@is_over && (@busy[Thread.current] = Times.monotonic_ms) }

      def leave
        @lock.synchronize do
          @busy.delete(Thread.current)
          @is_busy = false
          @changed.broadcast
        end
      end

      def end_program(error)
        emit(:cancelled, cause: Outcomes.text(error), error: Status.error(StateError.status), count: 0)
        finish(state_reason)
        HandlerCall.raise_in_main(error)
      end

      # Emits once that every handler has had its message for longer than the limit, until one ends.
      def check_busy
        count = took_ms = 0
        @lock.synchronize do
          count = @busy.size
          return if @is_busy || @limit.ms.zero? || count < [@threads, @prefetch].min

          took_ms = Times.monotonic_ms - @busy.values.max
          return if took_ms < @limit.ms

          @is_busy = true
        end
        @retrier.emit(:busy, count: count, duration_us: took_ms * 1000)
      end

      # A pool that lost its last thread would consume no more, without an event.
      def revive_threads
        count = @channel.here? ? Pool.revive(@channel.work_pool) : 0
        return if count.zero?

        queue = @retrier.topology.queue
        Backhop.log(Logger::WARN) do
          "another thread ended #{count} idle threads of queue #{queue.inspect}: they are replaced"
        end
      end

      # Ends the subscription. A thread of its own returns the held messages and cancels the
      # consumer: during an alarm the broker does not answer. If the connection is lost, Bunny
      # recovers it in the thread that finds that.
      #
      # @param text [String, nil] the reason
      def finish(text = nil)
        drained = Event.made(:drained)
        Event.set(drained, :text, text)
        @lock.synchronize do
          return if @is_over

          @is_over = true
          @health.observe(drained)
          @changed.broadcast
        end
        @retrier.note_gauges
        Thread.new { leave_queue }.name = "backhop-cancel"
      end

      def leave_queue
        @gate&.close
        @consumer.cancel if @channel.here? && @connection.open?
      rescue *Channels::LOST
        nil # the broker returns the messages, and no consumer is left
      ensure
        @lock.synchronize do
          @is_consumer_gone = true
          @changed.broadcast
        end
      end

      # Waits until the block, which it calls with the lock, returns true. Returns false if the
      # deadline passed before; nil: none.
      def wait_until(deadline_ms)
        @lock.synchronize do
          until yield
            remaining = Deadline.remaining(deadline_ms)
            return false if remaining&.zero?

            @changed.wait(@lock, remaining)
          end
        end
        true
      end

      def watch
        pause = LOOK_AFTER
        pause = look until cancelled_in?(pause)
        @steps.stop
        close_all
      end

      # Looks once, and executes the steps that are due. Returns the seconds until the next look.
      def look
        @retrier.check_connection
        check_busy
        revive_threads
        follow_gate
        report
        due_ms = execute_steps
        close_retired
        due_ms.negative? ? LOOK_AFTER : ((due_ms - Times.monotonic_ms).clamp(0, nil) / 1000.0).clamp(0, LOOK_AFTER)
      rescue *Outcomes::FAILURES => e
        Backhop.log(Logger::ERROR) { "a look at the consumer met an error, and goes on: #{Outcomes.line(e)}" }
        LOOK_AFTER
      end

      # Executes steps until none is due. Returns when the next one is due, in ms, or
      # BH_SUBSCRIPTION_NEVER.
      def execute_steps(is_first: false)
        loop do
          may_subscribe = is_first || may_subscribe? ? 1 : 0
          kind, event, status, delay_ms, due_ms = @steps.next(may_subscribe, Times.monotonic_ms)
          case kind
          when Native::BH_SUBSCRIPTION_REST then return due_ms
          when Native::BH_SUBSCRIPTION_EMIT then emit_step(event, status, delay_ms)
          when Native::BH_SUBSCRIPTION_GIVE_UP then raise @error
          when Native::BH_SUBSCRIPTION_DECLARE then attempt(:declared) { declare_again }
          when Native::BH_SUBSCRIPTION_CONSUME then attempt(:subscribed) { begin_consuming }
          end
        end
      end

      # Yields, and reports the result.
      def attempt(done)
        yield
        @steps.public_send(done)
      rescue *Outcomes::FAILURES => e
        @error = e
        @steps.failed(e.is_a?(Error) ? e.status : ConnectionFailedError.status, Times.monotonic_ms)
      end

      # Returns false also while Bunny may restore the consumer, and while the breaker cancels it.
      def may_subscribe?
        !over? && @looks.nil? && !@is_absent && @connection.transport.open? && !Channels.recovering?(@connection)
      end

      def emit_step(event, status, delay_ms)
        case event
        when Native::BH_EVENT_CONNECTED
          emit(:connected)
          @gate&.watch(@channel)
        when Native::BH_EVENT_CANCELLED
          emit(:cancelled, error: Status.error(status), count: 0)
        else
          error = @error.is_a?(Error) ? @error : ConnectionFailedError.new(Outcomes.text(@error))
          emit(:unavailable, cause: Outcomes.text(@error), delay: Times.seconds(delay_ms), error: error, count: 0)
        end
      end

      # Emits an event that changes no other subscription's state.
      def emit(name, **fields) = @retrier.emit(name, connection: "consume", to: [self], **fields)

      # Closes, once cancelled, its channels: each when its handlers have ended and its copies are
      # confirmed.
      def close_all
        until @retrier.lost?
          are_done = @lock.synchronize { @is_consumer_gone && @busy.empty? }
          leave_channel if are_done
          close_retired unless @connection.blocked? # the broker does not answer then
          return if are_done && @retired.empty?

          @lock.synchronize { @changed.wait(@lock, LOOK_AFTER) }
        end
      end

      def cancelled_in?(seconds)
        @lock.synchronize do
          @changed.wait(@lock, seconds) unless @is_over
          @is_over
        end
      end

      # Cancels the consumer, or consumes again, as the breaker needs it. Bunny's own cancel would
      # wait for the handlers and end the threads of the pool.
      def follow_gate
        return unless @gate && @gate.cancelled? != @is_absent && !Channels.recovering?(@connection)

        @is_absent = @gate.cancelled?
        return consume_again unless @is_absent
        return unless @channel.here?

        tag = @consumer.consumer_tag
        @connection.send_frame(AMQ::Protocol::Basic::Cancel.encode(@channel.id, tag, true))
        @channel.delete_recorded_consumer(tag) if @channel.respond_to?(:delete_recorded_consumer) # Bunny 3
      rescue *Channels::LOST
        nil # no consumer is left to cancel
      end

      # Consumes on the same channel. If that is gone, declares before, on another one.
      def consume_again
        is_here = @steps.is_consuming == 1 && @channel.here? && @channel.work_pool.running? && !@is_cancelled
        return lose(Native::BH_LOSS_CONNECTION) unless is_here # the breaker cancelled the consumer, so it has no event

        @channel.basic_consume_with(@consumer)
      rescue *Channels::LOST => e
        @error = error(e)
        @steps.failed(@error.status, Times.monotonic_ms)
      end

      # Reports a settled message, a lost consumer, or one that Bunny has restored.
      def report
        @steps.settled if @channel.take_settled
        return if @steps.is_consuming.zero? && @looks.nil?
        return follow_recovery unless @transport.equal?(@connection.transport) && @looks.nil?
        return if @is_absent || !@transport.open?

        if @is_cancelled
          lose(Native::BH_LOSS_CONSUMER)
        elsif (@channel.closed? || @channel.doubtful?) && !Channels.recovering?(@connection)
          lose(Native::BH_LOSS_CHANNEL)
        end
      end

      def lose(loss) = @steps.lost(loss, Times.monotonic_ms)

      # Follows Bunny's recovery of a lost connection. The event of the lost connection comes first.
      def follow_recovery
        lose(Native::BH_LOSS_CONNECTION)
        @looks ||= 0
        return if Channels.recovering?(@connection) || !@connection.transport.open?
        return if @retrier.outdated? || @channel.asking?

        if !@is_cancelled && (@is_absent || @channel.consumed?)
          @transport = @connection.transport
          @looks = nil
          @steps.subscribed
        elsif @is_cancelled || @channel.doubtful? || (@looks += 1) > RECOVERS
          @looks = nil
        end
      end

      def declare_again
        leave_channel
        @retrier.doubt
        @retrier.declare
        @is_cancelled = false
      end

      # Leaves the channel: held messages are settled first.
      def leave_channel
        return if @channel.retired?

        @gate&.look
        @retired << @channel
        @retrier.retire(@channel)
      end

      # Closes the channels whose copies are confirmed. Only this thread does so: if the broker
      # refused a consumer at the same moment, Bunny would wait in vain for an answer. During a
      # recovery Bunny opens them again.
      def close_retired
        return if Channels.recovering?(@connection)

        @retired.reject! do |channel|
          Channels.close(channel) if channel.released?
          channel.released?
        end
      end
    end
  end
end
