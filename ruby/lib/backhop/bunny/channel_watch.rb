# frozen_string_literal: true

module Backhop
  module Bunny
    # Logs advice if the broker closes a channel because a delivery was settled twice. Notes when
    # the application begins to close a channel.
    # @api private
    class ChannelWatch
      def initialize(topology)
        @topology = topology
        @watched = ObjectSpace::WeakMap.new
        @lock = Mutex.new
      end

      # Watches a channel from now on. The application's on_error is still called.
      def watch(channel)
        @lock.synchronize do
          next if @watched.key?(channel)

          @watched[channel] = true
          channel.extend(Channels::Closable) unless channel.is_a?(Channels::Closable)
          before = channel.instance_variable_get(:@on_error)
          channel.on_error do |closed, close|
            advise(close)
            before&.call(closed, close)
          end
        end
      end

      private

      def advise(close)
        advice = Declaring.new(@topology).diagnosis(:settling, close.reply_code, Text.utf8(close.reply_text),
                                                    of: "manual_ack: true")
        Backhop.log(Logger::WARN) { advice.message } if advice
      end
    end
    private_constant :ChannelWatch
  end
end
