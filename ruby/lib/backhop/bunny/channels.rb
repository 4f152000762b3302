# frozen_string_literal: true

module Backhop
  module Bunny
    # Opens and closes Bunny's channels.
    # @api private
    module Channels
      # Exceptions of Bunny that mean a lost connection.
      LOST = [::Bunny::Exception, ::Timeout::Error, IOError, SystemCallError].freeze

      class << self
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

        # Opens a channel. Raises ConnectionFailedError if that is not possible.
        #
        # @param closed [::Bunny::Channel, nil] a channel that the broker has just closed. Bunny
        #   frees its number twice: a new channel must not get the number in between
        def open(connection, closed = nil, threads = 1)
          sleep(0.001) while closed && connection.open? && connection.find_channel(closed.id).equal?(closed)
          connection.create_channel(nil, threads)
        rescue RuntimeError => e # of Bunny: no free number, or the connection is not open
          raise ConnectionFailedError, "no channel can be opened: #{Outcomes.text(e)}"
        end

        # Closes a channel that is open. Ignores a lost connection.
        def close(channel)
          transport = channel&.connection&.transport
          channel.close if channel && !channel.closed? && channel.connection.open?
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

        # Makes Bunny forget a channel whose close was not answered. Otherwise Bunny closes it again
        # with the connection, and the broker answers 504. On a new transport Bunny opens the
        # channel again, so it stays registered.
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
