# frozen_string_literal: true

module Backhop
  module Bunny
    # Gets messages one by one, on a channel of its own, and has their copies published: those that are parked, and then those
    # of the work queue that came back while it was gone.
    # @api private
    class Replay
      MOST_LOOKED = 10_000 # of a queue that others share: each message of theirs is held until the end
      REFUSALS = [FrameError, ContentError, ChannelClosedError].freeze # of a message for what it is: those behind it go
      private_constant :MOST_LOOKED, :REFUSALS

      def initialize(retrier, connection, limit)
        @retrier = retrier
        @connection = connection
        @limit = limit || Float::INFINITY
        @ends = Queue.new # nil, or the error with which a publish ended
        @open = 0
        @count = 0
        @error = nil # the first
        @is_over = false # what is in flight then goes on
      end

      # Gives how many went, and the error that kept some from it, if one did.
      def call
        Declarer.lost_is_raised { run }
        [@count, @error]
      rescue Error => e
        [@count, @error || e]
      end

      private

      def run
        channel = Declarer.channel(@connection)
        replay(channel, @retrier.topology.parked_queue)
        replay_unroutable(channel) unless @is_over
      ensure
        Declarer.close(channel)
      end

      # The unroutable queue is everybody's: who may not read it, or has not declared it, replays what is parked all the same.
      def replay_unroutable(channel)
        queue = @retrier.topology.unroutable_queue
        replay(channel, queue, MOST_LOOKED) { |message| own?(message) } if queue
      rescue MissingError, AccessError
        nil
      end

      # A message that cannot be read is nobody's.
      def own?(message)
        @retrier.topology.owns?(message.history.delivery)
      rescue *Outcomes::FAILURES
        false
      end

      # With a block, of those alone for which it is true. What comes into the queue meanwhile is not for this replay.
      def replay(channel, queue, most = Float::INFINITY, &own)
        channel.queue_declare(queue.b, passive: true) # for a queue that is missing Bunny's basic_get waits
        seen = 0
        total = 1
        while seen < total && !@is_over && @count + @open < @limit && (left = take(channel, queue.b, &own))
          # Not by the declare's count: of a quorum queue a busy broker answers 0.
          total = [most, left + 1].min if seen.zero?
          seen += 1
          hear until @ends.empty?
        end
        hear until @open.zero?
      rescue ::Bunny::ChannelLevelException => e
        refusal = Declarer.refusal(e)
        raise(Declaring.new(@retrier.topology).diagnosis { |native| native.refuse_replay(queue, *refusal) })
      end

      # How many messages are behind the one that it takes; nil where none is there.
      def take(channel, queue, &own)
        got, properties, payload = channel.basic_get(queue, manual_ack: true)
        return unless got

        info = ::Bunny::GetResponse.new(got, channel)
        send_home(@retrier.message_of(info, ::Bunny::MessageProperties.new(properties), payload), &own)
        got.message_count
      end

      # Where it does not go, it is in its queue again when the channel is closed.
      def send_home(message)
        return if block_given? && !yield(message)

        @retrier.replay_copy(message) { |error| @ends << error }
        @open += 1
      rescue Error => e
        failed(e)
      rescue *Outcomes::FAILURES => e
        failed(Event.replay_error(ContentError, Outcomes.text(e)))
      end

      def hear
        error = @ends.pop
        @open -= 1
        error ? failed(error) : @count += 1
      end

      def failed(error)
        @error ||= error
        @is_over = true if REFUSALS.none? { |each| error.is_a?(each) }
      end
    end
  end
end
