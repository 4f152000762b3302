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
      # @param channel [::Bunny::Channel] your channel; its connection has to be threaded, as Bunny's are by default
      # @param queue [String, ::Bunny::Queue] the work queue, or its name; at most 247 bytes
      # @param policy [Policy, nil] how long, how often, how random, when to give up; nil: the default policy
      # @param strategy [Symbol] where a message waits: :ladder, :message_ttl, :reject, :delayed_exchange, :native
      # @param never [Array<Class>] classes of exceptions that park a message at once
      # @param queue_type [Symbol] as Topology's, as are namespace, series, work_queue, work_queue_arguments
      # @param legacy_counter [String, nil] as History's, as are wait_queues
      # @param confirm_timeout [Numeric] after so many seconds without a confirm a copy is published again
      # @param clock [#call] gives the moment, as a Time or seconds since the epoch
      # @param random [#call] gives that many random bytes
      # @raise [StrategyError] where the strategy cannot serve the policy
      # @raise [InvalidNameError] for a name that cannot be used
      def initialize(channel, queue:, policy: nil, strategy: :ladder, never: [], queue_type: :quorum, namespace: nil,
                     series: 10, work_queue: nil, work_queue_arguments: {}, legacy_counter: nil, wait_queues: [],
                     confirm_timeout: 30, clock: Time.method(:now), random: Random.method(:urandom))
        name = queue.respond_to?(:name) ? queue.name : queue
        raise InvalidNameError, "Bunny cannot declare a queue with a line break" if name.to_s.b.match?(/[\r\n]/)

        super(name,
              policy:, strategy:, never:, queue_type:, namespace:, series:, work_queue:, work_queue_arguments:,
              legacy_counter:, wait_queues:, confirm_timeout:, clock:, random:)
        @connection = channel.connection
        raise InvalidArgumentError, "the connection has no thread: make it without threaded: false" unless @connection.threaded?

        @publisher = Publisher.new(self, @connection, @confirm_timeout)
      end

      # Declares exchanges, queues and bindings, on a channel of its own.
      #
      # @param verify [Boolean] make nothing, and say what is missing or different. A rung that only a handler's
      #   RetryAfter can need may be missing, as it is made on demand, unless the user may not declare. AMQP cannot look
      #   at bindings
      # @return [self]
      # @raise [ClashError] an exchange or queue exists with other arguments
      # @raise [MissingError] the work queue does not exist; with verify, anything
      # @raise [AccessError] the user may not declare
      # @raise [BrokerError] the broker cannot serve the strategy
      def declare(verify: false)
        Declaring.check_broker(topology, @connection.server_properties)
        Declarer.open(@connection) do |declarer|
          verify ? Declaring.verify(topology, &declarer) : Declaring.create(topology, &declarer)
        end
        @restores ||= !verify
        self
      end

      # A block for queue.subscribe or consumer.on_delivery (with manual_ack: true) that hands each message to yours.
      #
      # Where yours returns the message is acknowledged; where it raises the message comes back later, or is parked. A block
      # with one parameter gets the {Message}, which knows the attempt, the first failure and more. Any other gets Bunny's
      # delivery_info, properties and payload, and a fourth parameter the message too.
      #
      # @return [Proc]
      def wrap(&handle)
        raise ::ArgumentError, "wrap needs a block: the handler" unless handle

        arity = handle.arity
        proc do |delivery_info, properties, payload|
          message = arrived(delivery_info, properties, payload)
          next unless message

          settle_after(message) do
            case arity
            when 1 then handle.call(message)
            when 4 then handle.call(delivery_info, properties, payload, message)
            else handle.call(delivery_info, properties, payload)
            end
          end
        end
      end

      # Yields a message that comes from queue.pop, and settles it; an error of the block ends the block alone.
      #
      #     retrier.process(*queue.pop(manual_ack: true)) { |message| purge(message.body) }
      #
      # @return [Boolean] whether there was a message
      # @raise [PoisonError] instead of yielding: the message crashed its consumers, and is parked; wrap parks it in silence
      # @raise [Error] a message that cannot be read
      def process(delivery_info, properties, payload, &block)
        return false unless delivery_info

        message = read(delivery_info, properties, payload)
        if (poison = guard(message))
          carry_out(message, poison)
          raise PoisonError, "#{message.inspect} crashed its consumers, and is parked"
        end
        settle_after(message, &block)
        true
      end

      # The message as a handler gets it, for who calls the handler himself, in another thread as it may be.
      #
      # Call it where Bunny hands the message to you, as it knows by then whether the message can still be settled. The
      # poison guard is not asked. Hand the message to {#settle} in the end.
      #
      # @return [Message]
      def read(delivery_info, properties, payload)
        @decider.frame_max = @connection.frame_max # after a recovery it may be another
        history = @decider.read(exchange: delivery_info.exchange, routing_key: delivery_info.routing_key,
                                properties: properties, headers: properties.headers)
        Message.new(delivery_info, properties, payload, history, original(delivery_info))
      end

      # Says what became of a message of {#read}: nil, or the exception with which it failed.
      # @return [void]
      def settle(message, error = nil)
        carry_out(message, plan(message, error))
      rescue *Outcomes::FAILURES => e # in Bunny's thread, which an error would end
        Telling.refused(message.history, e)
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

        raise WaitTimeoutError, "#{pending} copies are not confirmed; the broker delivers their originals again"
      end

      # Sends parked messages back to their work queue, as if they had never failed. It ends with the messages that were
      # parked when it began.
      #
      # @param limit [Integer, nil] how many at most
      # @return [Integer] how many went
      # @raise [PublishError] a message could not be published; it is parked still
      # @raise [FrameError] a message's own headers do not fit the connection's frame_max; it is parked still
      # @raise [MissingError] there is no parked queue
      def replay(limit = nil)
        Replay.new(self, @connection, limit).call
      end

      # @api private
      def replay_copy(message, replayed)
        @publisher.publish(copy(@decider.replay(message.history), message, replayed))
      end

      # A message that is to be handled; nil for one that is parked unseen, or cannot be read.
      # @api private
      def arrived(delivery_info, properties, payload)
        message = read(delivery_info, properties, payload)
        poison = guard(message)
        return message unless poison

        carry_out(message, poison)
        nil
      rescue *Outcomes::FAILURES => e
        Telling.refused(message&.history, e)
        nil
      end

      private

      def settle_after(message)
        yield message
      rescue *Outcomes::FAILURES => e
        settle(message, e)
      else
        settle(message)
      end

      # The tag of what queue.pop gives knows whether it is of before a recovery. That of a consumer is handled in a thread
      # which Bunny ends at a recovery; while recovering, it marks new deliveries as old.
      def original(delivery_info)
        tag = delivery_info.delivery_tag
        channel = delivery_info.channel
        is_stale = tag.respond_to?(:stale?) && tag.stale?(channel.recoveries_counter.get)
        Original.new(channel, tag.to_i, is_stale: is_stale)
      end

      def carry_out(message, plan)
        if !plan.publishes?
          message.original.settle(plan.action)
        elsif message.original.here?
          @publisher.publish(copy(plan, message))
        else
          message.original.tell_gone
        end
      end

      def copy(plan, message, replayed = nil)
        original = message.properties
        headers = plan.copy_headers(original.headers).transform_values { |value| Copy.writable(value) }
        properties = plan.copy_properties(original).merge!(headers: headers)
        Copy.new(plan, message.history, properties, message.kept_body, message.original, replayed)
      end
    end
  end
end
