# frozen_string_literal: true

module Backhop
  # Emits events to the log and to the listeners that on_event names.
  # @api private
  class Listeners
    # A line of the log with its event, for a formatter that shows more than the text.
    class LogLine < String
      # @return [Event]
      attr_reader :event

      def initialize(text, event)
        super(text)
        @event = event
      end
    end

    @lock = Mutex.new
    @log = Core.made(Native.bh_log_new)

    class << self
      # Returns the line to log for an event; "" if the limit of such lines per second is reached.
      def line(event)
        LogLine.new(@lock.synchronize { @log.line(event.native, Times.monotonic_ms) }, event)
      end

      # Logs a listener's exception, within the limit of such lines per second and queue.
      def failed(name, queue, error, logger = Backhop.logger)
        native = Event.made(name)
        Event.set(native, :queue, queue)
        line = @lock.synchronize { @log.listener_line(native, Outcomes.text(error), Times.monotonic_ms) }
        Backhop.log(Logger::ERROR, logger) { line } unless line.empty?
      end
    end

    # @param on_event [#call, Array<#call>, nil]
    # @param clock [#call] returns the time, as a Time or seconds since the epoch
    # @param logger [Logger, nil] nil: {Backhop.logger} at the time of each event
    def initialize(queue, on_event, clock, logger = nil)
      @queue = queue
      @clock = clock
      given = (on_event.is_a?(Array) ? on_event : [on_event].compact).map { |each| Checks.callable(each, "on_event") }
      @metrics, @listeners = given.uniq.partition { |each| each.is_a?(Metrics) && !each.hands_on? }
      @is_given = !given.empty? # whether anything besides the log receives events
      @logger = logger
    end

    # Makes the metrics count the unconfirmed copies and ready consumers of a retrier or worker.
    #
    # @param source [#pending, #readiness]
    def attach(source)
      [*@metrics, *@listeners.grep(Metrics)].each { |each| each.attach(source) }
    end

    # Notifies the metrics that cannot read a gauge on demand that it may have changed: the number
    # of unconfirmed copies or of ready consumers.
    def note_gauges
      @noting ||= @listeners.grep(Metrics)
      @noting.each do |each|
        each.note_gauges
      rescue *Outcomes::FAILURES => e
        failed(:retried, e)
      end
    end

    # Removes and returns the metrics that the worker's core counts itself.
    #
    # @return [Array<Metrics>]
    def leave_to_core
      @metrics.tap do
        @metrics = []
        @is_given = any?
      end
    end

    # Returns true if there are listeners besides the metrics that the core counts.
    def any? = !@listeners.empty?

    # Returns true if a listener needs an event for each retry.
    def retry_listener? = @listeners.any?(RetryListener)

    # Emits an event whose fields the block sets.
    #
    # @yieldparam native [Native::Event]
    def emit(name, error = nil)
      native = Event.made(name)
      Event.set(native, :queue, @queue)
      yield native
      emit_event(Event.new(native, error))
    end

    # Emits an event that the core made.
    def emit_event(event)
      count(event.name) { |metrics| metrics.observe(event.native) }
      deliver(event)
    end

    # Starts the handler's time of a message.
    def begin(message)
      message.began_us = Times.monotonic_us if message.began_us
    end

    # Emits that a handler gets a message (:delivered), or its outcome. Metrics count an attempt at
    # its end.
    #
    # @param text [String, nil] the error's text
    def emit_message(name, message, error = nil, text = nil)
      return unless @is_given || logs?(Event::LEVELS_OF[name])

      is_emitted = emits?(name)
      is_end = name != :delivered
      now_us = Times.monotonic_us
      message.began_us = now_us unless is_end
      return unless is_emitted || is_end

      took_us = is_end && message.began_us ? now_us - message.began_us : -1
      about = [Event.number(name), @queue, message.history.native, message.redelivered? ? 1 : 0,
               Times.since_epoch(@clock.call), error ? Outcomes.class_name(error) : ""]
      count(name) { |metrics| metrics.count_message(*about, took_us) } if is_end
      return unless is_emitted

      native = Event.made(name)
      Status.check(native.fill_message(*about, text || "", took_us))
      deliver(Event.new(native, error, message.traceparent))
    rescue Error # the message cannot be read: settling it emits an event
      nil
    end

    # Emits that the plan of a message was executed, after the broker confirmed the copy.
    #
    # @param took_us [Integer, nil] time from the copy's publish to its confirm, in us
    def emit_plan(name, plan, error, took_us = nil)
      return unless @is_given || logs?(Event::LEVELS_OF[name])

      is_emitted = emits?(name)
      number = Event.number(name)
      error_class = error ? Outcomes.class_name(error) : ""
      made = plan.native
      count(name) do |metrics|
        _action, attempts, _deferrals, delay_ms, _is_met, reason = made.read
        metrics.count_copy(number, @queue, attempts, delay_ms, reason, error_class, took_us || -1)
      end
      return unless is_emitted

      native = Event.made(name)
      Status.check(native.fill_plan(number, @queue, made, error_class, took_us || -1))
      deliver(Event.new(native, error, plan.traceparent))
    end

    # Logs a handler's exception if it is none that a `rescue` without a class catches.
    def log_severe(message, error)
      log_error(:failed, message, error) unless error.nil? || FailureRules.of?(error, StandardError)
    end

    # Logs an exception that an operator has to see, with its backtrace: at level ERROR, as the line
    # of an event of this name.
    def log_error(name, message, error)
      native = Event.made(name)
      now_ms = Times.since_epoch(@clock.call)
      Status.check(native.fill_message(Event.number(name), @queue, message.history.native, message.redelivered? ? 1 : 0,
                                       now_ms, Outcomes.class_name(error), Outcomes.text(error), -1))
    rescue *Outcomes::FAILURES # the message cannot be read
      Event.set(native, :error, Outcomes.text(error))
    ensure
      line = LogLine.new([native.line, *error.backtrace].join("\n"), Event.new(native, error))
      Backhop.log(Logger::ERROR, logger) { line }
    end

    private

    # Makes the metrics count an event. Logs an exception of one of them and goes on.
    #
    # @yieldreturn [Integer] the core's status
    def count(name)
      @metrics.each do |each|
        Status.check(yield(each.native))
      rescue *Outcomes::FAILURES => e
        failed(name, e)
      end
    end

    # Logs an event and calls each listener. Logs an exception of a listener and goes on, unless it
    # ends the program or stops its task.
    def deliver(event)
      log(event)
      @listeners.each do |listener|
        listener.call(event)
      rescue *HandlerCall::ENDS_PROGRAM
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException
        raise if defined?(::Async::Stop) && e.is_a?(::Async::Stop)

        failed(event.name, e)
      end
    end

    def failed(name, error) = Listeners.failed(name, @queue, error, logger)

    # Returns true if a listener or the log receives such an event.
    def emits?(name) = !@listeners.empty? || logs?(Event::LEVELS_OF[name])

    def logger = @logger || Backhop.logger

    def log(event)
      return unless logs?(event.level)

      line = Listeners.line(event)
      Backhop.log(event.level, logger) { line } unless line.empty?
    end

    def logs?(level)
      least = (@logger || Backhop.logger).level
      !least.is_a?(Integer) || level >= least
    end
  end
  private_constant :Listeners
end
