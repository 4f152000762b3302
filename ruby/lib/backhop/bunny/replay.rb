# frozen_string_literal: true

module Backhop
  module Bunny
    # Replays messages: reads them with basic.get on a channel of its own and publishes a copy of
    # each. It reads the parked queue first, and then the work queue's own messages in the
    # unroutable queue.
    # @api private
    class Replay
      def initialize(retrier, connection, limit)
        @retrier = retrier
        @connection = connection
        @limit = limit || Float::INFINITY
        @results = Queue.new # nil, or the error of a publish
        @in_flight = 0
        @count = @foreign = 0
        @error = nil # the first one
        @is_over = false # no further message is read
      end

      # Returns the number of replayed messages, and the first error or nil.
      def call
        Channels.raising_lost { run }
        [@count, @error]
      rescue Error => e
        [@count, @error || e]
      end

      # Replays from the unroutable queue alone. Returns the number of replayed messages, and of
      # messages of other work queues, which stay.
      def call_unroutable
        Channels.raising_lost do
          channel = Channels.open(@connection)
          replay_unroutable(channel)
        ensure
          Channels.close(channel)
        end
        [@count, @foreign]
      rescue Error
        [@count, @foreign] # the next look tries again
      end

      private

      def run
        channel = Channels.open(@connection)
        replay(channel, @retrier.topology.parked_queue, is_shared: false)
        replay_unroutable(channel) unless @is_over
      ensure
        Channels.close(channel)
      end

      def replay_unroutable(channel)
        queue = @retrier.topology.unroutable_queue
        replay(channel, queue, is_shared: true) if queue
      rescue Error => e
        raise if Native.bh_replay_goes_on(e.status, 1).zero?
      end

      def replay(channel, queue, is_shared:)
        channel.queue_declare(queue.b, passive: true) # Bunny's basic_get blocks if the queue does not exist
        seen = 0
        total = 1
        while seen < total && !@is_over && @count + @in_flight < @limit && (behind = take(channel, queue.b, is_shared))
          total = Native.bh_replay_limit(behind, is_shared ? 1 : 0) if seen.zero?
          seen += 1
          await until @results.empty?
        end
        await until @in_flight.zero?
      rescue ::Bunny::ChannelLevelException => e
        refusal = Channels.refusal(e)
        raise(Declaring.new(@retrier.topology).diagnosis(:replay, *refusal, of: queue))
      end

      # Takes one message. Returns the number of messages behind it, or nil if the queue is empty.
      def take(channel, queue, is_shared)
        got, properties, payload = channel.basic_get(queue, manual_ack: true)
        return unless got

        info = ::Bunny::GetResponse.new(got, channel)
        message = @retrier.message_of(info, ::Bunny::MessageProperties.new(properties), payload)
        is_shared && !own?(message) ? @foreign += 1 : publish(message)
        got.message_count
      end

      # Returns true if the message is from this work queue. A message that cannot be read is not.
      def own?(message)
        @retrier.topology.owns?(message.history.delivery)
      rescue *Outcomes::FAILURES
        false
      end

      # Publishes the copy. If that fails, the message is in its queue again after the channel is
      # closed.
      def publish(message)
        @retrier.replay_copy(message) { |error| @results << error }
        @in_flight += 1
      rescue Error => e
        failed(e)
      rescue *Outcomes::FAILURES => e
        failed(Event.replay_error(ContentError, Outcomes.text(e)))
      end

      def await
        error = @results.pop
        @in_flight -= 1
        error ? failed(error) : @count += 1
      end

      def failed(error)
        @error ||= error
        @is_over = true if Native.bh_replay_goes_on(error.status, 0).zero?
      end
    end
  end
end
