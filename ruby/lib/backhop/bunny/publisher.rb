# frozen_string_literal: true

module Backhop
  module Bunny
    # Publishes copies, and acknowledges their originals, without anybody waiting for it.
    #
    # A thread of its own does it all with its {Outbox}, so that no handler waits, and nothing is done in the thread that
    # reads Bunny's connection, which could not wait for the broker. What happens meanwhile is put down for its next turn.
    # The thread ends when there is nothing left to do, and begins again.
    # @api private
    class Publisher
      TICK = 0.25 # seconds: how often it looks where nothing tells it, as of a connection that is blocked
      LINGER = 1.0 # seconds without work, after which the thread ends; or looks, where messages are left
      private_constant :TICK, :LINGER

      # @param (see Outbox#initialize)
      def initialize(retrier, connection, confirm_timeout_ms, back_off)
        @retrier = retrier
        @outbox = Outbox.new(self, retrier, connection, confirm_timeout_ms, back_off)
        @lock = Mutex.new
        @work = ConditionVariable.new
        @idle = ConditionVariable.new
        @thread = nil
        @arrived = []
        @events = []
        @held = 0 # copies that the outbox has
      end

      # How many copies are not confirmed yet.
      def pending
        @lock.synchronize { @arrived.size + @held }
      end

      # Publishes a copy as soon as it can be, and then acknowledges its original. An original, of which no copy can be made,
      # is left for a while.
      def publish(copy)
        @lock.synchronize do
          @arrived << copy
          wake
        end
      end

      # Sees to it that a connection that is lost or blocked is told of where there is nothing to publish too.
      def look
        heard(:look) if @outbox.outdated?
      end

      # Called by {Confirming}.
      def heard(*event)
        @lock.synchronize do
          @events << event
          wake
        end
      end

      # Waits until nothing is pending; false where something still is after that many seconds.
      def drain(timeout)
        deadline = timeout && (Outbox.now_ms + Times.milliseconds(timeout))
        @lock.synchronize do
          until @arrived.empty? && @held.zero?
            left = deadline && Times.seconds(deadline - Outbox.now_ms)
            return false if left && left <= 0

            wake # whoever ended the thread
            @idle.wait(@lock, left)
          end
        end
        true
      end

      private

      def wake
        @work.signal
        return if @thread&.alive?

        @thread = Thread.new { run }
        @thread.name = "backhop"
      end

      def run
        while (news = take)
          begin
            @outbox.turn(*news)
            count
          rescue *Outcomes::FAILURES => e # only the application's logger can do that; the rest is for the next turn
            Kernel.warn("publishing copies met an error of the logger, and goes on: #{Outcomes.text(e)}")
          end
        end
      end

      # What a turn left.
      def count
        @lock.synchronize { @held = @outbox.size }
        @retrier.note_pending
      end

      # What arrived and what was heard since the last turn; nil where the thread ends.
      def take
        @lock.synchronize do
          @held = @outbox.size
          @idle.broadcast if @held.zero? && @arrived.empty?
          patience = @outbox.patience
          @work.wait(@lock, [patience, @held.zero? ? LINGER : TICK].compact.min) if nothing?
          if nothing? && @held.zero? && !patience
            @thread = nil
            next
          end
          news = [@arrived, @events]
          @arrived = []
          @events = []
          @held += news.first.size
          news
        end
      end

      def nothing? = @arrived.empty? && @events.empty?
    end
  end
end
