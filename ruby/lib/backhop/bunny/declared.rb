# frozen_string_literal: true

module Backhop
  module Bunny
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
