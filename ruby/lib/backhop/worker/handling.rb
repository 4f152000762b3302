# frozen_string_literal: true

module Backhop
  class Worker
    # Calls the handler with a message and settles it by the outcome. Keeps the exceptions of failed
    # messages for the event of their retry or parking.
    # @api private
    class Handling
      PUBLISHED_AGAIN = [Native::BH_EVENT_RETURNED, Native::BH_EVENT_NACKED].freeze
      OWN_TEXT = [StateError.status, ConsumerCancelledError.status].freeze # statuses with a text of their own
      private_constant :PUBLISHED_AGAIN, :OWN_TEXT

      # @param native [Native::Worker]
      # @param limit [HandlerLimit]
      # @param is_each_retry [Boolean] whether each retry is an event
      # @param most_failures [Integer] number of exceptions to keep
      def initialize(native, topology, rules, limit, listeners, logger, is_each_retry:, most_failures:)
        @native = native
        @topology = topology
        @rules = rules
        @limit = limit
        @listeners = listeners
        @logger = logger
        @is_each_retry = is_each_retry
        @most_failures = most_failures
        @failures = listeners.any? ? {} : nil # [exception, traceparent] by the message's number
      end

      # Calls the handler and settles the message. Raises only exceptions that end the program: then
      # the message is not settled.
      #
      # @yieldreturn [Boolean] whether a stop of the host aborted the handler, which is no attempt
      def call(handler, message)
        @listeners.emit_message(:delivered, message)
        fail = lambda do |error|
          settle_failed(message, error)
          true
        end
        began_ms = Times.monotonic_ms
        error = HandlerCall.error_of(message, @listeners, fail) { @limit.within { handler.call(message) } }
        error = @limit.applied(error, began_ms)
        if error.nil?
          @listeners.emit_message(:succeeded, message)
          settle(message, Outcomes::OK)
        elsif !error.is_a?(StandardError) && yield
          release(message)
        else
          @listeners.log_severe(message, error)
          fail.call(error)
        end
      rescue *HandlerCall::ENDS_PROGRAM => e
        @listeners.log_error(:stale, message, e)
        emit_stale(message, StateError.status)
        raise
      end

      # Returns the exception and the traceparent for an event of the core, and forgets them if no
      # other event needs them.
      #
      # @param native [Native::Event]
      def failure_of(native)
        return unless @failures

        @failures.clear if connection_lost?(native)
        @failures.delete(native.message) unless PUBLISHED_AGAIN.include?(native.what)
      end

      private

      def settle_failed(message, error)
        result = @rules.result_of(error)
        @listeners.emit_message(end_of(message, result), message, error, result.error)
        Backhop.log(Logger::DEBUG, @logger) { "#{message.inspect}: #{error.backtrace&.join("\n")}" }
        keep(message, error) if @failures && result.outcome != :dropped && emits?(message, result)
        settle(message, result, Outcomes.class_name(error), message.traceparent || "")
      end

      # Returns the name of the event of the attempt's end. The settlement reports a message that cannot
      # be read.
      def end_of(message, result)
        Plan.end_of(message.history, @topology, result.outcome, result.policy)
      rescue Error
        :failed
      end

      # Returns the message to its queue without an attempt.
      def release(message)
        outcome = Native::BH_OUTCOME_RELEASED
        status = @native.settle(message.taken, outcome, "", "", 0, @topology.policy.native, "")
        emit_stale(message, ConsumerCancelledError.status) unless status.zero? # else the core emits it
      end

      def connection_lost?(native)
        native.what == Native::BH_EVENT_MISSED ||
          (native.what == Native::BH_EVENT_DISCONNECTED &&
           native.string(Event.field(:connection)) == "consume")
      end

      # Returns true if an event about the retry or the parking of a message may follow.
      def emits?(message, result)
        return true if @is_each_retry

        @native.may_park(message.taken, Plan.outcome(result.outcome),
                         Times.milliseconds(result.retry_after), policy_of(result)) == 1
      end

      def keep(message, error)
        @failures[message.taken.number] = [error, message.traceparent]
        # The oldest ones are of events that the core dropped.
        @failures.shift while @failures.size > @most_failures
      end

      def settle(message, result, error_class = "", traceparent = "")
        status = @native.settle(message.taken, Plan.outcome(result.outcome), result.error,
                                error_class, Times.milliseconds(result.retry_after),
                                policy_of(result), traceparent)
        return if status.zero?

        @failures&.delete(message.taken.number)
        emit_stale(message, status)
      end

      def policy_of(result) = (result.policy || @topology.policy).native

      # Emits that a message was settled too late: the broker delivers it again.
      def emit_stale(message, status)
        @listeners.emit(:stale) do |native|
          Event.set(native, :status, status)
          Event.set(native, :id, message.event_id)
          cause = OWN_TEXT.include?(status) ? "" : Status.error(status).message
          Status.check(native.set_cause(cause))
        end
      end
    end
    private_constant :Handling
  end
end
