# frozen_string_literal: true

module Backhop
  module Bunny
    # Publishes copies on a confirm channel and settles their originals. The core's ledger decides
    # each step; this class executes the steps with Bunny. All methods but {#outdated?} are called
    # by the {PublisherThread}.
    # @api private
    class Publisher
      RANDOM_BYTES = 8
      private_constant :RANDOM_BYTES

      # @param listener [#notify] gets what the broker answers
      # @param back_off [Policy] delays before a copy is published again
      def initialize(listener, retrier, connection, confirm_timeout_ms, back_off, silence)
        @listener = listener
        @retrier = retrier
        @connection = connection
        @silence = silence
        @ledger = Core.made(Native.bh_ledger_new(back_off.native, Random.urandom(RANDOM_BYTES)))
        Status.check(@ledger.set_confirm_timeout_ms(confirm_timeout_ms))
        @copies = {} # by ledger entry, until they are confirmed.
        @channels = {} # by channel number in the ledger: one Original of each channel.
        @settlements = {}.compare_by_identity # frames to write, by one Original of their channel.
        @confirmed = [] # copies whose originals are acknowledged by these frames.
        @replayed = [] # confirmed copies of a replay.
        @channel = nil # the ConfirmChannel that publishes.
        @transport = nil # the transport of all of them.
        @lost = [] # channels of lost connections, which Bunny opens again.
        @retired = [] # channels of consumers that the broker cancelled
        @is_blocked = @is_connected = false # as of the last check.
        @reason = "" # why the broker refused a copy, or why the channel or a part of the topology is missing
      end

      # Returns the number of copies that are not confirmed.
      def size = @ledger.copies

      # Returns true if the connection changed since the last check. Call it from any thread.
      def outdated?
        transport = @connection.transport
        !transport.equal?(@transport) || @is_connected != transport.open? || @is_blocked != @connection.blocked?
      end

      # Returns the seconds until the next step is due; nil if none is.
      def due_in
        due_ms = @ledger.due_ms
        (due_ms - Times.monotonic_ms).clamp(1, nil) / 1000.0 unless due_ms.negative?
      end

      # Handles the notices and copies, and executes all steps that are due.
      #
      # @param arrived [Array<Copy, Original>] an Original if no copy can be made of it
      # @param notices [Array<Array>] see {ConfirmChannel}
      def run_once(arrived, notices)
        notices.each { |name, *about| contain { send(name, *about) } }
        contain { check_connection }
        arrived.each { |each| contain { each.is_a?(Copy) ? enter(each) : abandon(each) } }
        contain { execute_steps }
        @settlements.each { |original, frames| contain { original.write(frames.join) && original.note_settled } }.clear
        @confirmed.each { |copy| contain { EarlierCalls.ended(copy.original, copy.plan.native.action) } }.clear
        release_retired
        @replayed.each { |copy| copy.replayed.call(nil) }.clear
      end

      private

      # Yields. Logs an exception, so that the next step is executed in any case.
      def contain
        yield
      rescue *Outcomes::FAILURES => e
        Backhop.log(Logger::ERROR) { "publishing copies met an error, and goes on: #{Outcomes.line(e)}" }
      end

      def emit(...) = @retrier.emit(...)

      # --- What happened --------------------------------------------------------------------------

      def confirmed(channel, number, is_nack)
        @ledger.confirm(channel.number, number, 0, is_nack ? 0 : 1, Times.monotonic_ms)
      end

      # Records that the topology is declared, and may be declared again.
      def declared
        @ledger.set_restores(1)
        @ledger.rung(0, 0, Times.monotonic_ms)
      end

      def returned(channel, exchange, routing_key, id, reason)
        @retrier.doubt
        @reason = reason
        Native.bh_ledger_return(@ledger, channel.number, id, exchange, routing_key)
      end

      # Releases a channel once the copies of its messages are confirmed.
      def retire(channel)
        @retired << channel
      end

      def release_retired
        @retired.reject! { |channel| @copies.each_value.none? { |copy| copy.original.on?(channel) } && channel.release }
      end

      # Closes its channel if nothing is pending, and calls `done`. The next copy opens another
      # channel.
      def rest(done)
        return unless @channel && size.zero? && @connection.open? && !@connection.blocked?

        @channel.close
        closed
      ensure
        done.call
      end

      # Looks for the return exchange. If the connection is lost, leaves it to the next look.
      def look
        return if Channels.recovering?(@connection) || !@connection.transport.open?

        @silence.looking
        error = @retrier.look
        @silence.looked(error)
        emit(:unavailable, text: error.message, error: error) if error
        @retrier.replay_unroutable_after(error)
      rescue ConnectionFailedError => e
        @silence.looked(e)
        @listener.look_again
      end

      # Enters a copy that is to be published.
      def enter(copy)
        entry = arrive(copy.original)
        return lose(copy, Event.replay_error(ConnectionFailedError)) unless entry

        @copies[entry] = copy
        settle(entry, copy)
      end

      def settle(entry, copy)
        Status.check(copy.plan.settle(@ledger, entry, copy.id, makes_rungs: @retrier.makes_rungs?))
      end

      # Enters an original that has no copy. It stays unacknowledged for a while.
      def abandon(original)
        entry = arrive(original)
        @ledger.abandon(entry, Times.monotonic_ms) if entry
      end

      # Returns the original's entry; nil if the broker delivers it again.
      def arrive(original)
        check_connection # the original may be from a new connection
        return unless original.here?

        number, = @channels.find { |_, each| each.beside?(original) }
        unless number
          number = Core.made(@ledger.open_channel)
          @channels[number] = original
        end
        Core.made(@ledger.arrive(number, original.tag))
      end

      # Detects what Bunny does not report: a lost or blocked connection, or a closed channel.
      def check_connection
        disconnected unless current?
        return unless @transport.open?

        @is_connected = true
        ended = @channels.reject { |_, original| original.here? }.keys
        return disconnected if ended.any? && !@connection.open? # Bunny closes the channels first, then the connection

        ended.each { |number| @channels.delete(number) && @ledger.lose_channel(number) }
        closed if @channel&.closed?
        blocked unless @connection.blocked? == @is_blocked
      end

      def disconnected
        @lost << @channel if @channel
        @channel = nil
        is_lost = @is_connected && !closed_by_application?
        @is_connected = @is_blocked = false
        @silence.lost
        @ledger.forget_rungs if @transport # nil: it had no connection yet
        @transport = @connection.transport
        gone = end_copies(@copies.keys).each { |copy| abandon_call(copy) }
        close_channels(@channels.keys)
        @ledger.disconnect(Native::BH_ENDING_CUT, Times.monotonic_ms)
        gone.each { |copy| copy.replayed&.call(Event.replay_error(ConnectionFailedError)) }
        return unless is_lost && (@retrier.consumes? || !gone.empty?)

        emit(:disconnected, error: Status.error(ConnectionFailedError.status), count: gone.size)
      end

      def closed_by_application?
        return true if @connection.closing? || @connection.manually_closed?

        # Between these two states Bunny's +close+ is +:not_connected+, as is a recovery that
        # failed.
        @connection.status == :not_connected && !@connection.recovering_from_network_failure?
      end

      # Forgets copies, and returns them. The broker delivers their originals again.
      def end_copies(entries) = entries.map { |entry| @copies.delete(entry) }

      def close_channels(numbers)
        numbers.each { |number| @channels.delete(number) && @ledger.close_channel(number) }
      end

      def lose(copy, error)
        abandon_call(copy)
        copy.replayed ? copy.replayed.call(error) : @retrier.emit_stale(copy.plan.id)
      end

      # The next delivery of the message is called.
      def abandon_call(copy) = EarlierCalls.ended(copy.original, Native::BH_ACTION_NONE)

      def closed
        @reason = @channel.reason
        count = size
        ending = Native.bh_ending_of(@channel.reply_code)
        if @ledger.close_publisher(@channel.number, ending, Times.monotonic_ms) == 1
          error = ChannelClosedError.new(@reason)
          emit(:unavailable, connection: "publish", cause: @reason, error: error, count: count)
        end
        @channel = nil
        @retrier.doubt if ending == Native::BH_ENDING_MISSING
      end

      def blocked
        @is_blocked = !@is_blocked
        @ledger.block(@is_blocked ? 1 : 0, Times.monotonic_ms)
        emit(@is_blocked ? :blocked : :unblocked, count: size)
      end

      # --- What is to be done ---------------------------------------------------------------------

      def execute_steps
        may_publish = may_publish?
        while (step = @ledger.next(Times.monotonic_ms, may_publish ? 1 : 0)).first != Native::BH_STEP_REST
          kind, entry, channel, _, tag, _, event, status, delay_ms, count = step
          case kind
          when Native::BH_STEP_EMIT then contain { emit_step(entry, event, status, delay_ms, count) }
          when Native::BH_STEP_ACK then queue_settlement(:ack, channel, tag)
          when Native::BH_STEP_GIVE_BACK then queue_settlement(:requeue, channel, tag)
          when Native::BH_STEP_OPEN then open
          when Native::BH_STEP_DECLARE then declare_rung(delay_ms)
          when Native::BH_STEP_PUBLISH then may_publish = publish(entry)
          end
        end
      end

      def may_publish?
        current? && !@channel&.closed? && !Channels.recovering?(@connection)
      end

      # Returns true if the connection is open, and the same as at the last check.
      def current? = @connection.transport.equal?(@transport) && @transport.open?

      # Queues a settlement, which is written together with others.
      def queue_settlement(action, channel, tag)
        original = @channels.fetch(channel)
        (@settlements[original] ||= []) << original.frame(action, tag)
      end

      # Publishes a copy. Returns false if nothing can be published now; the copy is due again then.
      def publish(entry)
        copy = @copies.fetch(entry)
        @channel.publish(copy)
        true
      rescue *Channels::LOST
        settle(entry, copy) # again: it was not written
        false
      rescue *Outcomes::FAILURES => e
        @ledger.abandon(entry, Times.monotonic_ms)
        @copies.delete(entry)
        refuse(copy, e)
        true
      end

      def refuse(copy, error)
        return copy.replayed.call(Event.replay_error(ContentError, Outcomes.text(error))) if copy.replayed

        abandon_call(copy)
        @retrier.emit_refused(copy.plan.id, error, copy.plan.attempts)
      end

      # Opens the confirm channel. Bunny has opened the channels of a lost connection again by now,
      # or does not do so: they are closed or forgotten.
      def open
        @channel = ConfirmChannel.new(@connection, @retrier.topology, @listener) { Core.made(@ledger.open_publisher) }
        @lost.each(&:close).clear
      rescue *Outcomes::FAILURES => e
        failed(e, ChannelClosedError) { |status| @ledger.publisher_failed(status, Times.monotonic_ms) }
      end

      # Declares a rung; 0: the topology, since a part may have been deleted.
      def declare_rung(rung_ms)
        @retrier.make(rung_ms)
        @ledger.rung(rung_ms, 0, Times.monotonic_ms)
      rescue *Outcomes::FAILURES => e
        failed(e, ConnectionFailedError) { |status| @ledger.rung(rung_ms, status, Times.monotonic_ms) }
      end

      # Yields the status of a failure. If the connection is lost, {#disconnected} follows instead.
      def failed(exception, default)
        @reason = Outcomes.text(exception)
        yield(exception.is_a?(Error) ? exception.status : default.status) if current?
      end

      # Ends the replays. Messages whose copies are not confirmed stay parked.
      def end_replays(error)
        replays = @copies.select { |_, copy| copy.replayed }
        close_channels(
          @channels.select { |_, each| replays.each_value.any? { |copy| copy.original.beside?(each) } }.keys
        )
        end_copies(replays.keys).each { |copy| copy.replayed.call(error) }
      end

      # Ends the replays whose copies were not published. Those in flight are still confirmed.
      def end_due_replays(error)
        due = @copies.select { |entry, copy| copy.replayed && @ledger.state(entry) == Native::BH_STATE_DUE }.keys
        due.each { |entry| @ledger.abandon(entry, Times.monotonic_ms) }
        end_copies(due).each { |copy| copy.replayed.call(error) }
      end

      # --- Events ---------------------------------------------------------------------------------

      # Emits the event of the ledger's step.
      def emit_step(entry, kind, status, delay_ms, count)
        event = Native.bh_event_name(kind).to_sym
        return unconfirmed(status, count) if event == :unconfirmed
        return unavailable(status, delay_ms, count) if event == :unavailable

        copy = @copies[entry]
        return unless copy # the connection was lost

        is_published_again = %i[returned nacked].include?(event)
        @copies.delete(entry) unless is_published_again && !copy.replayed
        @confirmed << copy if %i[retried deferred parked].include?(event)
        abandon_call(copy) if event == :refused
        case event
        when :retried, :deferred, :parked then @retrier.listeners.emit_plan(event, copy.plan, copy.error, copy.took_us)
        when :replayed then @replayed << copy
        when :stale then lose(copy, Event.replay_error(ConnectionFailedError))
        else not_confirmed(event, entry, copy, status, delay_ms)
        end
      end

      def unconfirmed(status, count)
        error = Status.error(status, @ledger.text("", "", "", ""))
        emit(:unconfirmed, text: error.message, error: error, count: count)
        end_replays(error)
      end

      def unavailable(status, delay_ms, count)
        emit(:unavailable, connection: "publish", cause: @reason, error: Status.error(status, @reason),
                           delay: Times.seconds(delay_ms), count: count)
        end_due_replays(Event.replay_error(PublishError, @reason))
      end

      def not_confirmed(event, entry, copy, status, delay_ms)
        plan = copy.plan
        delay = Times.seconds(delay_ms)
        text = @ledger.text(plan.exchange, plan.routing_key, @reason, @retrier.forgotten)
        error = Status.error(status, text)
        unless copy.replayed
          return emit(event, text: text, error: error, id: plan.id, attempts: plan.attempts, delay: delay)
        end

        return copy.replayed.call(error) if event == :refused

        @ledger.abandon(entry, Times.monotonic_ms)
        copy.replayed.call(PublishError.new(text))
      end
    end
  end
end
