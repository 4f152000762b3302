# frozen_string_literal: true

module Backhop
  module Bunny
    # Gets parked messages one by one, on a channel of its own, and has their copies published.
    # @api private
    class Replay
      def initialize(retrier, connection, limit)
        @retrier = retrier
        @connection = connection
        @limit = limit
        @ends = Queue.new # nil, or the error with which a publish ended
        @open = 0
        @count = 0
        @error = nil # the first; what is in flight then goes on
      end

      # Gives how many went, and the error that ended it, if one did.
      def call
        Declarer.lost_is_raised { run }
        [@count, @error]
      rescue Error => e
        [@count, @error || e]
      end

      private

      def run
        channel = Declarer.channel(@connection)
        name = @retrier.topology.parked_queue.b
        channel.queue_declare(name, passive: true) # for a queue that is missing Bunny's basic_get waits
        seen = 0
        most = @limit || Float::INFINITY
        while seen < most && (left = publish(channel, name))
          # Not by the declare's count: of a quorum queue a busy broker answers 0.
          most = [most, left + 1].min if seen.zero?
          seen += 1
          hear until @ends.empty?
          break if @error
        end
        hear until @open.zero?
      rescue ::Bunny::NotFound => e
        raise MissingError, e.message
      ensure
        Declarer.close(channel)
      end

      # How many messages are behind the one that it takes; nil where none is there, or no copy can be made of it.
      def publish(channel, name)
        got, properties, payload = channel.basic_get(name, manual_ack: true)
        return unless got

        info = ::Bunny::GetResponse.new(got, channel)
        message = @retrier.read(info, ::Bunny::MessageProperties.new(properties), payload)
        @retrier.replay_copy(message) { |error| @ends << error }
        @open += 1
        got.message_count
      rescue Error, *Declarer::LOST => e
        @error ||= e
        nil
      rescue *Outcomes::FAILURES => e
        @error ||= PublishError.new("a message can be neither read nor copied: #{Outcomes.text(e)}")
        nil
      end

      def hear
        error = @ends.pop
        @open -= 1
        @error ||= error
        @count += 1 unless error
      end
    end
  end
end
