# frozen_string_literal: true

module Backhop
  module Bunny
    # The copies that are on their way, on a confirm channel of its own; what the thread of the {Publisher} does in its turns.
    #
    # What is to be done tells the core's ledger, by one step after the other: here they are carried out, over Bunny.
    # @api private
    class Outbox
      # The clock of the ledger, in ms.
      def self.now_ms = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)

      # @param listener [#heard] is told what the broker answers
      # @param back_off [Policy] delays before a copy is published again
      def initialize(listener, retrier, connection, confirm_timeout_ms, back_off)
        @listener = listener
        @retrier = retrier
        @connection = connection
        @ledger = Core.made(Native.bh_ledger_new(back_off.native, Random.urandom(RANDOM_BYTES)))
        Status.check(@ledger.set_confirm_timeout_ms(confirm_timeout_ms))
        @copies = {} # by their entry in the ledger, until they are safe
        @channels = {} # by their number in the ledger: an Original of each
        @settlements = {}.compare_by_identity # frames to write, by an Original of their channel
        @replayed = [] # copies that are safe
        @channel = @closed = nil # Confirming: the one that publishes, and the one before
        @transport = nil # on which all of that is
        @lost = [] # channels of lost connections, which Bunny opens again
        @is_blocked = @is_connected = false # as far as it has looked
        @is_declared = true
        @failures = @paused_until_ms = 0 # of opening the channel, and of declaring
        @reason = "" # why the broker did not take a copy, in words
      end

      RANDOM_BYTES = 8
      private_constant :RANDOM_BYTES

      # How many copies are not confirmed.
      def size = @ledger.copies

      # Whether the connection is another, or in another state, than when it looked last; from any thread.
      def outdated?
        transport = @connection.transport
        !transport.equal?(@transport) || @is_connected != transport.open? || @is_blocked != @connection.blocked?
      end

      # In how many seconds there is something to do, if nothing happens; nil: never.
      def patience
        due_ms = @ledger.due_ms
        (due_ms - Outbox.now_ms).clamp(1, nil) / 1000.0 unless due_ms.negative?
      end

      # Takes what arrived and what was heard, and does what can be done now.
      #
      # @param arrived [Array<Copy, Original>] the originals are those of which no copy can be made
      def turn(arrived, events)
        events.each { |name, *about| step { send(name, *about) } }
        step { look }
        arrived.each { |each| step { each.is_a?(Copy) ? enter(each) : leave(each) } }
        step { pump }
        @settlements.each { |original, frames| step { original.write(frames.join) } }.clear
        @replayed.each { |copy| copy.replayed.call(nil) }.clear
      end

      private

      # What fails stops no other step.
      def step
        yield
      rescue *Outcomes::FAILURES => e
        Backhop.log(Logger::ERROR) { "publishing copies met an error, and goes on: #{Outcomes.text(e)}" }
      end

      def tell(...) = @retrier.tell(...)

      # --- What happened ---------------------------------------------------------------------------------------------------

      def confirmed(channel, number, is_nack)
        @ledger.confirm(channel.number, number, 0, is_nack ? 0 : 1, Outbox.now_ms)
      end

      def returned(channel, exchange, routing_key, id, reason)
        doubt
        @reason = reason
        Native.bh_ledger_return(@ledger, channel.number, id, exchange, routing_key)
      end

      # A copy, to be published.
      def enter(copy)
        entry = arrive(copy.original)
        return lose(copy, Event.replay_error(ConnectionFailedError)) unless entry

        @copies[entry] = copy
        settle(entry, copy)
      end

      def settle(entry, copy)
        Status.check(copy.plan.settle(@ledger, entry, copy.id, makes_rungs: @retrier.makes_rungs?))
      end

      # An original that is left for a while, as no copy can be made of it.
      def leave(original)
        entry = arrive(original)
        @ledger.leave(entry, Outbox.now_ms) if entry
      end

      # Its entry; nil where the broker delivers it again.
      def arrive(original)
        look # as it may be of a new connection
        return unless original.here?

        number, = @channels.find { |_, each| each.beside?(original) }
        unless number
          number = Core.made(@ledger.open_channel)
          @channels[number] = original
        end
        Core.made(@ledger.arrive(number, original.tag))
      end

      # Sees what Bunny does not tell: that the connection is lost or blocked, or a channel closed.
      def look
        disconnected unless @connection.transport.equal?(@transport) && @transport.open?
        return unless @transport.open?

        @is_connected = true
        ended = @channels.reject { |_, original| original.here? }.keys
        return disconnected if ended.any? && !@connection.open? # whose close closes its channels first

        error = Event.replay_error(ConnectionFailedError)
        end_channels(ended).each { |copy| lose(copy, error) } unless ended.empty?
        closed if @channel&.closed?
        blocked unless @connection.blocked? == @is_blocked
      end

      def disconnected
        @lost << @channel if @channel
        @channel = nil
        is_lost = @is_connected && !closed_by_application?
        @is_connected = @is_blocked = false
        @transport = @connection.transport
        gone = end_channels(@channels.keys)
        @ledger.disconnect(Native::BH_ENDING_WORDLESS, Outbox.now_ms)
        @ledger.forget_rungs
        gone.each { |copy| copy.replayed&.call(Event.replay_error(ConnectionFailedError)) }
        return unless is_lost && (@retrier.consumes? || !gone.empty?)

        tell(:disconnected, error: Status.error(ConnectionFailedError.status), count: gone.size)
      end

      def closed_by_application? = @connection.closing? || @connection.manually_closed?

      # Gives the copies that were not confirmed; the broker delivers their originals again.
      def end_channels(numbers)
        numbers.each do |number|
          @channels.delete(number)
          @ledger.close_channel(number)
        end
        gone = @copies.keys.select { |entry| @ledger.state(entry) == Native::BH_STATE_NONE }
        gone.map { |entry| @copies.delete(entry) }
      end

      def lose(copy, error)
        copy.replayed ? copy.replayed.call(error) : @retrier.tell_stale(copy.plan.id)
      end

      def closed
        @reason = @channel.reason
        count = size
        ending = Native.bh_ending_of(@channel.reply_code)
        if @ledger.close_publisher(@channel.number, ending, Outbox.now_ms) == 1
          tell(:unavailable, connection: "publish", cause: @reason, error: ChannelClosedError.new(@reason), count: count)
        end
        @closed = @channel
        @channel = nil
        doubt if ending == Native::BH_ENDING_MISSING
      end

      def blocked
        @is_blocked = !@is_blocked
        @ledger.block(@is_blocked ? 1 : 0, Outbox.now_ms)
        tell(@is_blocked ? :blocked : :unblocked, count: size)
      end

      # Something of the topology may be gone.
      def doubt
        @is_declared = !@retrier.restores?
        @retrier.doubt
        @ledger.forget_rungs
      end

      # --- What is to be done ----------------------------------------------------------------------------------------------

      def pump
        carry_out(false)
        carry_out(true) if size.positive? && ready?
      end

      def carry_out(may_publish)
        until (kind = @ledger.next(Outbox.now_ms, may_publish ? 1 : 0)) == Native::BH_STEP_REST
          case kind
          when Native::BH_STEP_TELL then step { hear }
          when Native::BH_STEP_ACK then put_down(:ack)
          when Native::BH_STEP_GIVE_BACK then put_down(:requeue)
          when Native::BH_STEP_DECLARE then declare_rung(@ledger.step_delay_ms)
          when Native::BH_STEP_PUBLISH then may_publish = published?(@ledger.step_entry)
          end
        end
      end

      # A settlement, to be written with others.
      def put_down(action)
        original = @channels.fetch(@ledger.step_channel)
        (@settlements[original] ||= []) << original.frame(action, @ledger.step_tag)
      end

      # Whether more can be published. What is not written is due again.
      def published?(entry)
        copy = @copies.fetch(entry)
        @channel.publish(copy)
        true
      rescue *Declarer::LOST
        settle(entry, copy)
        false
      rescue *Outcomes::FAILURES => e
        @ledger.leave(entry, Outbox.now_ms)
        @copies.delete(entry)
        refuse(copy, e)
        true
      end

      def refuse(copy, error)
        return copy.replayed.call(Event.replay_error(ContentError, Outcomes.text(error))) if copy.replayed

        @retrier.tell_refused(copy.plan.id, error, copy.plan.attempts)
      end

      # Whether there is a channel to publish on, and the topology; makes what is not there.
      def ready?
        return false if Outbox.now_ms < @paused_until_ms || !@connection.transport.open?
        return true if @channel && @is_declared
        return false unless @connection.status == :open

        @channel || open
        @retrier.make unless @is_declared
        @is_declared = true
        @failures = 0
        true
      rescue *Outcomes::FAILURES => e
        pause(Outcomes.text(e)) if @connection.open?
        false
      end

      # Bunny opens the channels of a lost connection again before it delivers anything, and so before any copy is due.
      def open
        @channel = Confirming.new(@connection, @retrier.topology, @listener, @closed) { Core.made(@ledger.open_publisher) }
        @closed = nil
        @lost.each(&:close).clear
      end

      def declare_rung(wait_ms)
        @retrier.make(wait_ms)
        @ledger.rung(wait_ms, 0, Outbox.now_ms)
      rescue *Outcomes::FAILURES => e
        @reason = Outcomes.text(e)
        @ledger.rung(wait_ms, e.is_a?(Error) ? e.status : ConnectionFailedError.status, Outbox.now_ms)
      end

      def pause(why)
        @failures += 1
        wait = @retrier.back_off(@failures)
        @paused_until_ms = Outbox.now_ms + Times.milliseconds(wait)
        tell(:unavailable, connection: "publish", cause: why, error: PublishError.new(why), delay: wait, count: size)
        end_replays(Event.replay_error(PublishError, why))
      end

      # What is not taken stays parked.
      def end_replays(error)
        replayed = @copies.values.select(&:replayed).map(&:original)
        numbers = @channels.select { |_, each| replayed.any? { |original| original.beside?(each) } }.keys
        end_channels(numbers).each { |copy| copy.replayed.call(error) } unless numbers.empty?
      end

      # --- What is to be told ----------------------------------------------------------------------------------------------

      def hear
        event = Native.bh_event_name(@ledger.step_event).to_sym
        return unconfirmed if event == :unconfirmed

        entry = @ledger.step_entry
        copy = @copies.fetch(entry)
        goes_again = %i[returned nacked].include?(event)
        @copies.delete(entry) unless goes_again && !copy.replayed
        case event
        when :retried, :parked then @retrier.listeners.tell_plan(event, copy.plan, copy.error, copy.took_us)
        when :replayed then @replayed << copy
        else not_taken(event, entry, copy)
        end
      end

      def unconfirmed
        error = Status.error(@ledger.step_status, @ledger.words("", "", "", ""))
        tell(:unconfirmed, text: error.message, error: error, count: @ledger.step_count)
        end_replays(error)
      end

      def not_taken(event, entry, copy)
        plan = copy.plan
        delay = Times.seconds(@ledger.step_delay_ms)
        words = @ledger.words(plan.exchange, plan.routing_key, @reason, @retrier.forgotten)
        error = Status.error(@ledger.step_status, words)
        return tell(event, text: words, error: error, id: plan.id, attempts: plan.attempts, delay: delay) unless copy.replayed

        return copy.replayed.call(error) if event == :refused

        @ledger.leave(entry, Outbox.now_ms)
        copy.replayed.call(PublishError.new(words))
      end
    end
  end
end
