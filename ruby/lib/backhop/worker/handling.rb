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
      # @param breaker [Breaker, nil]
      def initialize(native, topology, rules, limit, listeners, logger, is_each_retry:, most_failures:, breaker:)
        @native = native
        @topology = topology
        @rules = rules
        @limit = limit
        @listeners = listeners
        @logger = logger
        @is_each_retry = is_each_retry
        @most_failures = most_failures
        @breaker = breaker
        @failures = listeners.any? ? {} : nil # [exception, traceparent] by the message's number
      end

      # Calls the handler and settles the message. Raises only exceptions that end the program: then
      # the message is not settled.
      #
      # @yieldreturn [Boolean] whether a stop of the host aborted the handler, which is no attempt
      def call(handler, message, &is_aborted)
        error = refusal(message)
        return if error == :deferred

        @listeners.emit_message(:delivered, message)
        return settle_failed(message, error) if error

        handle(handler, message, &is_aborted)
      rescue *HandlerCall::ENDS_PROGRAM => e
        @breaker.forget(message.permit) if message.permit
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

      def handle(handler, message)
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
        elsif !FailureRules.of?(error, StandardError) && yield
          release(message)
        else
          @listeners.log_severe(message, error)
          fail.call(error)
        end
      end

      # Requests the permit of the message's key. If it is refused, settles the message and returns
      # :deferred. Returns what the key raised; else nil.
      def refusal(message)
        return unless @breaker&.by_key?

        permit = @breaker.permit(message)
        if permit.granted?
          message.permit = permit
          return
        end
        settle(message, Outcomes::Result.new(:deferred, "", permit.delay))
        :deferred
      rescue *Outcomes::FAILURES => e
        e
      end

      # Records the end of a call with the breaker of the message's key.
      def record(message, result, error)
        return unless (permit = message.permit)

        message.permit = nil
        @breaker.record(permit, result, error)
      end

      def settle_failed(message, error)
        result = @rules.result_of(error)
        @listeners.emit_message(end_of(message, result), message, error, result.error)
        Backhop.log(Logger::DEBUG, @logger) { "#{message.inspect}: #{error.backtrace&.join("\n")}" }
        keep(message, error) if @failures && result.outcome != :dropped && emits?(message, result)
        settle(message, result, error, message.traceparent || "")
      end

      # Returns the name of the event of the attempt's end. The settlement reports a message that
      # cannot be read.
      def end_of(message, result)
        Plan.end_of(message.history, @topology, result.outcome, result.policy)
      rescue Error
        :failed
      end

      # Returns the message to its queue without an attempt.
      def release(message)
        outcome = Native::BH_OUTCOME_RELEASED
        @breaker.forget(message.permit) if message.permit
        status = @native.settle(message.taken, outcome, "", "", 0, @topology.policy.native, "", 0, 0)
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

      def settle(message, result, error = nil, traceparent = "")
        record(message, result, error)
        status = @native.settle(message.taken, Plan.outcome(result.outcome), result.error,
                                error ? Outcomes.class_name(error) : "", Times.milliseconds(result.retry_after),
                                policy_of(result), traceparent,
                                @breaker&.own_fault?(error) ? 1 : 0, result.whole_queue ? 1 : 0)
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
