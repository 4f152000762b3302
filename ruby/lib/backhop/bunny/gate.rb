# frozen_string_literal: true

module Backhop
  module Bunny
    # Executes the flow of a breaker for one consumer. Messages that no handler may get yet are held
    # here.
    #
    # Threads with a free handler call {#take}. A thread of the gate calls {#look}, once a second at
    # least: the breaker can change by hand, or by another of its consumers. It ends with the
    # consumer.
    # @api private
    class Gate
      LOOK_AFTER_MS = 100 # while a held message waits for a free handler
      # Its queue may be declared again meanwhile.
      LEFT_SECONDS = 1 # delay of a message whose consumer the broker cancelled
      private_constant :LOOK_AFTER_MS, :LEFT_SECONDS

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
        @gone = [] # held messages whose consumer was gone at the last look
        @running = 0 # handlers
        @due_ms = 0 # when to look again
        @until_ms = 0 # when the thread looks again
        @sooner = ConditionVariable.new
        @channel = nil # of the consumer, as far as it is known
        @events = [] # not emitted yet
        @emitting = Mutex.new
        @thread = nil
        @is_over = false
      end

      # Looks for changes of the breaker from now on, even without a delivery.
      #
      # @param channel [::Bunny::Channel] of the consumer
      def watch(channel)
        @lock.synchronize { @channel = channel }
        look
        @lock.synchronize { start_thread }
      end

      # Holds a message. Returns false if the gate is closed.
      def hold(message)
        @lock.synchronize do
          @channel = message.delivery_info.channel
          !@is_over && (@held << message)
        end
      end

      # Executes the steps that are due.
      #
      # @return [Message, nil] the oldest held message, with its permit; nil if no handler may get
      #   one
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
        leave_consumer
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
        @lock.synchronize { @sooner.signal }
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
        # The broker delivers the others again.
        until @held.empty? || @held.first.original.here?
          EarlierCalls.ended(@held.shift.original, Native::BH_ACTION_NONE)
        end
        return [Native::BH_FLOW_REST] if @is_over

        now_ms = Times.monotonic_ms
        kind, event, delay_ms, due_ms = @flow.next(@held.size, now_ms)
        @due_ms = due_ms if due_ms.positive?
        case kind
        when Native::BH_FLOW_CALL then busy? ? [Native::BH_FLOW_REST] : [kind, yield]
        when Native::BH_FLOW_DEFER then [kind, @held.shift, delay_ms]
        when Native::BH_FLOW_EMIT then [kind, @events << described(event)]
        else [kind]
        end
      end

      def busy? = @most && @running >= @most

      # Returns the oldest message with its permit; nil if another consumer of the breaker was
      # faster.
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

      # Starts the gate's thread, with the lock, if it is needed. Wakes it if it would look too
      # late.
      def start_thread
        if @thread&.alive?
          @sooner.signal if next_ms < @until_ms
        elsif !over?
          @thread = Thread.new { look_until_over }
          @thread.name = "backhop-gate"
        end
      end

      # Returns when to look again, with the lock.
      def next_ms = @held.empty? ? @due_ms : [@due_ms, Times.monotonic_ms + LOOK_AFTER_MS].min

      # Returns true if no message can come, with the lock. The channel of a Subscription can be
      # another one later.
      def over?
        return true if @is_over
        return false if @changed || @held.any?

        @channel.nil? || (@channel.closed? && !Channels.recovering?(@channel.connection))
      end

      # Waits until the next look. Returns false if none is needed.
      def wait
        @lock.synchronize do
          if over?
            @thread = nil
          else
            @until_ms = next_ms
            @sooner.wait(@lock, [@until_ms - Times.monotonic_ms, 1].max / 1000.0)
          end
          !@thread.nil?
        end
      end

      def look_until_over
        while wait
          begin
            look
          rescue *Outcomes::FAILURES => e
            Backhop.log(Logger::ERROR) { "holding messages met an error, and goes on: #{Outcomes.line(e)}" }
          end
        end
      end

      # Settles the held messages of a consumer that is gone. If the application cancelled the
      # consumer, the messages return to their queue. If the broker did so, the queue may be
      # deleted: then copies wait.
      def leave_consumer
        cancelled, left = @lock.synchronize { take_gone }
        cancelled.each { |message| @retrier.defer(message, LEFT_SECONDS) }
        left.each { |message| message.original.settle(:requeue) }
      end

      # Takes the held messages of consumers that the broker cancelled, and that the application
      # cancelled, with the lock. Bunny removes a consumer just before it reports a cancel of the
      # broker. So a message is the application's only at the second look.
      def take_gone
        return [[], []] unless gone?(@held.first)

        gone = @held.select { |message| gone?(message) }
        cancelled, left = gone.partition { |message| copying? && message.delivery_info.consumer.cancelled_by_broker? }
        @gone, left = left, left & @gone
        @held -= cancelled + left
        [cancelled, left]
      end

      # Returns true if a message can wait without an attempt.
      def copying? = @retrier.topology.defers?

      # Returns true if the consumer of a message is gone. A message of queue.pop has none.
      def gone?(message)
        info = message&.delivery_info
        info.respond_to?(:consumer_tag) && !info.channel.consumers.key?(info.consumer_tag)
      end
    end
    private_constant :Gate

    # The gates of a retrier, each as long as its consumer keeps it. They are not in a WeakMap: Ruby
    # 3.1 crashes if a thread iterates over one.
    # @api private
    class Gates
      def initialize
        @all = [].freeze # weak references
      end

      # Adds a gate, and returns it.
      def add(gate)
        @all = [*live, gate].map { |each| WeakRef.new(each) }.freeze
        gate
      end

      # Gives back the messages that the gates hold.
      def give_back = live.each(&:give_back)

      private

      def live
        @all.filter_map do |each|
          each.__getobj__
        rescue WeakRef::RefError
          nil
        end
      end
    end
    private_constant :Gates
  end
end
