# frozen_string_literal: true

module Backhop
  module Bunny
    # Executes the steps of {Declaring}, on channels of its own: each refusal closes one.
    # @api private
    class Declarer
      COMMAND_INVALID = 503 # RabbitMQ before 4.0 closes the connection for an unknown exchange type
      private_constant :COMMAND_INVALID

      # Yields a declarer, and closes its channel at the end.
      def self.open(connection)
        declarer = new(connection)
        Channels.raising_lost { yield declarer }
      ensure
        declarer&.close
      end

      def initialize(connection)
        @connection = connection
        @channel = nil
      end

      def to_proc
        method(:execute).to_proc
      end

      def close
        Channels.close(@channel)
      end

      private

      # Executes one step. Returns nil, or the broker's refusal.
      def execute(declaration, action)
        @channel = Channels.open(@connection) unless @channel&.open?
        declare(declaration, action)
        nil
      rescue ::Bunny::ChannelLevelException => e
        Channels.refusal(e)
      rescue *Channels::LOST
        raise unless declaration.type == "x-delayed-message"

        Declaring::Refusal.new(COMMAND_INVALID, "invalid exchange type, as the connection was closed")
      end

      # Passes names in binary, since Bunny compares them with the broker's bytes.
      def declare(declaration, action)
        name = declaration.name.b
        options = { passive: action == :find, durable: true, arguments: declaration.arguments }
        case [declaration.what, declaration.type]
        in [:exchange, type] then unrecorded(:exchange_declare, name, type, options)
        in [:queue, _] then unrecorded(:queue_declare, name, options)
        in [:binding, type]
          binding = [declaration.source.b, { routing_key: declaration.routing_key.b }]
          if type == "exchange"
            unrecorded(:exchange_bind, binding.first, name, binding.last)
          else
            unrecorded(action == :unbind ? :queue_unbind : :queue_bind, name, *binding)
          end
        end
      end

      # Calls a method of the channel without recording it. Bunny 3 repeats recorded calls after
      # each recovery, on this channel, which is closed by then.
      def unrecorded(method, *arguments)
        other = :"#{method}_without_recording_topology"
        @channel.public_send(@channel.respond_to?(other) ? other : method, *arguments)
      end
    end

    # Remembers the declarations of a connection. The retriers of a connection share it: another
    # retrier of the same namespace declares only its own part.
    # @api private
    class Declared
      @all = ObjectSpace::WeakMap.new # by connection, as long as a retrier holds the entry
      @lock = Mutex.new

      def self.of(connection) = @lock.synchronize { @all[connection] ||= new(connection) }

      def initialize(connection)
        @connection = connection
        @native = Core.made(Native.bh_declared_new)
        @lock = Mutex.new
        @transport = nil # the transport on which it was declared
        @doubts = @forgotten = 0
      end

      # Forgets everything before the next use: a part may have been deleted. Call it from any
      # thread, also during a declaration.
      def forget
        @doubts += 1
      end

      # Yields the core's record, to one thread at a time.
      def synchronize
        @lock.synchronize do
          transport = @connection.transport
          doubts = @doubts
          @native.clear unless doubts == @forgotten && transport.equal?(@transport)
          @forgotten = doubts
          @transport = transport
          yield @native
        end
      end
    end
  end
end
