# frozen_string_literal: true

module Backhop
  # What happened to a message, or to a connection: the same over each client and in the worker. README has the names.
  class Event
    KINDS = (0...Native::BH_EVENT_LAST).to_h { |kind| [Native.bh_event_name(kind).to_sym, kind] }.freeze
    NAMES = KINDS.keys.freeze
    FIELDS = (0...Native::BH_FIELD_LAST).to_h { |field| [Native.bh_event_field(field).to_sym, field] }.freeze
    LEVELS = { Native::BH_LEVEL_DEBUG => Logger::DEBUG, Native::BH_LEVEL_INFO => Logger::INFO,
               Native::BH_LEVEL_WARNING => Logger::WARN, Native::BH_LEVEL_ERROR => Logger::ERROR }.freeze
    READERS = %i[name queue text error error_text id attempt attempts delay lateness reason error_class duration recovery count
                 connection host traceparent].freeze
    private_constant :KINDS, :NAMES, :FIELDS, :READERS

    # @api private
    attr_reader :native

    # @return [String, nil] the span of the attempt that failed, as W3C's traceparent, where a tracing made one
    attr_reader :traceparent

    # The core's number for a name.
    # @api private
    def self.number(name) = KINDS.fetch(name)

    # The core's number for a field.
    # @api private
    def self.field(name) = FIELDS.fetch(name)

    # An event of the core, without any field.
    # @api private
    def self.made(name) = Core.made(Native.bh_event_new(number(name)))

    # Sets a field of a core's event; nil: none.
    # @api private
    def self.set(native, field, value)
      return if value.nil?

      number = FIELDS.fetch(field)
      Status.check(value.is_a?(Integer) ? native.set_int(number, value) : native.set_string(number, value))
    end

    # What ends a replay, in the core's words.
    # @param error [Class] of {Error}
    # @param cause [String] in the words of the client, or of an error behind it
    # @api private
    def self.replay_error(error, cause = "")
      native = Core.made(Native.bh_event_new(KINDS.fetch(:replayed)))
      set(native, :status, error.status)
      Status.check(native.set_cause(cause))
      error.new(native.text)
    end

    # Of so many messages that are not settled, or whose copies are not confirmed, in time, in the core's words.
    # @api private
    def self.undrained(queue, count)
      native = Core.made(Native.bh_event_new(KINDS.fetch(:drained)))
      { queue: queue, status: WaitTimeoutError.status, count: count }.each { |field, value| set(native, field, value) }
      WaitTimeoutError.new(native.line)
    end

    # What is told of a message once what a plan decided is safe.
    # @api private
    def self.of_plan(plan) = NAMES.fetch(Native.bh_event_of_copy(plan.native.action))

    # How an event of each name is logged, where nothing is wrong with it.
    # @api private
    LEVELS_OF = NAMES.to_h { |name| [name, LEVELS.fetch(made(name).level)] }.freeze
    private_constant :LEVELS

    # @param native [Native::Event] its fields
    # @param error [Exception, nil] what the handler raised, or Backhop's own error
    # @api private
    def initialize(native, error = nil, traceparent = nil)
      @native = native
      @error = error
      @traceparent = traceparent
      freeze
    end

    # @return [Symbol] as :parked
    def name = NAMES[@native.what]

    # @return [String] the work queue
    def queue = string(:queue) || ""

    # @return [String] why, in words, with what to do: of a message that is parked the {#reason}, of a failure the handler's
    #   error; it never holds a password
    def text = @native.text

    # @return [Exception, nil] what the handler raised, where it is known; else the reason, as an {Error}, where there is one;
    #   nil too of what the poison guard parks, as no handler saw it
    def error
      return @error if @error

      status = int(:status)
      Status.error(status, text) if status && !status.zero?
    end

    # @return [String, nil] what the handler raised, in words
    def error_text = string(:error)

    # @return [String, nil] the message's id, the same for all its attempts
    def id = string(:id)

    # @return [Integer, nil] which attempt it is about: 1 for the first
    def attempt = int(:attempt)

    # @return [Integer] failed attempts of the message so far
    def attempts = int(:attempts) || 0

    # @return [Float] seconds until the message comes, or something is tried, again; 0 where neither is
    def delay = seconds(:delay_ms, 1e3) || 0.0

    # @return [Float, nil] how many seconds later than due a retry came back
    def lateness = seconds(:lateness_ms, 1e3)

    # @return [String, nil] why it is parked: exhausted, permanent, too-old, oversized or poison
    def reason = string(:reason)

    # @return [String, nil] the class of the handler's error
    def error_class = string(:error_class)

    # @return [Float, nil] seconds that the handler took; of :retried and :parked from the copy's publish to its confirm
    def duration = seconds(:duration_us, 1e6)

    # @return [Float, nil] seconds from the message's first failure to its success
    def recovery = seconds(:recovery_ms, 1e3)

    # @return [Integer] how many messages it is about
    def count = int(:count) || (int(:attempts) ? 1 : 0)

    # @return [String, nil] of an event about consuming or publishing: "consume" or "publish", of a worker one of its two
    #   connections
    def connection = string(:connection)

    # @return [String, nil] its "host:port"
    def host = string(:host)

    # @return [Integer] how it is logged: one of Logger's levels
    def level = LEVELS.fetch(@native.level)

    # @return [Hash{Symbol => Object}] what it has
    def to_h = READERS.to_h { |reader| [reader, public_send(reader)] }.compact

    # @return [String] a line for people
    def to_s = @native.line

    # @return [String]
    def inspect = "#<#{self.class} #{self}>"

    private

    def string(field)
      number = FIELDS.fetch(field)
      @native.string(number) if @native.has(number) == 1
    end

    def int(field)
      number = FIELDS.fetch(field)
      Native.bh_event_int(@native, number) if @native.has(number) == 1
    end

    def seconds(field, unit) = int(field)&.then { |value| value / unit }
  end

  # What of Backhop's own is given as on_event, and needs to be told of each copy, by a worker too.
  # @api private
  module Bridge; end
  private_constant :Bridge

  # Who is told of events: the log, and whom on_event names.
  # @api private
  class Listeners
    # A line of the log, for a formatter that wants more than the text.
    class Line < String
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
      # The line to log for an event; "" where too many like it were logged.
      def line(event)
        now_ms = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)
        Line.new(@lock.synchronize { @log.line(event.native, now_ms) }, event)
      end

      # Logs, in lines that are bounded, that who was told of an event of a queue failed at it.
      def failed(name, queue, error, logger = Backhop.logger)
        native = Event.made(name)
        Event.set(native, :queue, queue)
        now_ms = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)
        line = @lock.synchronize { @log.listener_line(native, Outcomes.text(error), now_ms) }
        Backhop.log(Logger::ERROR, logger) { line } unless line.empty?
      end
    end

    # Microseconds, to measure with.
    def self.now_us = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

    # @param on_event [#call, Array<#call>, nil]
    # @param clock [#call] gives the moment, as a Time or seconds since the epoch
    # @param logger [Logger, nil] nil: {Backhop.logger}, as it is then
    def initialize(queue, on_event, clock, logger = nil)
      @queue = queue
      @clock = clock
      given = (on_event.is_a?(Array) ? on_event : [on_event].compact).map { |each| Values.callable(each, "on_event") }
      @metrics, @listeners = given.uniq.partition { |each| each.is_a?(Metrics) && !each.hands_on? }
      @is_given = !given.empty? # whether events are given to anybody but the log
      @logger = logger
    end

    # Those that count are told of whom it is that has copies which are not confirmed.
    def attach(source)
      [*@metrics, *@listeners.grep(Metrics)].each { |each| each.attach(source) }
    end

    # Those that cannot ask for it when they are read are told that the number of these copies is another.
    def note_pending
      @noting ||= @listeners.grep(Metrics)
      @noting.each do |each|
        each.note_pending
      rescue *Outcomes::FAILURES => e
        failed(:retried, e)
      end
    end

    # Leaves to the core of a worker what it can count itself, once for all metrics.
    #
    # @return [Array<Metrics>] these
    def leave_to_core
      @metrics.tap do
        @metrics = []
        @is_given = any?
      end
    end

    # Whether there are any, but for metrics that the core counts.
    def any? = !@listeners.empty?

    # Whether one of them needs to be told of each copy that is safe.
    def bridges? = @listeners.any?(Bridge)

    # Tells an event whose fields the block sets.
    #
    # @yieldparam native [Native::Event]
    def tell(name, error = nil)
      native = Event.made(name)
      Event.set(native, :queue, @queue)
      yield native
      pass(Event.new(native, error))
    end

    # Tells an event that the core made.
    def pass(event)
      count(event.name) { |metrics| metrics.observe(event.native) }
      give(event)
    end

    # A handler begins with a message, in whatever thread.
    def begin(message)
      message.began_us = Listeners.now_us if message.began_us
    end

    # Tells that a handler gets a message, or what it made of it. Metrics count an attempt at its end.
    #
    # @param text [String, nil] the error, in words
    def tell_message(name, message, error = nil, text = nil)
      return unless @is_given || logs?(Event::LEVELS_OF[name])

      is_heard = heard?(name)
      is_end = name != :delivered
      now_us = Listeners.now_us
      message.began_us = now_us unless is_end
      return unless is_heard || is_end

      took_us = is_end && message.began_us ? now_us - message.began_us : -1
      about = [Event.number(name), @queue, message.history.native, message.redelivered? ? 1 : 0,
               Times.since_epoch(@clock.call), error ? Outcomes.class_name(error) : ""]
      count(name) { |metrics| metrics.count_message(*about, took_us) } if is_end
      return unless is_heard

      native = Event.made(name)
      Status.check(native.fill_message(*about, text || "", took_us))
      give(Event.new(native, error, message.traceparent))
    rescue Error # of a message that cannot be read: that is told where it is to be settled
      nil
    end

    # Tells that the broker took what became of a message by its plan.
    #
    # @param took_us [Integer, nil] of a copy, from its publish to its confirm
    def tell_plan(name, plan, error, took_us = nil)
      return unless @is_given || logs?(Event::LEVELS_OF[name])

      is_heard = heard?(name)
      number = Event.number(name)
      error_class = error ? Outcomes.class_name(error) : ""
      made = plan.native
      count(name) do |metrics|
        metrics.count_copy(number, @queue, made.attempts, made.delay_ms, made.reason, error_class, took_us || -1)
      end
      return unless is_heard

      native = Event.made(name)
      Status.check(native.fill_plan(number, @queue, made, error_class, took_us || -1))
      give(Event.new(native, error, plan.traceparent))
    end

    private

    # Has the metrics count an event. What one raises is logged, and breaks nothing.
    #
    # @yieldreturn [Integer] the core's status
    def count(name)
      @metrics.each do |each|
        Status.check(yield(each.native))
      rescue *Outcomes::FAILURES => e
        failed(name, e)
      end
    end

    # Logs an event, and hands it to each listener, likewise.
    def give(event)
      log(event)
      @listeners.each do |listener|
        listener.call(event)
      rescue *Outcomes::FAILURES => e
        failed(event.name, e)
      end
    end

    def failed(name, error) = Listeners.failed(name, @queue, error, logger)

    # Whether a listener, or the log, wants such an event.
    def heard?(name) = !@listeners.empty? || logs?(Event::LEVELS_OF[name])

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
