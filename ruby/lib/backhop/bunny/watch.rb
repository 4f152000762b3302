# frozen_string_literal: true

module Backhop
  module Bunny
    # Lets each retrier look for the return exchange and in the unroutable queue, once a minute,
    # also if no message arrives. One thread does so for all retriers of the process, and ends with
    # the last one. It keeps a retrier until its drain, or until its connection is closed.
    #
    # Its retriers are not in a WeakMap: Ruby 3.1 crashes if a thread iterates over one.
    # @api private
    module Watch
      PAUSE = 1.0 # seconds between two checks of whether a look is due, or its answer late
      private_constant :PAUSE

      @retriers = {}.compare_by_identity
      @lock = Mutex.new
      @thread = nil

      class << self
        # Watches a retrier from now on.
        def add(retrier)
          @lock.synchronize do
            @retriers[retrier] = true
            next if running?

            @thread = Thread.new { run }
            @thread.name = "backhop-watch"
          end
        end

        # Watches a retrier no more.
        def remove(retrier)
          @lock.synchronize { @retriers.delete(retrier) }
        end

        # Returns false if the thread has ended: the application killed it, or the process is a
        # forked child.
        def running? = @thread&.alive?

        private

        def run
          look while wait
        end

        # Waits until the next check. Returns false if no retrier is left.
        def wait
          sleep(PAUSE)
          @lock.synchronize do
            @retriers.delete_if { |retrier, _| retrier.lost? }
            @thread = nil if @retriers.empty?
            !@thread.nil?
          end
        end

        def look
          @lock.synchronize { @retriers.keys }.each { |retrier| look_of(retrier) }
        end

        def look_of(retrier)
          retrier.look_if_due
          retrier.check_silence
        rescue *Outcomes::FAILURES => e
          Backhop.log(Logger::ERROR) { "a look for lost retries met an error, and goes on: #{Outcomes.line(e)}" }
        end
      end
    end
    private_constant :Watch
  end
end
