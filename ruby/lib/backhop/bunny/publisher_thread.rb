# frozen_string_literal: true

module Backhop
  module Bunny
    # Runs a {Publisher} in a thread of its own. So no handler waits for the broker, and the thread
    # that reads Bunny's connection is never blocked. The thread ends if there is nothing to do, and
    # starts again with the next copy.
    # @api private
    class PublisherThread
      TICK = 0.25 # seconds: how often it looks for changes that Bunny does not report, such as a blocked connection.
      LINGER = 1.0 # seconds without work after which the thread ends, or looks again if messages are in hand
      MOST_REST_MS = 1000
      private_constant :TICK, :LINGER, :MOST_REST_MS

      # @param (see Publisher#initialize)
      def initialize(retrier, connection, confirm_timeout_ms, back_off)
        @retrier = retrier
        @silence = Silence.new(retrier, confirm_timeout_ms)
        @publisher = Publisher.new(self, retrier, connection, confirm_timeout_ms, back_off, @silence)
        @lock = Mutex.new
        @work = ConditionVariable.new
        @idle = ConditionVariable.new
        @thread = nil
        @arrived = []
        @notices = []
        @in_flight = 0 # copies that the publisher has
        @look_due_ms = Times.monotonic_ms + Native::BH_LOOK_MS
      end

      # Returns the number of copies that are not confirmed.
      def pending
        @lock.synchronize { @arrived.size + @in_flight }
      end

      # Publishes a copy and acknowledges its original after the confirm. An Original without a copy
      # is abandoned: it stays unacknowledged for a while.
      def publish(copy)
        @lock.synchronize do
          @arrived << copy
          wake
        end
      end

      # Emits events of a lost or blocked connection even if there is nothing to publish.
      def check_connection
        notify(:check_connection) if @publisher.outdated?
      end

      # Returns true if {#check_connection} has something to emit.
      def outdated? = @publisher.outdated?

      # Looks for the return exchange, once a minute.
      def look_if_due
        now_ms = Times.monotonic_ms
        return if now_ms < @look_due_ms

        @look_due_ms = now_ms + Native::BH_LOOK_MS
        notify(:look)
      end

      # Makes the next look due after a look without an answer.
      def look_again
        @look_due_ms = Times.monotonic_ms + @silence.pause_ms
      end

      # Reports a look whose answer is late.
      def check_silence(is_blocked) = @silence.check(is_blocked)

      # Queues what {ConfirmChannel} reports: a method of the publisher and its arguments.
      def notify(*notice)
        @lock.synchronize do
          @notices << notice
          wake
        end
      end

      # Notes that the topology is declared. The publisher need not be woken for that, unless copies
      # wait.
      def declared
        @lock.synchronize do
          @notices |= [[:declared]]
          @work.signal
        end
      end

      # Waits until nothing is pending. Returns false if that takes longer than until the deadline;
      # nil: no limit.
      def drain(deadline_ms)
        @lock.synchronize do
          until @arrived.empty? && @in_flight.zero?
            remaining = Deadline.remaining(deadline_ms)
            return false if remaining&.zero?

            wake # something may have killed the thread
            @idle.wait(@lock, remaining)
          end
        end
        true
      end

      # Has the channel closed that publishes, if nothing is pending. Waits for that, a second at
      # most.
      def rest
        return if Thread.current.equal?(@thread) # in a listener of an event

        is_closed = false
        notify(:rest, -> { @lock.synchronize { (is_closed = true) && @idle.broadcast } })
        deadline_ms = Times.monotonic_ms + MOST_REST_MS
        @lock.synchronize do
          until is_closed || (remaining = Deadline.remaining(deadline_ms)).zero?
            @idle.wait(@lock, remaining)
          end
        end
      end

      private

      def wake
        @work.signal
        return if @thread&.alive?

        @thread = Thread.new { run }
        @thread.name = "backhop"
      end

      def run
        while (work = take)
          begin
            @publisher.run_once(*work)
            count
          rescue *Outcomes::FAILURES => e # only the application's logger raises here; the next run_once does the rest
            Kernel.warn("publishing copies met an error of the logger, and goes on: #{Outcomes.line(e)}")
          end
        end
      end

      # Counts the copies in flight.
      def count
        @lock.synchronize { @in_flight = @publisher.size }
        @retrier.note_gauges
      end

      # Waits for work. Returns the copies and notices since the last call, or nil if the thread is
      # to end.
      def take
        @lock.synchronize do
          @in_flight = @publisher.size
          @idle.broadcast if @in_flight.zero? && @arrived.empty?
          due = @publisher.due_in
          @work.wait(@lock, [due, @in_flight.zero? ? LINGER : TICK].compact.min) if nothing?
          if nothing? && @in_flight.zero? && !due
            @thread = nil
            next
          end
          work = [@arrived, @notices]
          @arrived = []
          @notices = []
          @in_flight += work.first.size
          work
        end
      end

      def nothing? = @arrived.empty? && @notices.empty?
    end
  end
end
