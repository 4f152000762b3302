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
      def initialize(listener, retrier, connection, confirm_timeout_ms, back_off)
        @listener = listener
        @retrier = retrier
        @connection = connection
        @ledger = Core.made(Native.bh_ledger_new(back_off.native, Random.urandom(RANDOM_BYTES)))
        Status.check(@ledger.set_confirm_timeout_ms(confirm_timeout_ms))
        @copies = {} # by ledger entry, until they are confirmed.
        @channels = {} # by channel number in the ledger: one Original of each channel.
        @settlements = {}.compare_by_identity # frames to write, by one Original of their channel.
        @confirmed = [] # copies whose originals are acknowledged by these frames.
        @left = [] # numbers of closed channels, until the copies of their messages are confirmed.
        @replayed = [] # confirmed copies of a replay.
        @channel = nil # the ConfirmChannel that publishes.
        @transport = nil # the transport of all of them.
        @lost = [] # channels of lost connections, which Bunny opens again.
        @retired = [] # channels of consumers that the broker cancelled
        @is_blocked = @is_connected = false # as of the last check.
        @is_declared = true
        @failures = @paused_until_ms = 0 # of opening the channel and of declaring
        @reason = "" # the broker's text for why it refused a copy
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
        contain { advance }
        @settlements.each { |original, frames| contain { original.write(frames.join) && original.note_settled } }.clear
        @confirmed.each { |copy| contain { EarlierCalls.ended(copy.original, copy.plan.native.action) } }.clear
        forget_left
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

      def returned(channel, exchange, routing_key, id, reason)
        doubt
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

      # Closes its channel if nothing is pending, and calls `done`. The next copy opens another channel.
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

        error = @retrier.look
        emit(:unavailable, text: error.message, error: error) if error
        @retrier.replay_unroutable_after(error)
      rescue ConnectionFailedError
        nil
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
        disconnected unless @connection.transport.equal?(@transport) && @transport.open?
        return unless @transport.open?

        @is_connected = true
        ended = @channels.reject { |_, original| original.here? }.keys
        return disconnected if ended.any? && !@connection.open? # Bunny closes the channels first, then the connection

        leave_channels(ended - @left)
        closed if @channel&.closed?
        blocked unless @connection.blocked? == @is_blocked
      end

      # Leaves closed channels. A copy may be published already, so it is confirmed all the same. The next delivery of
      # its message waits for that. Without an id that delivery is not recognized.
      def leave_channels(numbers)
        return if numbers.empty?

        @left.concat(numbers)
        error = Event.replay_error(ConnectionFailedError)
        left = numbers.map { |number| @channels.fetch(number) }
        @copies.select { |_, copy| left.any? { |original| copy.original.beside?(original) } }.each do |entry, copy|
          next if copy.original.call&.positive?

          @ledger.abandon(entry, Times.monotonic_ms)
          @copies.delete(entry)
          lose(copy, error)
        end
      end

      # Forgets the closed channels that have no copies.
      def forget_left
        over = @left.reject { |number| @copies.each_value.any? { |copy| copy.original.beside?(@channels.fetch(number)) } }
        end_channels(over) unless over.empty?
      end

      def disconnected
        @lost << @channel if @channel
        @channel = nil
        is_lost = @is_connected && !closed_by_application?
        @is_connected = @is_blocked = false
        @transport = @connection.transport
        gone = end_channels(@channels.keys).each { |copy| abandon_call(copy) }
        @ledger.disconnect(Native::BH_ENDING_CUT, Times.monotonic_ms)
        @ledger.forget_rungs
        gone.each { |copy| copy.replayed&.call(Event.replay_error(ConnectionFailedError)) }
        return unless is_lost && (@retrier.consumes? || !gone.empty?)

        emit(:disconnected, error: Status.error(ConnectionFailedError.status), count: gone.size)
      end

      def closed_by_application?
        return true if @connection.closing? || @connection.manually_closed?

        # Between these two states Bunny's +close+ is +:not_connected+, as is a recovery that failed.
        @connection.status == :not_connected && !@connection.recovering_from_network_failure?
      end

      # Returns the copies that were not confirmed. The broker delivers their originals again.
      def end_channels(numbers)
        numbers.each do |number|
          @channels.delete(number)
          @left.delete(number)
          @ledger.close_channel(number)
        end
        gone = @copies.keys.select { |entry| @ledger.state(entry) == Native::BH_STATE_NONE }
        gone.map { |entry| @copies.delete(entry) }
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
          emit(:unavailable, connection: "publish", cause: @reason, error: ChannelClosedError.new(@reason), count: count)
        end
        @channel = nil
        doubt if ending == Native::BH_ENDING_MISSING
      end

      def blocked
        @is_blocked = !@is_blocked
        @ledger.block(@is_blocked ? 1 : 0, Times.monotonic_ms)
        emit(@is_blocked ? :blocked : :unblocked, count: size)
      end

      # Declares the topology again before the next publish: a part may have been deleted.
      def doubt
        @is_declared = !@retrier.restores?
        @retrier.doubt
        @ledger.forget_rungs
      end

      # --- What is to be done ---------------------------------------------------------------------

      def advance
        execute_steps(false)
        execute_steps(true) if size.positive? && ready?
      end

      def execute_steps(may_publish)
        while (step = @ledger.next(Times.monotonic_ms, may_publish ? 1 : 0)).first != Native::BH_STEP_REST
          kind, entry, channel, _, tag, _, event, status, delay_ms, count = step
          case kind
          when Native::BH_STEP_EMIT then contain { emit_step(entry, event, status, delay_ms, count) }
          when Native::BH_STEP_ACK then queue_settlement(:ack, channel, tag)
          when Native::BH_STEP_GIVE_BACK then queue_settlement(:requeue, channel, tag)
          when Native::BH_STEP_DECLARE then declare_rung(delay_ms)
          when Native::BH_STEP_PUBLISH then may_publish = publish(entry)
          end
        end
      end

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
        settle(entry, copy)
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

      # Returns true if copies can be published now. Opens the channel and declares the topology if
      # necessary.
      def ready?
        return false if Times.monotonic_ms < @paused_until_ms || !@connection.transport.open?
        return true if @channel && @is_declared
        return false if Channels.recovering?(@connection)

        @channel || open
        @retrier.make unless @is_declared
        @is_declared = true
        @failures = 0
        true
      rescue *Outcomes::FAILURES => e
        pause(Outcomes.text(e)) if @connection.open?
        false
      end

      # Opens the confirm channel. Bunny has opened the channels of a lost connection again by now, or
      # does not do so: they are closed or forgotten.
      def open
        @channel = ConfirmChannel.new(@connection, @retrier.topology, @listener) { Core.made(@ledger.open_publisher) }
        @lost.each(&:close).clear
      end

      def declare_rung(rung_ms)
        @retrier.make(rung_ms)
        @ledger.rung(rung_ms, 0, Times.monotonic_ms)
      rescue *Outcomes::FAILURES => e
        @reason = Outcomes.text(e)
        @ledger.rung(rung_ms, e.is_a?(Error) ? e.status : ConnectionFailedError.status, Times.monotonic_ms)
      end

      def pause(reason)
        @failures += 1
        delay = @retrier.back_off(@failures)
        @paused_until_ms = Times.monotonic_ms + Times.milliseconds(delay)
        emit(:unavailable, connection: "publish", cause: reason, error: PublishError.new(reason), delay: delay, count: size)
        end_replays(Event.replay_error(PublishError, reason))
      end

      # Ends the replays. Messages whose copies are not confirmed stay parked.
      def end_replays(error)
        replayed = @copies.values.select(&:replayed).map(&:original)
        numbers = @channels.select { |_, each| replayed.any? { |original| original.beside?(each) } }.keys
        end_channels(numbers).each { |copy| copy.replayed.call(error) } unless numbers.empty?
      end

      # --- Events ---------------------------------------------------------------------------------

      # Emits the event of the ledger's step.
      def emit_step(entry, kind, status, delay_ms, count)
        event = Native.bh_event_name(kind).to_sym
        return unconfirmed(status, count) if event == :unconfirmed

        copy = @copies.fetch(entry)
        is_published_again = %i[returned nacked].include?(event)
        @copies.delete(entry) unless is_published_again && !copy.replayed
        @confirmed << copy if %i[retried deferred parked].include?(event)
        abandon_call(copy) if event == :refused
        case event
        when :retried, :deferred, :parked then @retrier.listeners.emit_plan(event, copy.plan, copy.error, copy.took_us)
        when :replayed then @replayed << copy
        else not_confirmed(event, entry, copy, status, delay_ms)
        end
      end

      def unconfirmed(status, count)
        error = Status.error(status, @ledger.text("", "", "", ""))
        emit(:unconfirmed, text: error.message, error: error, count: count)
        end_replays(error)
      end

      def not_confirmed(event, entry, copy, status, delay_ms)
        plan = copy.plan
        delay = Times.seconds(delay_ms)
        text = @ledger.text(plan.exchange, plan.routing_key, @reason, @retrier.forgotten)
        error = Status.error(status, text)
        return emit(event, text: text, error: error, id: plan.id, attempts: plan.attempts, delay: delay) unless copy.replayed

        return copy.replayed.call(error) if event == :refused

        @ledger.abandon(entry, Times.monotonic_ms)
        copy.replayed.call(PublishError.new(text))
      end
    end
  end
end
