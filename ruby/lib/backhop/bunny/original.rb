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
      # Settles many in one write; where a channel is gone, the broker delivers its messages again.
      def self.acknowledge(originals)
        originals.reject(&:settled?).group_by(&:transport).each do |transport, group|
          frames = group.map { |original| original.frame(:ack) }
          here = group.zip(frames).filter_map { |original, frame| original.here? ? frame : original.tell_gone }
          transport.write(here.join) unless here.empty?
        end
      end

      attr_reader :transport

      # @param is_settled [Boolean] the broker took it as acknowledged when it delivered it
      def initialize(channel, tag, is_stale: false, is_settled: false)
        @channel = channel
        @tag = tag
        @transport = channel.connection.transport
        @is_stale = is_stale
        @is_settled = is_settled
      end

      # Whether there is nothing to say to the broker.
      def settled? = @is_settled

      # Whether it can still be settled.
      def here?
        !@is_stale && !@channel.closed? && @transport.open? && @transport.equal?(@channel.connection.transport)
      end

      # Settles it; where its channel is gone, the broker delivers it again.
      def settle(action)
        return if @is_settled

        encoded = frame(action)
        here? ? @transport.write(encoded) : tell_gone # looked at last: a closed channel's frame ends the connection
      end

      # What to write.
      def frame(action)
        basic = AMQ::Protocol::Basic
        case action
        when :ack, :drop then basic::Ack.encode(@channel.id, @tag, false)
        when :reject then basic::Nack.encode(@channel.id, @tag, false, false)
        when :requeue then basic::Nack.encode(@channel.id, @tag, false, true) # which RabbitMQ 4.3 does not count
        when :return then basic::Reject.encode(@channel.id, @tag, true)
        end.encode
      end

      # Logs that it cannot be settled.
      def tell_gone
        Backhop.log(:info) { "delivery #{@tag} is not settled: its channel is gone, and the broker delivers it again" }
        nil
      end
    end
  end
end
