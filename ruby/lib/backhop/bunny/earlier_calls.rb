# frozen_string_literal: true

module Backhop
  module Bunny
    # Which deliveries need no call of their handler, because an earlier delivery of their message
    # had one. The core's calls decide that; this module reports what happens to Bunny's channels.
    #
    # All retriers share this object, because a message can come back by another connection. A
    # forked child forgets the calls of its parent: it does not see their ends.
    # @api private
    module EarlierCalls
      RANDOM_BYTES = 16

      # A channel on one transport: Bunny opens it again on the next one. `cancelled` has a number
      # for each consumer that the broker cancelled: further deliveries of it are lost, too.
      Known = Struct.new(:channel, :transport, :number, :cancelled) do
        def gone? = closing? || !transport.open? || !transport.equal?(channel.connection.transport)

        def closing? = channel.respond_to?(:backhop_closing?) ? channel.backhop_closing? : channel.closed?
      end
      private_constant :RANDOM_BYTES, :Known

      @lock = Mutex.new
      @pid = nil
      @known = @waiting = nil # by channel; by call: what to do when it has ended

      class << self
        # Looks for an earlier call of a message.
        #
        # @yield later, once the earlier call has ended
        # @return [Integer, Symbol, nil] nil: call the handler, and then {#ended}; :wait: it runs;
        #   else the action of the call
        def arrive(message, &again)
          return unless message.identified?

          history = message.history.native
          synchronize do
            leave_gone if message.redelivered?
            kind, call, action = enter(message, history)
            return action if kind == Native::BH_ARRIVAL_ACK

            (@waiting[call] ||= []) << again if kind == Native::BH_ARRIVAL_WAIT
            message.original.call = call if kind == Native::BH_ARRIVAL_CALL
            :wait if kind == Native::BH_ARRIVAL_WAIT
          end
        rescue Error # the message cannot be read
          nil
        end

        # Records that a message is settled, or that its copy is confirmed.
        #
        # @param action [Integer] BH_ACTION_NONE if the next delivery is to be called
        def ended(original, action)
          call = original.call
          return unless call&.positive?

          original.call = nil
          waiting = synchronize do
            leave(known_of(original)) unless original.here?
            native.end(call, action, Times.monotonic_ms)
            @waiting.delete(call)
          end
          waiting&.each(&:call)
        end

        # Records that a channel is closed.
        #
        # @param is_orderly [Boolean] whether the broker gets all acknowledgements before
        def closed(channel, is_orderly: false)
          synchronize { leave(@known[channel], is_orderly ? Native::BH_CALLS_CLOSED : prefetch_of(channel)) }
        end

        # Records that the broker has cancelled a consumer. RabbitMQ 4.3 does so if it held a
        # message too long.
        def cancelled(channel, tag)
          synchronize do
            next unless (known = @known[channel])

            lose(known.number, prefetch_of(channel))
            known.number = native.open_channel
            known.cancelled[tag] = native.open_channel
          end
        end

        private

        # Yields with the lock. Ruby unlocks it in a child if another thread of the parent had it.
        def synchronize
          @lock.synchronize do
            forget unless @pid == Process.pid
            yield
          end
        end

        def forget
          @pid = Process.pid
          @native = nil
          @known = {}.compare_by_identity
          @waiting = {}
        end

        def native = @native ||= Core.made(Native.bh_calls_new(Random.urandom(RANDOM_BYTES)))

        def enter(message, history)
          known = known_of(message.original) || know(message.original)
          number = known.cancelled[message.consumer_tag]
          found = native.arrive(number || known.number, history, message.queue, message.arrived_body,
                                message.redelivered? ? 1 : 0, Times.monotonic_ms)
          lose(number, Native::BH_CALLS_CLOSED) if number
          found
        end

        # Returns the channel of a delivery; nil if it is not kept, or if Bunny has opened it again
        # since.
        def known_of(original)
          known = @known[original.channel]
          known if known&.transport.equal?(original.transport)
        end

        def know(original)
          leave_gone
          @known[original.channel] = Known.new(original.channel, original.transport, native.open_channel, {})
        end

        def leave_gone = @known.each_value.select(&:gone?).each { |known| leave(known) }

        def leave(known, prefetch = known && prefetch_of(known.channel))
          return unless known

          @known.delete(known.channel)
          lose(known.number, prefetch)
        end

        def lose(number, prefetch) = native.lose_channel(number, prefetch, Times.monotonic_ms)

        # Returns 0 if the channel has no prefetch.
        def prefetch_of(channel) = channel.prefetch_count.to_i
      end
    end
    private_constant :EarlierCalls
  end
end
