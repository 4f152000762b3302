# frozen_string_literal: true

module Backhop
  module Bunny
    # Executes the flow of a breaker for one consumer. Messages that no handler may get yet are held here.
    #
    # Threads with a free handler call {#take}. A thread of the gate calls {#look} while messages are
    # held or the breaker is not closed, and ends then.
    # @api private
    class Gate
      LOOK_AFTER_MS = 100 # while a held message waits for a free handler
      private_constant :LOOK_AFTER_MS

      # @param most [Integer, nil] handlers at once; nil: as many as threads call {#take}
      # @param changed [#call, nil] called if {#cancelled?} may have changed
      # @yieldparam message [Message] called if a handler may get this message, which is the oldest
      # @yieldparam is_free [Boolean] whether the current thread may call handlers
      def initialize(retrier, breaker, most: nil, changed: nil, &wake)
        @retrier = retrier
        @breaker = breaker
        @most = most
        @changed = changed
        @wake = wake
        @flow = Core.made(Native.bh_flow_new(breaker.native, retrier.topology.native))
        @lock = Mutex.new
        @held = []
        @running = 0 # handlers
        @due_ms = -1 # when to look again; below 0: not by time alone
        @events = [] # not emitted yet
        @emitting = Mutex.new
        @thread = nil
        @is_over = false
      end

      # Holds a message. Returns false if the gate is closed.
      def hold(message) = @lock.synchronize { !@is_over && (@held << message) }

      # Executes the steps that are due.
      #
      # @return [Message, nil] the oldest held message, with its permit; nil if no handler may get one
      def take
        message = next_call { next_message }
        oldest = @lock.synchronize do
          start_thread
          @held.first if message && !@most
        end
        @wake.call(oldest, false) if oldest
        message
      end

      # Executes the steps that are due. Wakes a handler if it may get a message.
      def look
        give_back if consumer_gone?
        oldest = next_call { @held.first }
        @wake.call(oldest, true) if oldest
      end

      # Notes that the handler of a message has ended.
      def ended
        oldest = @lock.synchronize do
          @running -= 1
          @held.first if @most
        end
        @wake.call(oldest, true) if oldest
      end

      # Returns true if no message must be consumed.
      def cancelled? = @flow.is_cancelled == 1

      # Returns the held messages to the queue.
      def give_back
        held = @lock.synchronize { @held.dup.tap { @held.clear } }
        held.each { |message| message.original.settle(:requeue) }
      end

      # Returns the held messages to the queue, and holds none from now on.
      def close
        @lock.synchronize { @is_over = true }
        give_back
      end

      private

      # Executes steps until none is due, or a handler may get a message.
      #
      # @yieldreturn [Message, nil] the message to return if a handler may get one
      def next_call(&choose)
        loop do
          kind, about, delay_ms = @lock.synchronize { step(&choose) }
          case kind
          when Native::BH_FLOW_REST then return
          when Native::BH_FLOW_CALL then return about if about
          when Native::BH_FLOW_EMIT then emit
          when Native::BH_FLOW_DEFER then @retrier.defer(about, Times.seconds(delay_ms)) if about
          else @changed&.call
          end
        end
      end

      # Gets the next step, with the lock.
      def step
        @held.shift until @held.empty? || @held.first.original.here? # the broker delivers the others again
        return [Native::BH_FLOW_REST] if @is_over

        now_ms = Times.monotonic_ms
        kind, event, delay_ms, due_ms = @flow.next(@held.size, now_ms)
        @due_ms = due_ms
        case kind
        when Native::BH_FLOW_CALL then busy? ? [Native::BH_FLOW_REST] : [kind, yield]
        when Native::BH_FLOW_DEFER then [kind, @held.shift, delay_ms]
        when Native::BH_FLOW_EMIT then [kind, @events << described(event)]
        else [kind]
        end
      end

      def busy? = @most && @running >= @most

      # Returns the oldest message with its permit; nil if another consumer of the breaker was faster.
      def next_message
        permit = @breaker.permit(@held.first)
        return unless permit.granted?

        permit.gate = self
        @running += 1
        @held.shift.tap { |message| message.permit = permit }
      end

      def described(kind)
        Event.made(Native.bh_event_name(kind).to_sym).tap { |native| Status.check(@flow.describe(native)) }
      end

      # Emits the events in their order. If another thread emits, it emits these, too.
      def emit
        until @events.empty?
          break unless @emitting.try_lock

          begin
            native = @lock.synchronize { @events.shift }
            @retrier.emit_made(native) if native
          ensure
            @emitting.unlock
          end
        end
      end

      # Starts the gate's thread, with the lock, if it is needed.
      def start_thread
        return if @thread&.alive? || !pause

        @thread = Thread.new { look_until_rest }
        @thread.name = "backhop-gate"
      end

      # Returns the seconds until the next look; nil if none is needed.
      def pause
        return if @is_over || (@due_ms.negative? && @held.empty?)

        due_ms = @due_ms.negative? ? LOOK_AFTER_MS : @due_ms - Times.monotonic_ms
        due_ms.clamp(1, LOOK_AFTER_MS) / 1000.0
      end

      def look_until_rest
        while (seconds = @lock.synchronize { pause || (@thread = nil) })
          sleep seconds
          begin
            look
          rescue *Outcomes::FAILURES => e
            Backhop.log(Logger::ERROR) { "holding messages met an error, and goes on: #{Outcomes.text(e)}" }
          end
        end
      end

      # Returns true if the application cancelled the consumer of the oldest message.
      def consumer_gone?
        info = @lock.synchronize { @held.first }&.delivery_info
        info.respond_to?(:consumer_tag) && !info.channel.consumers.key?(info.consumer_tag)
      end
    end
    private_constant :Gate
  end
end
