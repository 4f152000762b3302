# frozen_string_literal: true

module Backhop
  module Bunny
    # Acknowledges handled messages, and retries or parks failed ones.
    #
    # You can call all methods from any thread, also with several handler threads on one channel
    # (connection.create_channel(nil, 8)). After Bunny's own recovery the retrier goes on: messages
    # that were in hand are delivered again, and their old deliveries are never settled. Call
    # {#drain} before you close the connection. Otherwise messages with unconfirmed copies are
    # delivered again.
    #
    # Make a new retrier for each connection.
    class Retrier < Backhop::Retrier
      include Consuming

      extend Checks::Keywords

      # @param channel [::Bunny::Channel] your channel; its connection must be threaded, which is
      #   Bunny's default
      # @param queue [String, ::Bunny::Queue] the work queue or its name, at most 247 bytes
      # @param policy [Policy, nil] the rules for delays and limits; nil: the default policy
      # @param topology [Topology, nil] replaces queue, policy and the other options of a topology
      # @param strategy [Symbol] where messages wait: :ladder (default), :message_ttl, :reject,
      #   :delayed_exchange or :native
      # @param queue_type [Symbol] see {Topology#initialize}; likewise namespace, series, stripes,
      #   work_queue and work_queue_arguments
      # @param mode [Symbol] the effect of {#declare}: :create missing parts, :verify all parts, or
      #   :none
      # @param never [Class, #call, Array] classes of exceptions that park a message at once, or
      #   predicates. A predicate gets the exception and returns true (park), false, or the shortest
      #   delay in seconds (retry)
      # @param only [Class, #call, Array] classes or predicates likewise; an exception that matches
      #   none of them parks at once
      # @param policies [Hash{Class, #call => Policy}] policies by class of exception or predicate.
      #   The first match applies, else the queue's policy. All policies share one count of attempts
      # @param legacy_counter [String, nil] see {History#initialize}; likewise wait_queues
      # @param confirm_timeout [Numeric] seconds, 0.001 to 3600. After that time without a confirm,
      #   one copy is published again; the others follow when the broker confirms something
      # @param back_off [Policy, nil] delays before a copy is published again; its limits are
      #   ignored. Default: 100 ms, doubled up to 10 s, the lower half random
      # @param breaker [Breaker, nil] the circuit breaker of the downstream that the handlers call;
      #   {#process} and {#read} do not use it
      # @param on_event [#call, Array<#call>, nil] called with each {Event}, in the thread that
      #   emits it. Do not call drain or replay in it
      # @param clock [#call] returns the time, as a Time or seconds since the epoch
      # @param random [#call] returns the given number of random bytes
      # @raise [InvalidArgumentError] if an option has a wrong value
      # @raise [ForeignPolicyError] if the given topology does not serve one of the policies
      # @raise [StrategyError] if the strategy cannot serve the policy, or a breaker by key
      # @raise [InvalidNameError] if a name is invalid
      def initialize(channel, queue: nil, policy: nil, topology: nil, strategy: nil, queue_type: nil, namespace: nil,
                     series: nil, stripes: nil, work_queue: nil, work_queue_arguments: nil, mode: :create, never: [],
                     only: [], policies: {}, legacy_counter: nil, wait_queues: [], confirm_timeout: 30, back_off: nil,
                     breaker: nil, on_event: nil, clock: Time.method(:now), random: Random.method(:urandom))
        unless channel.respond_to?(:connection)
          raise InvalidArgumentError, "channel is #{Text.shown(channel)}: give a Bunny::Channel, as " \
                                      "connection.create_channel gives it"
        end

        queue = queue.name if queue.is_a?(::Bunny::Queue)
        made = Topology.of(queue, policy, topology, policies,
                           strategy:, queue_type:, namespace:, series:, stripes:, work_queue:,
                           work_queue_arguments:)
        raise InvalidNameError, "Bunny cannot declare a queue with a line break" if made.queue.b.match?(/[\r\n]/)

        super(made, mode:, never:, only:, policies:, legacy_counter:, wait_queues:, back_off:, breaker:, on_event:,
                    clock:, random:)
        timeout_ms = Checks.time(confirm_timeout, "confirm_timeout", (1..Times::HOUR_MS))
        @connection = channel.connection
        unless @connection.threaded?
          raise InvalidArgumentError, "the connection has no thread: make it without threaded: false"
        end

        Channels.guard(@connection)
        @declared = Declared.of(@connection)
        @publisher = PublisherThread.new(self, @connection, timeout_ms, @back_off)
        @consumer = nil # the last one that was checked
        @channel_watch = ChannelWatch.new(made)
        @subscriptions = [].freeze
        @gates = Gates.new
        @calls = Calls.new
        @reread_ms = 0 # when to read the unroutable queue again
        @is_watched = false
        @pid = Process.pid
        @listeners.attach(self)
      end

      # Declares the exchanges, queues and bindings on a channel of its own. With mode :verify it
      # calls {#verify} instead, with mode :none it does nothing.
      #
      # @return [self]
      # @raise [ClashError] an exchange or queue exists with other arguments
      # @raise [MissingError] the work queue does not exist
      # @raise [AccessError] the user may not declare
      # @raise [BrokerError] the broker cannot serve the strategy
      # @raise [ConnectionFailedError] the connection was lost
      # @raise [ForkedError] the retrier was made before a fork; so also the other methods
      def declare
        check_process
        return self if mode == :none
        return verify if mode == :verify

        check_broker
        make
        @restores = true
        @publisher.declared
        self
      end

      # Checks that the exchanges and queues exist with the right arguments, and changes nothing.
      # AMQP cannot check bindings.
      #
      # With mode :create, rungs that only a RetryAfter can need may be missing: they are declared
      # on demand. They may not be missing if the user may not declare.
      #
      # @return [self]
      # @raise [ClashError] an exchange or queue exists with other arguments
      # @raise [MissingError] an exchange or queue does not exist
      # @raise [BrokerError] the broker cannot serve the strategy
      # @raise [ConnectionFailedError] the connection was lost
      def verify
        check_process
        check_broker
        run_declaring(:verify)
        self
      end

      # Calls {#declare}, consumes the work queue on a channel of its own and hands each message to
      # the handler, as {#wrap} does.
      #
      # After Bunny's own recovery it goes on. If the broker closes the channel or cancels the
      # consumer, it declares and subscribes again. Once a minute it looks for the return exchange.
      # With mode :create it declares the topology if the exchange is missing; it emits
      # :unavailable. Before you close the connection, call {#drain}.
      #
      # A handler that raises SystemExit, Interrupt or another SignalException ends the
      # subscription, and the exception is raised in the main thread.
      #
      # @param handler [#call, nil] the handler, unless you give a block
      # @param prefetch [Integer] number of messages that the broker sends ahead, 1 to 65535
      # @param threads [Integer] number of handlers that run at once, 1 to 1000
      # @param timeout [Numeric, String, nil] seconds for a handler, 0.001 to 86,400, or "30s"; nil:
      #   no limit. A handler is not aborted: if it took longer, its attempt fails when it returns
      # @return [Subscription]
      # @raise (see #declare)
      # @raise [InvalidArgumentError] if there is no handler or a number is outside its range
      def subscribe(handler = nil, prefetch: 100, threads: 1, timeout: nil, &block)
        Checks.integer(prefetch, "prefetch", (1..65_535))
        Checks.integer(threads, "threads", (1..1000))
        limit = HandlerLimit.new(timeout)
        handle = handling_of(handler || block, limit)
        declare
        keep_looking
        subscription = Subscription.new(self, @connection, prefetch, threads, limit, handle)
        @subscriptions = [*@subscriptions.reject(&:over?), subscription].freeze
        subscription.start
      end

      # Returns a block for queue.subscribe(manual_ack: true) or consumer.on_delivery that calls
      # your handler.
      #
      # If the handler returns, the message is acknowledged. If it raises, the message is retried or
      # parked. SystemExit, Interrupt and other SignalExceptions are raised in the main thread, and
      # the message stays unacknowledged. A handler that ends its thread has failed, and a new
      # thread of Bunny's pool takes its place.
      #
      # Once a minute it looks for the return exchange, as {#subscribe} does.
      #
      # A handler with one parameter gets the {Message}, which has the number of the attempt
      # and more. Another handler gets Bunny's delivery_info, properties and payload, and the
      # message as an optional fourth parameter.
      #
      # With a breaker, messages are held while it is not closed, and wait without an attempt if it
      # stays open. The consumer is yours, so it is not cancelled.
      #
      # @param handler [#call, nil] the handler, unless you give a block
      # @return [Proc]
      # @raise [InvalidArgumentError] if the handler has no method call
      def wrap(handler = nil, &block)
        handle = handling_of(handler || block)
        keep_looking
        intake = Intake.new(self, lambda do |message|
          @calls.during { handle.call(message) }
        rescue *HandlerCall::ENDS_PROGRAM => e
          HandlerCall.raise_in_main(e)
        end)
        proc { |*delivery| intake.call(*delivery) }
      end

      # Yields a message of queue.pop and settles it. It rescues an error of the block, logs it, and
      # retries or parks the message.
      #
      #     retrier.process(*queue.pop(manual_ack: true)) { |message| purge(message.body) }
      #
      # @return [Boolean] false if the queue was empty
      # @raise [PoisonError] the consumers of the message were lost too often. The message is
      #   delayed or parked, and the block is not called
      # @raise [Error] the message cannot be read
      # @raise [SystemExit, SignalException] the block raised it; the message stays unacknowledged
      def process(delivery_info, properties, payload, &block)
        check_process
        look_if_due
        return false unless delivery_info

        Checks.callable(block, "the handler")
        message = message_of(delivery_info, properties, payload)
        if (poison = message.past? && guard(message))
          settle_by(message, poison)
          raise PoisonError, poison_text(poison)
        end
        @listeners.emit_message(:delivered, message)
        @calls.during { settle_after(message, &block) }
        true
      end

      # Returns a message that you handle yourself, for example in another thread. The poison guard
      # does not check it.
      #
      # Call it in the block that Bunny calls: only there it is known whether the delivery can still
      # be settled. Run your handler within {Backhop::Retrier#handling}, and call {#settle} at the
      # end.
      #
      # @return [Message]
      # @raise [InvalidArgumentError] if the message is from another queue
      def read(delivery_info, properties, payload)
        message_of(delivery_info, properties, payload).tap { |message| @listeners.emit_message(:delivered, message) }
      end

      # @api private
      def message_of(delivery_info, properties, payload)
        check_process
        consumer = delivery_info.respond_to?(:consumer) ? delivery_info.consumer : nil
        consumer ? keep_looking : look_if_due
        check_consumer(consumer) unless consumer.equal?(@consumer)
        original = original(delivery_info, consumer ? consumer.no_ack : false)
        Message.new(delivery_info, properties, payload, topology, original, @decider)
      end

      # Settles a message of {#read}.
      #
      # @param error [Exception, nil] the exception of your handler; nil acknowledges the message
      # @return [void]
      def settle(message, error = nil)
        check_process
        return settle_by(message, plan(message, error), error) if error

        end_call(message, Outcomes::OK)
        return emit_stale(message.event_id) unless message.original.settle(:ack)

        @listeners.emit_message(:succeeded, message)
      rescue ForkedError
        raise
      rescue *Outcomes::FAILURES => e # an exception would end Bunny's thread
        refuse(message, e)
      end

      # Returns a message unchanged to its queue, now.
      # @api private
      def give_back(message)
        end_call(message, nil)
        message.original.settle(:requeue) || emit_stale(message.event_id)
      end

      # @return [Integer] the number of copies that are not confirmed yet; their originals are
      #   unacknowledged
      def pending
        @publisher.pending
      end

      # Cancels the subscriptions of this retrier, and returns messages that a breaker holds to the
      # queue. Then waits until all handlers have ended, including handlers of {#wrap} and
      # {#process}, every copy is confirmed and its original is acknowledged. A handler that calls
      # it does not wait for itself. The channels that the retrier opened are closed; it opens
      # others if you use it again.
      #
      # If a handler of {#wrap} never ends, Bunny's consumer.cancel waits up to 60 s for it. To give
      # up earlier: Thread.new { consumer.cancel }.join(20).
      #
      # @param timeout [Numeric, String, nil] the limit for all of it: seconds, or "20s"; nil: no
      #   limit
      # @return [self]
      # @raise [WaitTimeoutError] it is not done in that time. Messages that are not settled return
      #   to the queue when the connection closes
      # @raise [InvalidArgumentError] the timeout is no time or negative
      def drain(timeout = nil)
        check_process
        deadline_ms = Deadline.after(timeout)
        Watch.remove(self) if @is_watched
        @is_watched = false # until the next message
        subscriptions = @subscriptions
        are_idle = subscriptions.map { |each| each.cancel(Deadline.remaining(deadline_ms)) }.all?
        return_held(deadline_ms)
        are_idle &= @calls.wait(deadline_ms)
        is_drained = @publisher.drain(deadline_ms)
        @publisher.rest if is_drained
        return self if is_drained && are_idle

        raise Event.undrained(topology.queue, pending + subscriptions.sum(&:busy) + @calls.size)
      end

      # Moves parked messages back to their work queue, with a cleared history. It moves the
      # messages that were parked when it began.
      #
      # If the user may read topology.unroutable_queue, it then looks at the first 10,000 messages
      # there. It moves the messages of this work queue; the others stay in order.
      #
      # A message that cannot be moved stays parked. If the message itself is refused, the replay
      # goes on with the next one.
      #
      # @param most [Integer, nil] the most messages to move; nil: all
      # @return [Integer] the number of moved messages
      # @raise [PublishError] a message could not be published
      # @raise [FrameError] the headers of a message do not fit the connection's frame_max
      # @raise [ContentError, ChannelClosedError] a message cannot be copied, or the broker refuses
      #   the copy
      # @raise [MissingError] there is no parked queue
      # @raise [AccessError] the user may not read the parked queue
      def replay(most = nil)
        check_process
        Checks.integer(most, "most", (0..)) unless most.nil?
        count, error = Replay.new(self, @connection, most).call
        emit(:replayed, text: error&.message || "", error: error, count: count)
        raise error if error

        count
      end

      # Declares the topology, or only one rung of it, on a channel of its own.
      #
      # @param rung_ms [Integer] the rung; 0: all
      # @api private
      def make(rung_ms = 0)
        run_declaring(:create, rung_ms)
      end

      # Looks for the return exchange once a minute from now on, also if no message arrives.
      # @api private
      def keep_looking
        return if mode == :none || (@is_watched && Watch.running?)

        @is_watched = true
        Watch.add(self)
      end

      # Returns true if its connection does not come back.
      # @api private
      def lost?
        Process.pid != @pid || @connection.closed? || !(@connection.open? || @connection.automatically_recover?)
      end

      # Looks for the return exchange if a minute has passed. The broker answers nothing while it
      # blocks the connection.
      # @api private
      def look_if_due
        return if mode == :none || Channels.recovering?(@connection) || @connection.blocked?

        @publisher.look_if_due
      end

      # Reports a look whose answer is late.
      # @api private
      def check_silence
        @publisher.check_silence(@connection.blocked?) unless Channels.recovering?(@connection)
      end

      # Looks for the return exchange. If it is missing, declares the topology if {#declare} did so
      # before.
      #
      # @return [Error, nil]
      # @api private
      def look
        with_declaring { |declaring, declarer| declaring.look(look_mode, &declarer) }
      end

      # Replays this work queue's messages in the unroutable queue, unless that is not due. A thread
      # of its own does so, because it waits for confirms.
      #
      # @param error [Error, nil] the result of {#look}
      # @api private
      def replay_unroutable_after(error)
        @reread_ms = 0 if error # some retries may have missed the exchange
        return if @replaying&.alive? || Times.monotonic_ms < @reread_ms || topology.unroutable_queue.nil?
        return unless Declaring.returns_after?(look_mode, error)

        @replaying = Thread.new { replay_unroutable }
        @replaying.name = "backhop-unroutable"
      end

      # Emits events of a lost or blocked connection.
      # @api private
      def check_connection = @publisher.check_connection

      # @api private
      def readiness = @subscriptions.map { |each| each.state == :ready }

      # Returns true if an event of a lost or blocked connection is to come.
      # @api private
      def outdated? = @publisher.outdated?

      # Returns true if it has a consumer of its own.
      # @api private
      def consumes? = !@subscriptions.all?(&:over?)

      # Returns its subscriptions whose consumer was not lost.
      # @api private
      def consuming = @subscriptions.select(&:consuming?)

      # Forgets the declarations: a part may have been deleted.
      # @api private
      def doubt = @declared.forget

      # Publishes a parked message to its work queue.
      #
      # @yieldparam error [Error, nil] why the copy was not confirmed
      # @api private
      def replay_copy(message, &replayed)
        @decider.frame_max = @connection.frame_max
        @publisher.publish(copy(@decider.replay(message.history), message, replayed))
      end

      # Returns the gate of a consumer of the application; nil without a breaker, and if it is by
      # key.
      #
      # @param most [Integer, nil] see {Gate#initialize}
      # @yieldparam message [Message] see {Gate#initialize}; likewise is_free
      # @api private
      def gate(most = nil, changed: nil, &wake)
        return if @breaker.nil? || @breaker.by_key?

        @gates.add(Gate.new(self, @breaker, most: most, changed: changed, &wake))
      end

      # Logs and emits that a handler ends the program.
      # @api private
      def emit_end(message, error)
        forget_call(message)
        @listeners.log_error(:stale, message, error)
        emit_stale(message.event_id)
      end

      # Forgets the permit and the call of a message that Backhop does not settle.
      # @api private
      def forget_call(message)
        end_call(message, nil)
        EarlierCalls.ended(message.original, Native::BH_ACTION_NONE)
      end

      # Retires a channel, and releases it once the copies of its messages are confirmed.
      # @api private
      def retire(channel)
        channel.retire
        @publisher.notify(:retire, channel)
      end

      # Returns a delivery to its queue, unread.
      # @api private
      def return_delivery(delivery_info) = original(delivery_info, false).settle(:requeue)

      # @api private
      def watch(channel) = @channel_watch.watch(channel)

      # Raises ForkedError in a forked child: the connection is the parent's.
      # @api private
      def check_process
        return if Process.pid == @pid

        raise Status.error(ForkedError.status)
      end

      private

      # Returns the held messages to the queue, in a thread of its own. If the connection is lost,
      # Bunny recovers it in the thread that finds that.
      def return_held(deadline_ms)
        return unless @breaker

        returning = Thread.new do
          @gates.give_back
        rescue *Channels::LOST
          nil # the broker returns them
        end
        returning.join(Deadline.remaining(deadline_ms))
      end

      def look_mode = restores? ? mode : :verify

      def replay_unroutable
        count, foreign = Replay.new(self, @connection, Native::BH_REPLAY_MOST_SHARED).call_unroutable
        @reread_ms = Times.monotonic_ms + Native.bh_replay_pause_ms(foreign)
        emit(:replayed, text: Declaring.return_text(look_mode), count: count) if count.positive?
      end

      def note(event, to = nil) = (to || @subscriptions).each { |each| each.observe(event) }

      def run_declaring(mode, rung_ms = 0)
        with_declaring { |declaring, declarer| declaring.run(mode, rung_ms, &declarer) }
      end

      def with_declaring
        @declared.synchronize do |declared|
          declaring = Declaring.new(topology, makes_rungs: makes_rungs?, declared: declared)
          Declarer.open(@connection) { |declarer| yield declaring, declarer }
        end
      end

      # Raises BrokerError if the broker cannot serve the strategy.
      def check_broker
        found = @connection.server_properties || {}
        topology.check_broker(found["product"].to_s, found["version"].to_s)
      end

      def plan(message, error)
        @decider.frame_max = @connection.frame_max # a recovery can change it
        super
      end

      def guard(message)
        @decider.frame_max = @connection.frame_max
        super
      end

      def settle_by(message, plan, error = nil, is_deferred: false)
        if plan.publishes?
          return abandon_call(message) if message.original.retired? && !is_deferred

          @publisher.publish(copy(plan, message, error: error))
        elsif !message.original.settle(plan.action)
          emit_stale(message.event_id)
        elsif plan.action != :drop
          @listeners.emit_plan(Event.of_plan(plan), plan, error)
        end
      end

      # Abandons a message that cannot be copied: it stays unacknowledged for a while.
      def refuse(message, error)
        forget_call(message)
        emit_refused(message.event_id, error)
        @publisher.publish(message.original)
      end

      def copy(plan, message, replayed = nil, error: nil)
        original = message.arrived_properties
        headers = plan.copy_headers(original[:headers]).transform_values! { |value| Copy.writable(value) }
        properties = plan.copy_properties(original).merge!(headers: headers)
        Copy.new(plan, properties, message.arrived_body, message.original, replayed, error: error)
      end
    end
  end
end
