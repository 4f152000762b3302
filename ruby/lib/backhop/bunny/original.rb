# frozen_string_literal: true

module Backhop
  module Bunny
    # A delivery to settle, on the connection that it came by and on no other.
    #
    # After a recovery Bunny's channel is the same object, and the broker counts its delivery tags from 1 again: a tag of
    # before would be another message's. The transport is a new one, and so the frame is written to the transport that the
    # delivery came by, which is closed then.
    # @api private
    class Original
      # The method's number, and its bits: of ack multiple, of nack multiple and requeue, of reject requeue. A quarter of what
      # amq-protocol takes for a frame.
      METHODS = { ack: [80, 0], drop: [80, 0], reject: [120, 0], return: [90, 1],
                  requeue: [120, 2] }.freeze # which RabbitMQ 4.3 does not count
      METHOD_FRAME = 1
      METHOD_BYTES = 13
      BASIC = 60
      FRAME_END = 0xCE
      private_constant :METHODS, :METHOD_FRAME, :METHOD_BYTES, :BASIC, :FRAME_END

      # @return [Integer] its delivery tag
      attr_reader :tag

      # @param is_settled [Boolean] the broker took it as acknowledged when it delivered it
      def initialize(channel, tag, is_stale: false, is_settled: false)
        @channel = channel
        @tag = tag
        @transport = channel.connection.transport
        @is_stale = is_stale
        @is_settled = is_settled
      end

      # Whether it can still be settled; else the broker delivers it again.
      def here?
        !@is_stale && !@channel.closed? && @transport.open? && @transport.equal?(@channel.connection.transport)
      end

      # Whether another one came on the same channel of the same connection, to be settled as this one.
      def beside?(other)
        @channel.equal?(other.channel) && @transport.equal?(other.transport) && @is_settled == other.is_settled
      end

      # Settles it. Whether that could be.
      def settle(action) = write(frame(action))

      # Writes settlements of what came on its channel. Whether that could be.
      def write(frames)
        is_here = @is_settled || here? # looked at last: a closed channel's frame ends the connection
        @transport.write(frames) if is_here && !@is_settled
        is_here
      end

      # What to write, for this or for another delivery of its channel: one frame of class basic.
      def frame(action, tag = @tag)
        method, bits = METHODS.fetch(action)
        [METHOD_FRAME, @channel.id, METHOD_BYTES, BASIC, method, tag, bits, FRAME_END].pack("CnNnnQ>CC")
      end

      protected

      attr_reader :channel, :transport, :is_settled
    end
  end
end
