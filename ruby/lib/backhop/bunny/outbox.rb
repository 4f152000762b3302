# frozen_string_literal: true

module Backhop
  module Bunny
    # The copies that are on their way, on a confirm channel of its own; what the thread of the {Publisher} does in its turns.
    #
    # A copy is due, sent or waiting until it is finished, and changes its place before anything can fail.
    # @api private
    class Outbox
      WRITE = 65_536 # bytes: about as many in one write
      private_constant :WRITE

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
        @sent = {} # by their delivery tag, ascending
        @waiting = [] # pairs of time and copy: for their back-off
        @confirmed = []
        @tag = 0
        @channel = @transport = @closed = nil
        @unready_since = nil
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
        Backhop.logger.error { "publishing copies met an error, and goes on: #{Outcomes.text(e)}" }
      end

      # The broker's answers

      def confirmed(channel, tag, multiple, nack)
        return unless channel.equal?(@channel)

        if multiple
          confirmed_one(@sent.shift.last, nack) while !@sent.empty? && @sent.first.first <= tag
        elsif (copy = @sent.delete(tag))
          confirmed_one(copy, nack)
        end
      end

      def confirmed_one(copy, nack)
        if copy.is_returned
          postpone(copy, "was returned by the broker: no queue takes it")
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

      def closed(channel, reason)
        return unless channel.equal?(@channel)

        count = leave
        @closed = channel
        @retrier.doubt
        # Which one of several it was shows where each goes alone.
        @due.first(count).each { |copy| copy.is_suspect = true } if count > 1
        Backhop.logger.warn { "the broker closed the channel that publishes (#{reason}): it is opened again" }
        postpone_due(count, "closed the channel (#{reason})") if count == 1
      end

      def recovered(channel, transport)
        return unless channel.equal?(@channel)

        lose("the connection was lost") unless @sent.empty?
        @transport = transport
        @tag = 0
        @unready_since = nil
      end

      # Forgets the channel; the copies of which nothing is known are the first that are due. Returns how many they are.
      def leave
        @channel = @unready_since = nil
        take_back
      end

      def take_back
        sent = @sent.values
        sent.each { |copy| copy.is_returned = false }
        @due.unshift(*sent)
        @sent.clear
        sent.size
      end

      # Gives the channel up where confirms do not come, and the copies where their connection is gone.
      def look
        lose("the connection was lost") unless here? || (@sent.empty? && @due.empty? && @waiting.empty?)
        return if @sent.empty?

        @unblocked_at = Outbox.now if @connection.blocked? # the broker reads nothing meanwhile
        return if Outbox.now - [@sent.first.last.sent_at, @unblocked_at].max < @confirm_timeout

        channel = @channel
        postpone_due(leave, "was not confirmed within #{Times.duration(@confirm_timeout)}")
        Declarer.close(channel)
      end

      # Whether the channel can be written to.
      def here?
        @channel && @transport.open? && @transport.equal?(@connection.transport)
      end

      # Gives up what can no longer be settled, as the broker delivers it again; the rest is sent again.
      def lose(why)
        take_back
        late, @waiting = @waiting.partition { |_, copy| !copy.original.here? }
        gone, @due = @due.partition { |copy| !copy.original.here? }
        gone.concat(late.map(&:last))
        return if gone.empty?

        gone.each { |copy| finish(copy, ConnectionFailedError.new(why)) }
        Backhop.logger.warn do
          "#{gone.size} copies were not confirmed: #{why}, and the broker delivers their originals again"
        end
      end

      # Sending

      def end_back_offs
        now = Outbox.now
        due, @waiting = @waiting.partition { |time, _| time <= now }
        @due.concat(due.map(&:last))
      end

      def pump
        return if @connection.blocked? || !ready?

        data = +"".b
        until @due.empty?
          copy = @due.first
          break if !@sent.empty? && (copy.is_suspect || @sent.first.last.is_suspect)

          next give_up(@due.shift) unless copy.original.here?
          next unless topology?(copy) && append(copy, data)

          write(data) if data.bytesize > WRITE
        end
      ensure
        write(data) if data
      end

      def give_up(copy)
        finish(copy, ConnectionFailedError.new("the channel of the message is closed"))
        copy.original.tell_gone
      end

      # What is counted as sent; not on a channel that was closed meanwhile, for which the broker would close the
      # connection: what is heard of that takes it back.
      def write(data)
        written = data.slice!(0..)
        @transport.write(written) if !written.empty? && here? && @channel.open?
      end

      # The first that is due is sent with the data; false where it cannot be encoded, and nothing of it is written.
      def append(copy, data)
        frames = copy.encode(@channel.id, @connection.frame_max)
      rescue *Outcomes::FAILURES => e
        finish(@due.shift, PublishError.new("the copy cannot be written: #{Outcomes.text(e)}"))
        Telling.refused(copy.history, e) unless copy.replayed
        false
      else
        copy.sent_at = Outbox.now
        @sent[@tag += 1] = @due.shift
        data << frames
      end

      # Whether the channel can be published on; opens one where there is none.
      def ready?
        return true if here? && @channel.open?
        return false unless @connection.status == :open && @connection.transport.open?
        return open unless @channel

        # Bunny is about to open it again, or to say that it is closed; unless its recovery failed before it came to that
        @unready_since ||= Outbox.now
        return false if Outbox.now - @unready_since < @confirm_timeout

        leave
        open
      end

      def open
        transport = @connection.transport
        channel = Declarer.channel(@connection, @closed)
        channel.extend(Confirms)
        channel.backhop_listener = @listener
        channel.confirm_select
        return Declarer.close(channel) unless transport.equal?(@connection.transport)

        @channel = channel
        @transport = transport
        @tag = 0
        true
      rescue *Outcomes::FAILURES => e
        postpone_due(@due.size, "cannot be published: #{Outcomes.text(e)}") if @connection.open?
        Declarer.close(channel)
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
        wait = Retrier.back_off(copy.failures)
        @waiting << [Outbox.now + wait, copy]
        Telling.unpublished(copy.history, why, wait)
      end

      def finish(copy, error = nil)
        @size -= 1
        copy.replayed&.call(error)
      end
    end
  end
end
