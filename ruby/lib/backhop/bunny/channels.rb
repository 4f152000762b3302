# frozen_string_literal: true

module Backhop
  module Bunny
    # Opens and closes Bunny's channels.
    # @api private
    module Channels
      # Exceptions of Bunny that mean a lost connection.
      LOST = [::Bunny::Exception, ::Timeout::Error, IOError, SystemCallError].freeze

      CONSUME_ARGUMENTS = { "x-priority" => 0 }.freeze # a stream refuses them: BH_CONSUME_ARGUMENT of declaring.h

      IS_BUNNY2 = ::Bunny::VERSION.start_with?("2.")
      LOCK = Mutex.new # of extending connections
      MOST_WAIT_MS = 1000
      private_constant :IS_BUNNY2, :LOCK, :MOST_WAIT_MS

      # Extends a channel: a handler may close it while another thread settles a message. Bunny
      # marks the channel as closed after the broker's answer. The broker closes the connection if a
      # settlement follows the close.
      module Closable
        def self.extended(channel)
          channel.backhop_settling = Mutex.new
        end

        attr_writer :backhop_settling

        # Bunny also calls this when it opens the channel again.
        def open
          super.tap { @is_backhop_closing = false }
        end

        def close
          @backhop_settling.synchronize { @is_backhop_closing = true }
          EarlierCalls.closed(self, is_orderly: true)
          super
        end

        # Bunny calls it in the thread that reads the connection, before later deliveries.
        def handle_method(method)
          case method
          when AMQ::Protocol::Channel::Close then EarlierCalls.closed(self)
          when AMQ::Protocol::Basic::Cancel then EarlierCalls.cancelled(self, method.consumer_tag)
          end
          super
        end

        # Returns true as soon as the close begins.
        def backhop_closing? = @is_backhop_closing || closed?

        # Yields. No close begins meanwhile.
        def backhop_settle(&settle) = @backhop_settling.synchronize(&settle)
      end

      # Extends a channel. After a lost connection, Bunny 2 may not open a channel again, because
      # the recovery of another channel failed. The status of the channel is "open" all the same.
      module Opened
        include Closable

        def self.extended(channel) = Closable.extended(channel)

        attr_writer :opened_on

        # Bunny also calls this when it opens the channel again.
        def open
          super.tap do
            @opened_on = connection.transport
            @is_doubtful = false
          end
        end

        # Bunny also calls this when it has opened the channel again, with a new pool that has
        # Bunny's own limit: see {Channels.open}.
        def basic_consume_with(consumer)
          work_pool.instance_variable_set(:@shutdown_timeout, nil)
          transport = connection.transport
          @is_asking = true
          super.tap { @consumed_on = transport }
        rescue ::Timeout::Error
          @is_doubtful = true
          raise
        ensure
          @is_asking = false
        end

        # Returns true while a consumer waits for the broker's answer.
        def asking? = @is_asking ? true : false

        # Returns true if the broker has not answered a consumer in time. Bunny would take a late
        # answer for the answer to the next request.
        def doubtful? = @is_doubtful ? true : false

        # Returns true if the broker has confirmed a consumer on the current transport.
        def consumed? = here? && @consumed_on.equal?(@opened_on)

        # Marks a channel that another one replaces. No handler acknowledges a message on it from
        # now on: RabbitMQ 4.3 cancels a consumer that held a message too long, and ignores its
        # acknowledgement. After a lost connection, Bunny does not restore its consumer.
        def retire
          @is_retired = true
          tags = consumers.keys
          tags.each do |tag|
            unregister_consumer(tag)
            delete_recorded_consumer(tag) if respond_to?(:delete_recorded_consumer) # Bunny 3
          end
        end

        def retired? = @is_retired ? true : false

        # Notes that the broker got a settlement.
        def settled!
          @is_settled = true
        end

        # Returns whether it got one since the last call.
        def take_settled = @is_settled.tap { @is_settled = false }

        # Notes that the copies of the messages of a retired channel are confirmed.
        def release
          @is_released = true
        end

        def released? = @is_released ? true : false

        # Returns true if the channel is open on the current transport.
        def here? = !backhop_closing? && @opened_on.equal?(connection.transport)
      end

      # Extends a connection.
      module Guarded
        def self.extended(connection)
          connection.backhop_lock = Monitor.new
        end

        # Held while a channel is opened or closed. Bunny frees the number of a closed channel
        # several times: another thread must not get it in between.
        attr_accessor :backhop_lock

        # Ends the connection of a recovery that failed. Bunny closes its socket, but a thread waits
        # for the same socket. So the system keeps the connection open for two minutes, and the
        # broker keeps the messages that it sent there.
        def initialize_transport
          @reader_loop&.stop
          Channels.shut(@transport)
          super
        end

        # Notes that Bunny 2 opens the channels again. After a time-out it connects once more, and
        # does so again.
        def recover_channels
          @is_backhop_restoring = true
          super
        rescue ::Timeout::Error
          is_repeated = true
          raise
        ensure
          @is_backhop_restoring = is_repeated
        end

        def backhop_restoring? = @is_backhop_restoring ? true : false

        # Lets Bunny's own thread handle the broker's close of a channel without Bunny's lock of
        # channels. A thread that opens or closes another channel has this lock, and waits for
        # Bunny's own thread.
        def handle_frame(number, method)
          return super unless method.is_a?(AMQ::Protocol::Channel::Close)

          channel = find_channel(number)
          return unless channel # closed by both sides

          begin
            channel.handle_method(method)
          rescue ::Bunny::ConnectionClosedError
            nil # the connection is lost, and Bunny finds that at the next frame
          end
          Thread.new { forget(channel) }
        end

        # Ignores a delivery that the broker sent after it closed the channel. Bunny 2's thread
        # would end.
        def handle_frameset(number, frames)
          super if find_channel(number)
        end

        private

        # Unregisters the channels that the broker closed during the recovery. Bunny 3 marks all
        # channels that are registered as open.
        def mark_channels_after_recovery!
          @channel_mutex.synchronize do
            @channels.values.select(&:closed?).each { |channel| unregister_channel(channel) }
            super
          end
        end

        # Another channel may have the number by now.
        def forget(channel)
          @channel_mutex.synchronize { unregister_channel(channel) if find_channel(channel.id).equal?(channel) }
        end
      end
      private_constant :Guarded

      class << self
        # Extends a connection of Bunny, once. Returns it.
        def guard(connection)
          LOCK.synchronize { connection.is_a?(Guarded) ? connection : connection.extend(Guarded) }
        end

        # Yields. Raises ConnectionFailedError instead of Bunny's exceptions for a lost connection.
        def raising_lost
          yield
        rescue *LOST => e
          raise lost(e)
        end

        # Returns the error for a lost connection.
        def lost(exception) = ConnectionFailedError.new("the connection was lost: #{Outcomes.text(exception)}")

        # Returns why the broker closed a channel.
        def refusal(error)
          Declaring::Refusal.new(error.channel_close.reply_code, Text.utf8(error.channel_close.reply_text))
        end

        # Returns Backhop's error if the broker closed the channel of a new consumer.
        def consumer_refused(topology, exception)
          Declaring.new(topology).diagnosis(:consumer, *refusal(exception))
        end

        # Opens a channel. Raises ConnectionFailedError if that is not possible.
        #
        # First it waits until channels that the broker closed are unregistered. After a time-out it
        # gives up the connection, as Bunny would take a late answer for the answer to the next
        # opening.
        #
        # Bunny does not wait for the threads of the channel's pool when its consumer is cancelled
        # or its connection is closed. It would wait up to 60 s for a handler that never ends, and
        # Bunny 2 sometimes for an idle thread too.
        def open(connection, threads = 1)
          guard(connection).backhop_lock.synchronize do
            wait_for_closing(connection)
            transport = connection.transport
            channel = connection.create_channel(nil, threads, false, nil).extend(Opened)
            channel.opened_on = transport
            channel
          rescue ::Timeout::Error
            shut(transport) unless connection.blocked? # the broker does not answer while it blocks the connection
            raise
          end
        rescue RuntimeError => e # of Bunny: no free number, no answer, or the connection is not open
          raise ConnectionFailedError, "no channel can be opened: #{Outcomes.text(e)}"
        end

        # Returns true if Bunny makes the connection again, and has not opened its channels yet.
        # Bunny 3 goes on to return true while it calls the application's callbacks.
        def recovering?(connection)
          connection.status != :open ||
            (IS_BUNNY2 && (connection.recovering_from_network_failure? || restoring?(connection)))
        end

        # Ends a connection. Bunny's thread that reads it finds that at once, which it does not if
        # its socket is closed.
        def shut(transport)
          transport&.socket&.to_io&.shutdown
        rescue IOError, SystemCallError
          nil
        end

        # Returns true if the channel is closed, or if a close has begun.
        def closing?(channel) = channel.is_a?(Closable) ? channel.backhop_closing? : channel.closed?

        # Yields. No close of the channel begins meanwhile.
        def settling(channel, &settle)
          channel.is_a?(Closable) ? channel.backhop_settle(&settle) : yield
        end

        # Closes a channel that is open. Ignores a lost connection.
        def close(channel)
          transport = channel&.connection&.transport
          return unless channel && !closing?(channel) && channel.connection.open?

          guard(channel.connection).backhop_lock.synchronize do
            channel.connection.synchronised_find_channel(channel.id) # waits while Bunny opens its channels again
            channel.here? ? channel.close : unregister(channel, transport)
          end
          nil
        rescue ::Timeout::Error
          unregister(channel, transport)
        rescue *LOST
          nil
        end

        # Makes Bunny 3 forget an exchange. Otherwise Bunny declares it after each recovery.
        def forget(connection, exchange)
          return unless connection.respond_to?(:topology_registry)

          connection.topology_registry.delete_recorded_exchange_named(exchange)
        end

        private

        def restoring?(connection) = connection.is_a?(Guarded) && connection.backhop_restoring?

        # Waits until Bunny's thread has unregistered the channels that the broker closed, for a
        # second at most.
        def wait_for_closing(connection)
          end_ms = Times.monotonic_ms + MOST_WAIT_MS
          channels = connection.instance_variable_get(:@channels)
          sleep(0.001) while connection.open? && channels.values.any?(&:closed?) && Times.monotonic_ms < end_ms
        end

        # Makes Bunny forget a channel that is not open, or whose close was not answered. Otherwise
        # Bunny closes it with the connection, and the broker answers 504. On a new transport Bunny
        # opens the channel again, so it stays registered.
        def unregister(channel, transport)
          connection = channel.connection
          return unless connection.open? && connection.transport.equal?(transport)

          connection.unregister_channel(channel) if connection.find_channel(channel.id).equal?(channel)
          nil
        end
      end
    end
  end
end
