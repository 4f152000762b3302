# frozen_string_literal: true

module Backhop
  module Bunny
    # Takes the steps of {Declaring} on channels of its own, as each refusal closes one.
    # @api private
    class Declarer
      COMMAND_INVALID = 503 # so RabbitMQ before 4.0 closes the connection for an exchange type that it does not know
      private_constant :COMMAND_INVALID

      # What Bunny raises where the connection is gone.
      LOST = [::Bunny::Exception, ::Timeout::Error, IOError, SystemCallError].freeze

      # How the broker closed a channel.
      def self.refusal(error)
        Declaring::Refusal.new(error.channel_close.reply_code, Outcomes.writable(error.channel_close.reply_text))
      end

      # Yields one, and closes its channel in the end.
      def self.open(connection)
        declarer = new(connection)
        lost_is_raised { yield declarer }
      ensure
        declarer&.close
      end

      # Raises what Bunny raises where the connection is gone.
      def self.lost_is_raised
        yield
      rescue *LOST => e
        raise ConnectionFailedError, "the connection was lost: #{Outcomes.text(e)}"
      end

      # Opens a channel. Of one that the broker has just closed, Bunny frees the number twice, and in between it could be
      # given to the new one.
      def self.channel(connection, closed = nil, threads = 1)
        sleep(0.001) while closed && connection.open? && connection.find_channel(closed.id).equal?(closed)
        connection.create_channel(nil, threads)
      rescue RuntimeError => e # Bunny's for no free number, and for a connection that is not open
        raise ConnectionFailedError, "no channel can be opened: #{Outcomes.text(e)}"
      end

      # Closes a channel, if it is not gone.
      def self.close(channel)
        transport = channel&.connection&.transport
        channel.close if channel && !channel.closed? && channel.connection.open?
        nil
      rescue ::Timeout::Error
        unregister(channel, transport)
      rescue *LOST
        nil
      end

      # Has Bunny forget a channel whose close was not answered: it would close it again with the connection, which the broker
      # answers by 504. Not where the connection was lost meanwhile: there Bunny opens the channel again.
      def self.unregister(channel, transport)
        connection = channel.connection
        return unless connection.open? && connection.transport.equal?(transport)

        connection.unregister_channel(channel) if connection.find_channel(channel.id).equal?(channel)
        nil
      end
      private_class_method :unregister

      # Has Bunny 3 forget an exchange, which it would declare after each recovery.
      def self.forget(connection, exchange)
        connection.topology_registry.delete_recorded_exchange_named(exchange) if connection.respond_to?(:topology_registry)
      end

      def initialize(connection)
        @connection = connection
        @channel = nil
      end

      def to_proc
        method(:take).to_proc
      end

      def close
        Declarer.close(@channel)
      end

      private

      def take(declaration, passive)
        @channel = Declarer.channel(@connection, @channel) unless @channel&.open?
        declare(declaration, passive)
        nil
      rescue ::Bunny::ChannelLevelException => e
        Declarer.refusal(e)
      rescue *LOST
        raise unless declaration.type == "x-delayed-message"

        Declaring::Refusal.new(COMMAND_INVALID, "invalid exchange type, as the connection was closed")
      end

      # Names in binary, as Bunny compares them with the broker's bytes.
      def declare(declaration, passive)
        name = declaration.name.b
        options = { passive: passive, durable: true, arguments: declaration.arguments }
        case [declaration.what, declaration.type]
        in [:exchange, type] then once(:exchange_declare, name, type, options)
        in [:queue, _] then once(:queue_declare, name, options)
        in [:binding, type]
          binding = [declaration.source.b, { routing_key: declaration.routing_key.b }]
          if type == "exchange"
            once(:exchange_bind, binding.first, name, binding.last)
          else
            once(:queue_bind, name, *binding)
          end
        end
      end

      # Bunny 3 would do it again after each recovery, on this channel, which is closed by then.
      def once(method, *arguments)
        unrecorded = :"#{method}_without_recording_topology"
        @channel.public_send(@channel.respond_to?(unrecorded) ? unrecorded : method, *arguments)
      end
    end
  end
end
