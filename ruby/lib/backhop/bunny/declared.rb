# frozen_string_literal: true

module Backhop
  module Bunny
    # What is known to be declared on a connection: its retriers share it, so that a further one of a namespace declares its
    # own part alone.
    # @api private
    class Declared
      @all = ObjectSpace::WeakMap.new # by connection, as long as a retrier has it
      @lock = Mutex.new

      def self.of(connection) = @lock.synchronize { @all[connection] ||= new(connection) }

      def initialize(connection)
        @connection = connection
        @native = Core.made(Native.bh_declared_new)
        @lock = Mutex.new
        @transport = nil # on which it was declared
        @doubts = @forgotten = 0
      end

      # Something of it may be gone. From any thread, also while another one declares.
      def forget
        @doubts += 1
      end

      # Yields what the core knows, to one thread at a time.
      def synchronize
        @lock.synchronize do
          transport = @connection.transport
          doubts = @doubts
          @native.forget unless doubts == @forgotten && transport.equal?(@transport)
          @forgotten = doubts
          @transport = transport
          yield @native
        end
      end
    end
  end
end
