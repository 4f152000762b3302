# frozen_string_literal: true

module Backhop
  module Bunny
    # Keeps the number of threads in the pool of a channel of Bunny.
    # @api private
    module Pool
      # Starts a thread in place of the current one, which ends. Does nothing if the pool is closed,
      # or if the current thread is none of its threads.
      #
      # @param pool [::Bunny::ConsumerWorkPool]
      def self.replace_thread(pool)
        index = pool.running? && pool.threads.index(Thread.current)
        start(pool, index) if index
      end

      # Starts a thread in place of each one that another thread has killed or raised into while it
      # was idle. Returns how many.
      def self.revive(pool)
        return 0 unless pool.running?

        dead = pool.threads.each_index.reject { |index| pool.threads[index].alive? }
        dead.each { |index| start(pool, index) }.size
      end

      def self.start(pool, index) = pool.threads[index] = Thread.new { pool.__send__(:run_loop) }
      private_class_method :start
    end
  end
end
