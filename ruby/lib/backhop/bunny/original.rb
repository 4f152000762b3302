# frozen_string_literal: true

module Backhop
  module Bunny
    # A delivery to settle, on its own connection and on no other.
    #
    # After a recovery Bunny's channel is the same object, but the broker counts its delivery tags
    # from 1 again. An old tag would settle another message. The transport is a new object. So the
    # frame is written to the delivery's own transport, which is closed after a recovery.
    # @api private
    class Original
      # By action: the method's number, and its bits (ack: multiple; nack: multiple, requeue;
      # reject: requeue). Writing the frame here takes a quarter of the time that amq-protocol
      # takes. RabbitMQ 4.3 does not count a :requeue, but a :return.
      METHODS = { ack: [80, 0], drop: [80, 0], reject: [120, 0], return: [90, 1], requeue: [120, 2] }.freeze
      METHOD_FRAME = 1
      METHOD_BYTES = 13
      BASIC = 60
      FRAME_END = 0xCE
      # How a settlement ends the call of the handler.
      ENDS = { ack: Native::BH_ACTION_ACK, drop: Native::BH_ACTION_DROP, reject: Native::BH_ACTION_REJECT,
               return: Native::BH_ACTION_RETURN, requeue: Native::BH_ACTION_NONE }.freeze
      private_constant :ENDS, :METHODS, :METHOD_FRAME, :METHOD_BYTES, :BASIC, :FRAME_END

      # @return [Integer] the delivery tag
      attr_reader :tag
      # @return [::Bunny::Channel]
      attr_reader :channel
      # @return [::Bunny::Transport]
      attr_reader :transport
      # @return [Integer, nil] the call of its handler, until that has ended; see {EarlierCalls}
      attr_accessor :call

      # @param is_stale [Boolean] it arrived before a recovery
      # @param is_settled [Boolean] the broker acknowledged it at the delivery (no_ack)
      def initialize(channel, tag, is_stale: false, is_settled: false)
        @channel = channel
        @tag = tag
        @transport = channel.connection.transport
        @is_stale = is_stale
        @is_settled = is_settled
      end

      # Returns true if it can still be settled. Otherwise the broker delivers the message again.
      def here?
        !@is_stale && !Channels.closing?(@channel) && @transport.open? &&
          @transport.equal?(@channel.connection.transport)
      end

      # Returns true if another delivery arrived on the same channel of the same transport.
      def beside?(other)
        @channel.equal?(other.channel) && @transport.equal?(other.transport) && @is_settled == other.settled?
      end

      # Returns true if another channel replaces the delivery's; see {Channels::Opened#retire}.
      def retired? = @channel.respond_to?(:retired?) && @channel.retired?

      # Returns true if it arrived on this channel.
      def on?(channel) = @channel.equal?(channel)

      # Returns true if the broker acknowledged it at the delivery.
      def settled? = @is_settled

      # Returns true if the broker delivers the message again to another channel.
      def gone? = !@is_settled && !here?

      # Settles it. Returns false if that is no longer possible.
      def settle(action)
        is_written = !retired? && write(frame(action))
        note_settled if is_written && action != :requeue
        EarlierCalls.ended(self, ENDS.fetch(action))
        is_written
      end

      # Notes that the broker got a settlement of its channel.
      def note_settled = @channel.respond_to?(:settled!) && @channel.settled!

      # Writes settlements of its channel. Returns false if that is no longer possible.
      def write(frames)
        return true if @is_settled

        Channels.settling(@channel) do # a frame of a closed channel makes the broker close the connection
          is_here = here?
          @transport.write(frames) if is_here
          is_here
        end
      end

      # Returns the frame that settles this delivery, or another one of its channel: one method
      # frame of class basic.
      def frame(action, tag = @tag)
        method, bits = METHODS.fetch(action)
        [METHOD_FRAME, @channel.id, METHOD_BYTES, BASIC, method, tag, bits, FRAME_END].pack("CnNnnQ>CC")
      end
    end
  end
end
