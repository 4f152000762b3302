# frozen_string_literal: true

module Backhop
  module Bunny
    # A channel that publishes with confirms. It is not used again after its connection was lost.
    #
    # It notifies a listener, in the thread that reads the connection:
    #
    #     :confirmed, self, number of the publish (from 1), whether it was nacked
    #     :returned, self, exchange, routing key, header backhop-id, reply code and text
    #
    # After a recovery Bunny opens the channel again and goes on counting, so that confirms would be
    # for other publishes. The publisher opens a new channel instead. A publish that Bunny counted
    # but could not encode does the same harm.
    # @api private
    class ConfirmChannel
      # Bunny reports why a channel was closed only as text, which begins with the name of the reply
      # code.
      REPLY_CODES = { "ACCESS_REFUSED" => 403, "NOT_FOUND" => 404 }.freeze
      PRECONDITION_FAILED = 406

      # Extends Bunny's Set of unconfirmed publish numbers, so that `min` does not iterate over it.
      # Bunny calls `min` for each confirm with multiple, up to 2.19 without its lock, and a Set
      # cannot be changed during an iteration.
      module Unconfirmed
        def add(number)
          @lowest ||= number
          super
          @next = number + 1 # set last: min must not skip a number that is not in the Set yet
          self
        end

        # Returns the lowest number; the next one if the Set is empty.
        def min
          @lowest += 1 until @lowest == @next || include?(@lowest)
          @lowest
        end
      end
      private_constant :REPLY_CODES, :PRECONDITION_FAILED, :Unconfirmed

      # @return [Integer] the publisher's number in the ledger
      attr_reader :number

      # Opens the channel. Raises Bunny's exceptions.
      #
      # @param listener [#notify]
      # @yieldreturn [Integer] the publisher's number in the ledger, called once the channel is open
      def initialize(connection, topology, listener)
        @connection = connection
        @topology = topology
        @listener = listener
        @channel = Channels.open(connection)
        @exchanges = {}
        @reason = nil
        start
        @number = yield
      end

      # Returns true if the broker closed the channel and the reason is known. Bunny unregisters the
      # channel last.
      def closed? = @channel.closed? && !@connection.find_channel(@channel.id).equal?(@channel)

      # Publishes a copy. Raises a Bunny::Exception before anything is written, or another exception
      # if the copy cannot be encoded.
      def publish(copy)
        listen(copy.exchange)
        copy.publish(@channel)
      end

      # Returns the broker's reply code for the closed channel; 0 if the broker did not close it.
      # Codes without a meaning of their own are returned as 406.
      def reply_code = reason.empty? ? 0 : REPLY_CODES.fetch(reason[/\A(?:\d+ )?([A-Z_]+)/, 1], PRECONDITION_FAILED)

      # Returns the broker's text for why it closed the channel; "" if it did not.
      def reason
        @reason ||= begin
          @channel.close
          ""
        rescue ::Bunny::ChannelAlreadyClosed => e
          Text.utf8(e.message)[/closed due to a server-reported channel error: (.*)\z/m, 1] || ""
        end
      end

      # Closes the channel, if it is open.
      def close = Channels.close(@channel)

      protected

      attr_reader :channel

      private

      def start
        @channel.on_error { |_, close| @reason = "#{close.reply_code} #{Text.utf8(close.reply_text)}" }
        @channel.confirm_select(->(number, _multiple, is_nack) { @listener.notify(:confirmed, self, number, is_nack) })
        @channel.unconfirmed_set.extend(Unconfirmed)
      rescue StandardError
        close
        raise
      end

      # Registers for returns of an exchange. Bunny reports them only for an exchange object of the
      # channel.
      def listen(name)
        @exchanges[name] ||= exchange(name).tap do |exchange|
          exchange.on_return do |info, properties, _body|
            id = (properties.headers || {})["backhop-id"].to_s.b
            @listener.notify(
              :returned, self, info.exchange.b, info.routing_key.b, id, "#{info.reply_code} #{info.reply_text}"
            )
          end
        end
      end

      def exchange(name)
        declared = @topology.declarations.find { |each| each.what == :exchange && each.name.b == name }
        ::Bunny::Exchange.new(@channel, declared&.type || :direct, name,
                              no_declare: true, durable: true, arguments: declared&.arguments || {})
      ensure
        Channels.forget(@connection, name)
      end
    end
  end
end
