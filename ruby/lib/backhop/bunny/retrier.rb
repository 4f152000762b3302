# frozen_string_literal: true

module Backhop
  module Bunny
    # Acknowledges what a handler did, and lets what it could not do come back later.
    #
    # All its methods can be called in any thread, also with several handler threads on one channel
    # (connection.create_channel(nil, 8)). After Bunny's own recovery it goes on; what was in hand then is delivered again,
    # and a delivery of before is never settled. Before you close the connection call {#drain}: what is unconfirmed then is
    # delivered again.
    #
    # Make a new retrier for a new connection.
    class Retrier < Backhop::Retrier
      extend Values::Keywords

      # @param channel [::Bunny::Channel] your channel; its connection has to be threaded, as Bunny's are by default
      # @param queue [String, ::Bunny::Queue] the work queue, or its name; at most 247 bytes
      # @param policy [Policy, nil] how long, how often, how random, when to give up; nil: the default policy
      # @param topology [Topology, nil] instead of queue, policy, and what a topology takes
      # @param strategy [Symbol] where a message waits: :ladder (the default), :message_ttl, :reject, :delayed_exchange, :native
      # @param queue_type [Symbol] as Topology's, as are namespace, series, stripes, work_queue,
      #   work_queue_arguments
      # @param mode [Symbol] what {#declare} does: :create what is missing, :verify that all is there, or :none
      # @param never [Class, #call, Array] classes of exceptions that park a message at once; or predicates, which are given
      #   the exception, and say true, false, or after how many seconds it is tried again at the soonest
      # @param only [Class, #call, Array] likewise: what is none of these parks at once
      # @param policies [Hash{Class, #call => Policy}] policies of their own for classes of exceptions, or for predicates that
      #   are given the exception; the first that fits is used, else the policy. One count of attempts serves them all
      # @param legacy_counter [String, nil] as History's, as are wait_queues
      # @param confirm_timeout [Numeric] seconds, an hour at most: after so many without a confirm one copy is published again,
      #   and the others when the broker confirms something
      # @param back_off [Policy, nil] delays before a copy is published again; its limits are ignored; default: 100 ms,
      #   doubled up to 10 s, of which the lower half is random
      # @param on_event [#call, Array<#call>, nil] called with each {Event}, from whichever thread meets it. Do not drain or
      #   replay in it
      # @param clock [#call] gives the moment, as a Time or seconds since the epoch
      # @param random [#call] gives that many random bytes
      # @raise [InvalidArgumentError] for what is no value of an option
      # @raise [ForeignPolicyError] where the topology that is given does not serve one of the policies
      # @raise [StrategyError] where the strategy cannot serve the policy
      # @raise [InvalidNameError] for a name that cannot be used
      def initialize(channel, queue: nil, policy: nil, topology: nil, strategy: nil, queue_type: nil, namespace: nil,
                     series: nil, stripes: nil, work_queue: nil, work_queue_arguments: nil, mode: :create, never: [], only: [],
                     policies: {}, legacy_counter: nil, wait_queues: [], confirm_timeout: 30, back_off: nil, on_event: nil,
                     clock: Time.method(:now), random: Random.method(:urandom))
        unless channel.respond_to?(:connection)
          raise InvalidArgumentError, "channel is #{Values.shown(channel)}: give a Bunny::Channel, as " \
                                      "connection.create_channel gives it"
        end

        queue = queue.name if queue.is_a?(::Bunny::Queue)
        made = Topology.of(queue, policy, topology, policies,
                           strategy:, queue_type:, namespace:, series:, stripes:, work_queue:,
                           work_queue_arguments:)
        raise InvalidNameError, "Bunny cannot declare a queue with a line break" if made.queue.b.match?(/[\r\n]/)

        super(made, mode:, never:, only:, policies:, legacy_counter:, wait_queues:, back_off:, on_event:, clock:, random:)
        timeout_ms = Values.time(confirm_timeout, "confirm_timeout", (1..Times::HOUR_MS))
        @connection = channel.connection
        raise InvalidArgumentError, "the connection has no thread: make it without threaded: false" unless @connection.threaded?

        @declared = Declared.of(@connection)
        @publisher = Publisher.new(self, @connection, timeout_ms, @back_off)
        @consumer = nil # the last one that was seen
        @subscriptions = [].freeze
        @listeners.attach(self)
      end

      # By the mode: declares exchanges, queues and bindings, on a channel of its own; or verifies them, as {#verify}; or
      # does nothing.
      #
      # @return [self]
      # @raise [ClashError] an exchange or queue exists with other arguments
      # @raise [MissingError] the work queue does not exist
      # @raise [AccessError] the user may not declare
      # @raise [BrokerError] the broker cannot serve the strategy
      def declare
        return self if mode == :none
        return verify if mode == :verify

        check_broker
        make
        @restores = true
        self
      end

      # Makes nothing, and says what is missing or different. Where the mode is :create, a rung that only a handler's RetryAfter
      # can need may be missing, as it is made on demand, unless the user may not declare. AMQP cannot look at bindings.
      #
      # @return [self]
      # @raise [ClashError] an exchange or queue exists with other arguments
      # @raise [MissingError] anything is missing
      # @raise [BrokerError] the broker cannot serve the strategy
      def verify
        check_broker
        carry_out(:verify)
        self
      end

      # Declares, by the mode, and consumes the queue, on a channel of its own: hands each message to the handler, as {#wrap}.
      #
      # After Bunny's own recovery it goes on. Where the broker closed the channel, or cancelled the consumer, it declares
      # and subscribes again. Before you close the connection: `subscription.cancel`, then {#drain}.
      #
      # @param handler [#call, nil] or a block
      # @param prefetch [Integer] messages that the broker sends ahead
      # @param threads [Integer] how many handlers run at once
      # @return [Subscription]
      # @raise (see #declare)
      # @raise [InvalidArgumentError] for no handler, or a number that is none
      def subscribe(handler = nil, prefetch: 100, threads: 1, &block)
        Values.integer(prefetch, "prefetch", (1..65_535))
        Values.integer(threads, "threads", (1..1000))
        handle = wrap(handler, &block)
        declare
        Subscription.new(self, @connection, prefetch, threads, handle).tap do |subscription|
          @subscriptions = [*@subscriptions.reject(&:over?), subscription].freeze
        end
      end

      # A block for queue.subscribe or consumer.on_delivery (with manual_ack: true) that hands each message to yours.
      #
      # Where yours returns the message is acknowledged; where it raises the message comes back later, or is parked. A block
      # with one parameter gets the {Message}, which knows the attempt, the first failure and more. Any other gets Bunny's
      # delivery_info, properties and payload, and a fourth parameter the message too.
      #
      # @param handler [#call, nil] or a block
      # @return [Proc]
      # @raise [InvalidArgumentError] for what cannot be called
      def wrap(handler = nil, &block)
        handle = Values.callable(handler || block, "the handler")
        arity = (handle.respond_to?(:arity) ? handle : handle.method(:call)).arity
        proc do |delivery_info, properties, payload|
          message = arrived(delivery_info, properties, payload)
          next unless message

          settle_after(message) do
            case arity
            when 1 then handle.call(message)
            when 4 then handle.call(delivery_info, message.properties, payload, message)
            else handle.call(delivery_info, message.properties, payload)
            end
          end
        end
      end

      # Yields a message that comes from queue.pop, and settles it; an error of the block ends the block alone.
      #
      #     retrier.process(*queue.pop(manual_ack: true)) { |message| purge(message.body) }
      #
      # @return [Boolean] whether there was a message
      # @raise [PoisonError] instead of yielding: the message's consumers were lost too often, and it waits, or is parked;
      #   wrap does so in silence
      # @raise [Error] a message that cannot be read
      def process(delivery_info, properties, payload, &block)
        return false unless delivery_info

        Values.callable(block, "the handler")
        message = message_of(delivery_info, properties, payload)
        if (poison = message.past? && guard(message))
          settle_by(message, poison)
          raise PoisonError, told(poison)
        end
        @listeners.tell_message(:delivered, message)
        settle_after(message, &block)
        true
      end

      # The message as a handler gets it, for who calls the handler himself, in another thread as it may be.
      #
      # Call it where Bunny hands the message to you, as it knows by then whether the message can still be settled. The
      # poison guard is not asked. Handle it within {Backhop::Retrier#handling}, and hand it to {#settle} in the end.
      #
      # @return [Message]
      # @raise [InvalidArgumentError] for a message of another queue
      def read(delivery_info, properties, payload)
        message_of(delivery_info, properties, payload).tap { |message| @listeners.tell_message(:delivered, message) }
      end

      # @api private
      def message_of(delivery_info, properties, payload)
        consumer = delivery_info.respond_to?(:consumer) ? delivery_info.consumer : nil
        see(consumer) unless consumer.equal?(@consumer)
        original = original(delivery_info, consumer ? consumer.no_ack : false)
        Message.new(delivery_info, properties, payload, topology, original, @decider)
      end

      # Says what became of a message of {#read}: nil, or the exception with which it failed.
      # @return [void]
      def settle(message, error = nil)
        return settle_by(message, plan(message, error), error) if error

        return tell_stale(message.arrived_properties[:message_id]) unless message.original.settle(:ack)

        @listeners.tell_message(:succeeded, message)
      rescue *Outcomes::FAILURES => e # in Bunny's thread, which an error would end
        refuse(message, e)
      end

      # Gives a message back to its queue as it is, and now.
      # @api private
      def give_back(message)
        message.original.settle(:requeue) || tell_stale(message.arrived_properties[:message_id])
      end

      # @return [Integer] how many copies are not confirmed yet; their originals are unacknowledged
      def pending
        @publisher.pending
      end

      # Waits until every copy is confirmed and its original acknowledged.
      #
      # @param timeout [Numeric, nil] seconds; nil: as long as it takes
      # @return [self]
      # @raise [WaitTimeoutError] some are not confirmed in that time
      def drain(timeout = nil)
        return self if @publisher.drain(timeout)

        raise Event.undrained(topology.queue, pending)
      end

      # Sends parked messages back to their work queue, as if they had never failed. It ends with the messages that were
      # parked when it began. Then, where the user may read it, those of this work queue among the first 10,000 of
      # topology.unroutable_queue, which came back while it was gone; others stay there, in order.
      #
      # A message that does not go stays where it is; where it is refused for what it is, those behind it go.
      #
      # @param most [Integer, nil] how many at most; nil: all
      # @return [Integer] how many went
      # @raise [PublishError] a message could not be published
      # @raise [FrameError] a message's own headers do not fit the connection's frame_max
      # @raise [ContentError, ChannelClosedError] a message cannot be copied, or the broker refuses the copy as it is
      # @raise [MissingError] there is no parked queue
      # @raise [AccessError] the user may not read the parked queue
      def replay(most = nil)
        Values.integer(most, "most", (0..)) unless most.nil?
        count, error = Replay.new(self, @connection, most).call
        tell(:replayed, text: error&.message || "", error: error, count: count)
        raise error if error

        count
      end

      # Makes the topology, or a rung of it alone, on a channel of its own.
      # @api private
      def make(rung_ms = 0)
        carry_out(:create, rung_ms)
      end

      # Sees to it that what became of the connection is told.
      # @api private
      def look = @publisher.look

      # Whether it has a consumer of its own.
      # @api private
      def consumes? = !@subscriptions.all?(&:over?)

      # Something that was declared may be gone.
      # @api private
      def doubt = @declared.forget

      # @yieldparam error [Error, nil] why its copy was not taken
      # @api private
      def replay_copy(message, &replayed)
        @decider.frame_max = @connection.frame_max
        @publisher.publish(copy(@decider.replay(message.history), message, replayed))
      end

      # A message that is to be handled; nil for one that is parked unseen, or cannot be read.
      # @api private
      def arrived(delivery_info, properties, payload)
        message = message_of(delivery_info, properties, payload)
        poison = message.past? && guard(message)
        if poison
          settle_by(message, poison)
          return
        end
        @listeners.tell_message(:delivered, message)
        message
      rescue *Outcomes::FAILURES => e
        message ? refuse(message, e) : tell_refused(nil, e)
        nil
      end

      private

      def carry_out(mode, rung_ms = 0)
        @declared.synchronize do |declared|
          declaring = Declaring.new(topology, makes_rungs: makes_rungs?, declared: declared)
          Declarer.open(@connection) { |declarer| declaring.carry_out(mode, rung_ms, &declarer) }
        end
      end

      # Refuses a broker that cannot serve the strategy.
      def check_broker
        found = @connection.server_properties || {}
        topology.check_broker(found["product"].to_s, found["version"].to_s)
      end

      def settle_after(message)
        yield message
      rescue *Outcomes::FAILURES => e
        settle(message, e)
      else
        settle(message)
      end

      def plan(message, error)
        @decider.frame_max = @connection.frame_max # after a recovery it may be another
        super
      end

      def guard(message)
        @decider.frame_max = @connection.frame_max
        super
      end

      # What a consumer tells that was not seen yet.
      def see(consumer)
        return unless consumer

        declaring = Declaring.new(topology)
        foreign = declaring.diagnosis { |native| native.check_queue(consumer.queue_name) }
        raise foreign if foreign

        Backhop.log(Logger::ERROR) { without_ack(declaring).message } if consumer.no_ack
        @consumer = consumer
      end

      # What a consumer without acknowledgements loses.
      def without_ack(declaring)
        declaring.diagnosis { |native| native.refuse_no_ack("manual_ack: true") }
      end

      # The tag of what queue.pop gives knows, up to Bunny 2, whether it is of before a recovery. That of a consumer is
      # handled in a thread which Bunny ends at a recovery; while recovering, it marks new deliveries as old.
      def original(delivery_info, is_settled)
        tag = delivery_info.delivery_tag
        channel = delivery_info.channel
        is_stale = tag.respond_to?(:stale?) && tag.stale?(channel.recoveries_counter.get)
        Original.new(channel, tag.to_i, is_stale: is_stale, is_settled: is_settled)
      end

      def settle_by(message, plan, error = nil)
        if plan.publishes?
          @publisher.publish(copy(plan, message, error: error))
        elsif !message.original.settle(plan.action)
          tell_stale(message.id)
        elsif plan.action != :drop
          @listeners.tell_plan(Event.of_plan(plan), plan, error)
        end
      end

      # It is left for a while.
      def refuse(message, error)
        tell_refused(message.arrived_properties[:message_id], error)
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
