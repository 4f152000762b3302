# frozen_string_literal: true

module Backhop
  module Bunny
    # A channel that publishes, with confirms: Bunny's public way, on a channel that is left where its connection was lost.
    #
    # A listener is told (heard), in the thread that reads the connection:
    #
    #     :confirmed, self, number of the publish from 1 on, whether it was nacked
    #     :returned, self, exchange, routing key, header backhop-id, reply code and text
    #
    # After a recovery Bunny opens its channel again, and would count on. Confirms of that time are nobody's: a new one is
    # made, as an offset and a publish that Bunny counted and could not encode cannot shift the numbers of its confirms.
    # @api private
    class Confirming
      # Bunny tells why a channel was closed by the text alone, which begins with the reply code's name.
      REPLY_CODES = { "ACCESS_REFUSED" => 403, "NOT_FOUND" => 404 }.freeze
      PRECONDITION_FAILED = 406

      # The numbers of publishes that are not confirmed: a Set, which finds its lowest without going through the others. Bunny
      # asks for that at each confirm of several; up to 2.19 without its lock, and Ruby takes no number while it goes through.
      module Unconfirmed
        def add(number)
          @lowest ||= number
          super
          @next = number + 1 # last: what is not yet in the set is not to be passed over
          self
        end

        # The next number where there is none.
        def min
          @lowest += 1 until @lowest == @next || include?(@lowest)
          @lowest
        end
      end
      private_constant :REPLY_CODES, :PRECONDITION_FAILED, :Unconfirmed

      # @return [Integer] its number in the ledger
      attr_reader :number

      # Opens it. Raises what Bunny raises.
      #
      # @param closed [Confirming, nil] the one before, which the broker closed
      # @yieldreturn [Integer] its number in the ledger, once it is open
      def initialize(connection, topology, listener, closed = nil)
        @connection = connection
        @topology = topology
        @listener = listener
        @channel = Declarer.channel(connection, closed&.channel)
        @exchanges = {}
        @reason = nil
        start
        @number = yield
      end

      # Whether the broker closed it, and its reason is known: Bunny forgets the channel last.
      def closed? = @channel.closed? && !@connection.find_channel(@channel.id).equal?(@channel)

      # Publishes. A Bunny::Exception is raised before anything is written, and what else is raised tells that it cannot be
      # encoded.
      def publish(copy)
        listen(copy.exchange)
        copy.publish(@channel)
      end

      # The reply code by which the broker closed it: of those that mean nothing of their own, any; 0 where it did not.
      def reply_code = reason.empty? ? 0 : REPLY_CODES.fetch(reason[/\A(?:\d+ )?([A-Z_]+)/, 1], PRECONDITION_FAILED)

      # Why the broker closed it, in its words; "" where it did not.
      def reason
        @reason ||= begin
          @channel.close
          ""
        rescue ::Bunny::ChannelAlreadyClosed => e
          Outcomes.writable(e.message)[/closed due to a server-reported channel error: (.*)\z/m, 1] || ""
        end
      end

      # Closes it, if it is not gone.
      def close = Declarer.close(@channel)

      protected

      attr_reader :channel

      private

      def start
        @channel.on_error { |_, close| @reason = "#{close.reply_code} #{Outcomes.writable(close.reply_text)}" }
        @channel.confirm_select(->(number, _multiple, is_nack) { @listener.heard(:confirmed, self, number, is_nack) })
        @channel.unconfirmed_set.extend(Unconfirmed)
      rescue StandardError
        close
        raise
      end

      # Bunny tells what is returned of an exchange that the channel knows.
      def listen(name)
        @exchanges[name] ||= known(name).tap do |exchange|
          exchange.on_return do |info, properties, _body|
            id = (properties.headers || {})["backhop-id"].to_s.b
            @listener.heard(:returned, self, info.exchange.b, info.routing_key.b, id, "#{info.reply_code} #{info.reply_text}")
          end
        end
      end

      def known(name)
        declared = @topology.declarations.find { |each| each.what == :exchange && each.name.b == name }
        ::Bunny::Exchange.new(@channel, declared&.type || :direct, name,
                              no_declare: true, durable: true, arguments: declared&.arguments || {})
      ensure
        Declarer.forget(@connection, name)
      end
    end
  end
end
