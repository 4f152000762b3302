# frozen_string_literal: true

module Backhop
  module Bunny
    # Makes a Bunny::Channel tell what the broker answers as it comes, in the thread that reads the connection.
    #
    # Bunny's own way does not serve: it counts a publish that it then cannot encode, so that all confirms after it are
    # another's; it drops confirms of several at once after a recovery; it tells nobody that the broker closed a channel;
    # and it drops what is returned of an exchange that it did not declare.
    # @api private
    module Confirms
      # @return [#heard] who is told
      attr_accessor :backhop_listener

      def handle_ack_or_nack(tag, multiple, nack)
        backhop_listener.heard(:confirmed, self, tag, multiple, nack)
      end

      def handle_basic_return(basic_return, properties, _content)
        id = (properties[:headers] || {})["backhop-id"]
        backhop_listener.heard(:returned, self, basic_return.exchange.b, basic_return.routing_key.b, id.to_s.b)
      end

      def handle_method(method)
        super
      ensure
        if method.is_a?(AMQ::Protocol::Channel::Close)
          backhop_listener.heard(:closed, self, "#{method.reply_code} #{Outcomes.writable(method.reply_text)}")
        end
      end

      # After Bunny connected again, and opened it again.
      def recover_from_network_failure
        release_all_continuations
        confirm_select
        increment_recoveries_counter
        backhop_listener.heard(:recovered, self, connection.transport)
      end
    end
  end
end
