# frozen_string_literal: true

module Backhop
  module Bunny
    # The copies that are on their way, on a confirm channel of its own; what the thread of the {Publisher} does in its turns.
    #
    # A copy is due, sent or waiting until it is finished, and changes its place before anything can fail.
    # @api private
    class Outbox
      def self.now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      # @return [Integer] how many copies it has
      attr_reader :size

      # @param listener [#heard] is told what the broker answers
      def initialize(listener, retrier, connection, confirm_timeout)
        @listener = listener
        @retrier = retrier
        @connection = connection
        @confirm_timeout = confirm_timeout
        @size = 0
        @heard = []
        @due = []
        @sent = {} # by the number of their publish, ascending
        @waiting = [] # pairs of time and copy: for their back-off
        @confirmed = []
        @channel = @closed = nil # Confirming
        @transport = nil # on which the originals were seen last
        @left = [] # channels of lost connections, which Bunny opens again
        @unblocked_at = 0.0
      end

      # How long nothing has to be done if nothing happens, in seconds, and not longer than the time given.
      def patience(most)
        first = @waiting.map(&:first).min
        first ? (first - Outbox.now).clamp(0.001, most) : most
      end

      # Takes what arrived and what was heard, and does what can be done now.
      def turn(arrived, events)
        @size += arrived.size
        @due.concat(arrived)
        @heard.concat(events)
        until @heard.empty?
          name, *about = @heard.shift
          step { send(name, *about) }
        end
        step { acknowledge }
        end_back_offs unless @waiting.empty?
        step { look }
        step { pump unless @due.empty? }
      end

      private

      # What fails stops no other step.
      def step
        yield
      rescue *Outcomes::FAILURES => e
        Backhop.log(:error) { "publishing copies met an error, and goes on: #{Outcomes.text(e)}" }
      end

      # The broker's answers

      def confirmed(channel, number, nack)
        return unless channel.equal?(@channel) && (copy = @sent.delete(number))

        confirmed_one(copy, nack)
      end

      def confirmed_one(copy, nack)
        if copy.is_returned
          postpone(copy, "was returned by the broker: no queue takes it#{@retrier.advice}")
        elsif nack
          postpone(copy, "was nacked by the broker: a queue is full (reject-publish) or not available")
        else
          @confirmed << copy
        end
      end

      def acknowledge
        return if @confirmed.empty?

        confirmed = @confirmed
        @confirmed = []
        Original.acknowledge(confirmed.map(&:original))
      ensure
        confirmed&.each { |copy| finish(copy) }
      end

      # Every copy that it could be is sent again, a duplicate at worst.
      def returned(channel, exchange, routing_key, id)
        return unless channel.equal?(@channel)

        @retrier.doubt
        alike = @sent.values.select { |copy| copy.like?(exchange, routing_key, id) }
        alike = @sent.values if alike.empty? # it is some copy's all the same
        alike.each { |copy| copy.is_returned = true }
      end

      def closed
        reason = "#{@channel.reason}#{@retrier.advice}"
        @closed = @channel
        count = leave
        @retrier.doubt
        # Which one of several it was shows where each goes alone.
        @due.first(count).each { |copy| copy.is_suspect = true } if count > 1
        Backhop.log(:warn) { "the broker closed the channel that publishes (#{reason}): it is opened again" }
        postpone_due(count, "closed the channel (#{reason})") if count == 1
      end

      # Forgets the channel; the copies of which nothing is known are the first that are due. Returns how many they are.
      def leave
        @channel = nil
        take_back
      end

      def take_back
        sent = @sent.values
        sent.each { |copy| copy.is_returned = false }
        @due.unshift(*sent)
        @sent.clear
        sent.size
      end

      # Gives the channel up where its connection is lost, the broker closed it, or confirms do not come.
      def look
        if @channel && !@channel.here?
          @left << @channel
          leave
        end
        lose_originals
        closed if @channel&.closed?
        return if @sent.empty?

        @unblocked_at = Outbox.now if @connection.blocked? # the broker reads nothing meanwhile
        return if Outbox.now - [@sent.first.last.sent_at, @unblocked_at].max < @confirm_timeout

        channel = @channel
        postpone_due(leave, "was not confirmed within #{Times.duration(@confirm_timeout)}")
        channel.close
      end

      # Gives up what can no longer be settled, as the broker delivers it again; the rest is sent again.
      def lose_originals
        transport = @connection.transport
        return if transport.open? && transport.equal?(@transport)

        @transport = transport
        late, @waiting = @waiting.partition { |_, copy| !copy.original.here? }
        gone, @due = @due.partition { |copy| !copy.original.here? }
        gone.concat(late.map(&:last))
        return if gone.empty?

        gone.each { |copy| finish(copy, ConnectionFailedError.new("the connection was lost")) }
        Backhop.log(:warn) do
          "#{gone.size} copies were not confirmed: the connection was lost, and the broker delivers their originals again"
        end
      end

      # Sending

      def end_back_offs
        now = Outbox.now
        due, @waiting = @waiting.partition { |time, _| time <= now }
        @due.concat(due.map(&:last))
      end

      def pump
        return if @connection.blocked?

        until @due.empty?
          copy = @due.first
          break if !@sent.empty? && (copy.is_suspect || @sent.first.last.is_suspect)

          next give_up(@due.shift) unless copy.original.here?
          break unless ready?
          next unless topology?(copy)
          break unless sent?(copy)
        end
      end

      def give_up(copy)
        finish(copy, ConnectionFailedError.new("the channel of the message is closed"))
        copy.original.tell_gone
      end

      # The first that is due is sent, or cannot be encoded; false where the channel is closed, or the connection lost.
      def sent?(copy)
        copy.sent_at = Outbox.now
        number = @channel.publish(copy)
      rescue *Declarer::LOST
        false
      rescue *Outcomes::FAILURES => e
        finish(@due.shift, PublishError.new("the copy cannot be written: #{Outcomes.text(e)}"))
        Telling.refused(@retrier.topology.queue, copy.history.id, e) unless copy.replayed
        true
      else
        @sent[number] = @due.shift
        true
      end

      # Whether the channel can be published on; opens one where there is none.
      def ready?
        return @channel.here? && !@channel.closed? if @channel

        @connection.status == :open && @connection.transport.open? && open
      end

      # Bunny opens the channels of a lost connection again before it delivers anything, and so before any copy is due.
      def open
        @channel = Confirming.new(@connection, @retrier.topology, @listener, @closed)
        @closed = nil
        @left.each(&:close).clear
        true
      rescue *Outcomes::FAILURES => e
        postpone_due(@due.size, "cannot be published: #{Outcomes.text(e)}") if @connection.open?
        false
      end

      # Whether all is there that the copy needs; declares what is not.
      def topology?(copy)
        needed = @retrier.needed(copy.plan)
        return true if needed.empty?

        Declarer.open(@connection) { |declarer| Declaring.create(@retrier.topology, needed, &declarer) }
        @retrier.made(copy.plan)
        true
      rescue *Outcomes::FAILURES => e
        postpone_due(1, "cannot be published: #{Outcomes.text(e)}")
        false
      end

      # The first that are due wait.
      def postpone_due(count, why)
        count.times { postpone(@due.shift, why) }
      end

      def postpone(copy, why)
        copy.is_returned = copy.is_suspect = false
        return finish(copy, PublishError.new("the copy #{why}")) if copy.replayed

        copy.failures += 1
        wait = @retrier.back_off(copy.failures)
        @waiting << [Outbox.now + wait, copy]
        Telling.unpublished(@retrier.topology.queue, copy.history.id, why, wait)
      end

      def finish(copy, error = nil)
        @size -= 1
        copy.replayed&.call(error)
      end
    end
  end
end
