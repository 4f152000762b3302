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
        pool.threads[index] = Thread.new { pool.__send__(:run_loop) } if index
      end
    end
  end
end
