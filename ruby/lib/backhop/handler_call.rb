# frozen_string_literal: true

module Backhop
  # Calls a handler and finds out how it ends.
  # @api private
  module HandlerCall
    # Exceptions that end the program. Any other exception of a handler is its failure.
    ENDS_PROGRAM = [SystemExit, SignalException].freeze

    THREAD_ENDED = "the handler ended its thread, or left by throw, break or return"

    @is_exiting = false
    at_exit { @is_exiting = true }

    class << self
      # Returns true if the program ends: then Ruby kills all threads.
      def exiting? = @is_exiting

      # Yields. Returns nil if the block returned, or the exception that it raised. Also returns an
      # exception if the block returned unfinished work; see {Unfinished}. A child process that the
      # block forked ends here.
      #
      # Raises only exceptions that end the program. If the block ends its thread, or leaves by
      # throw, `thread_ended` gets the error, and returns whether to log it. The thread then ends.
      #
      # @param message [Message]
      # @param listeners [Listeners, nil] logs that the thread ended
      # @param thread_ended [#call]
      def error_of(message, listeners, thread_ended)
        is_over = false
        process = Process.pid
        begin
          result = yield
        rescue *ENDS_PROGRAM => e
          is_over = true
          raise
        rescue Exception => e # rubocop:disable Lint/RescueException,Lint/SuppressedException
        ensure
          end_child(e) unless Process.pid == process
        end
        is_over = true
        e || Unfinished.error_of(result)
      ensure
        end_thread(message, listeners, thread_ended) unless is_over || @is_exiting
      end

      # Raises an exception that ends the program in the main thread: in another thread it would
      # only end that thread.
      def raise_in_main(error)
        raise error if Thread.current.equal?(Thread.main)

        Thread.main.raise(error)
      end

      private

      # Ends this process, a child that the handler forked. The child would consume beside its
      # parent on the same connection, and its `ensure` blocks would close that connection.
      def end_child(error)
        return if error.is_a?(SystemExit)

        Backhop.log(Logger::ERROR) do
          "the handler ended in a child process that it forked: the child ends too, because its parent has the " \
            "connection; end the child with exit! in the handler#{": #{error.full_message(highlight: false)}" if error}"
        end
      ensure
        begin
          [$stdout, $stderr].each(&:flush)
        ensure
          exit!(error.is_a?(SystemExit) ? error.status : 1)
        end
      end

      def end_thread(message, listeners, thread_ended)
        error = StateError.new(THREAD_ENDED)
        listeners&.log_error(:failed, message, error) if thread_ended.call(error)
      end
    end
  end
  private_constant :HandlerCall
end
