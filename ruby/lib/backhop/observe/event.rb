# frozen_string_literal: true

module Backhop
  # Something that happened to a message or a connection. Bunny, Kicks and the worker emit the same
  # events; docs/observability.md lists them.
  class Event
    KINDS = (0...Native::BH_EVENT_LAST).to_h { |kind| [Native.bh_event_name(kind).to_sym, kind] }.freeze
    NAMES = KINDS.keys.freeze
    FIELDS = (0...Native::BH_FIELD_LAST).to_h { |field| [Native.bh_event_field(field).to_sym, field] }.freeze
    LEVELS = { Native::BH_LEVEL_DEBUG => Logger::DEBUG, Native::BH_LEVEL_INFO => Logger::INFO,
               Native::BH_LEVEL_WARNING => Logger::WARN, Native::BH_LEVEL_ERROR => Logger::ERROR }.freeze
    READERS = %i[name queue text error error_text id attempt attempts deferrals delay lateness reason error_class
                 duration recovery count connection host breaker traceparent].freeze
    private_constant :KINDS, :NAMES, :FIELDS, :READERS

    # @api private
    attr_reader :native

    # @return [String, nil] W3C traceparent of the failed attempt's span, if a tracing made one
    attr_reader :traceparent

    # Returns the core's number of an event name.
    # @api private
    def self.number(name) = KINDS.fetch(name)

    # Returns the core's number of a field.
    # @api private
    def self.field(name) = FIELDS.fetch(name)

    # Makes an event of the core without fields.
    # @api private
    def self.made(name) = Core.made(Native.bh_event_new(number(name)))

    # Sets a field of the core's event. Does nothing if the value is nil.
    # @api private
    def self.set(native, field, value)
      return if value.nil?

      number = FIELDS.fetch(field)
      Status.check(value.is_a?(Integer) ? native.set_int(number, value) : native.set_string(number, value))
    end

    # Returns the error that ends a replay, with the core's text.
    #
    # @param error [Class] a subclass of {Error}
    # @param cause [String] text of the client or of the underlying error
    # @api private
    def self.replay_error(error, cause = "")
      native = Core.made(Native.bh_event_new(KINDS.fetch(:replayed)))
      set(native, :status, error.status)
      Status.check(native.set_cause(cause))
      error.new(native.text)
    end

    # Returns the error of a drain that timed out with `count` messages in hand or copies in flight,
    # with the core's text.
    # @api private
    def self.undrained(queue, count)
      native = Core.made(Native.bh_event_new(KINDS.fetch(:drained)))
      { queue: queue, status: WaitTimeoutError.status, count: count }.each { |field, value| set(native, field, value) }
      WaitTimeoutError.new(native.line)
    end

    # Returns the name of the event to emit after a plan was executed and its copy confirmed.
    # @api private
    def self.of_plan(plan) = NAMES.fetch(Native.bh_event_of_copy(plan.native.action))

    # The log level of each event without error fields.
    # @api private
    LEVELS_OF = NAMES.to_h { |name| [name, LEVELS.fetch(made(name).level)] }.freeze
    private_constant :LEVELS

    # @param native [Native::Event]
    # @param error [Exception, nil] the handler's exception, or Backhop's own error
    # @param traceparent [String, nil]
    # @api private
    def initialize(native, error = nil, traceparent = nil)
      @native = native
      @error = error
      @traceparent = traceparent
      freeze
    end

    # @return [Symbol] for example :parked
    def name = NAMES[@native.what]

    # @return [String] the work queue
    def queue = string(:queue) || ""

    # @return [String] the cause and a remedy. For a parked message it is the {#reason}, for a
    #   failure the handler's error. It never contains a password
    def text = @native.text

    # @return [Exception, nil] the handler's exception if it is known, else an {Error} if the event
    #   has a status. It is nil for messages that the poison guard parks
    def error
      return @error if @error

      status = int(:status)
      Status.error(status, text) if status && !status.zero?
    end

    # @return [String, nil] the handler's exception as text
    def error_text = string(:error)

    # @return [String, nil] the message's id, which all attempts share
    def id = string(:id)

    # @return [Integer, nil] number of the attempt, from 1
    def attempt = int(:attempt)

    # @return [Integer] number of failed attempts of the message
    def attempts = int(:attempts) || 0

    # @return [Integer] how often the message waited without an attempt, for :deferred and :parked
    def deferrals = int(:deferrals) || 0

    # @return [Float] seconds until the message is delivered again or the operation is tried again;
    #   0 if neither happens
    def delay = seconds(:delay_ms, 1e3) || 0.0

    # @return [Float, nil] arrival time of a retry minus its due time, in seconds
    def lateness = seconds(:lateness_ms, 1e3)

    # @return [String, nil] why the message is parked: exhausted, permanent, too-old, oversized or
    #   poison
    def reason = string(:reason)

    # @return [String, nil] the class of the handler's error
    def error_class = string(:error_class)

    # @return [Float, nil] duration of the handler in seconds; for :retried and :parked from the
    #   copy's publish to its confirm
    def duration = seconds(:duration_us, 1e6)

    # @return [Float, nil] time from the message's first failure to its success, in seconds
    def recovery = seconds(:recovery_ms, 1e3)

    # @return [Integer] number of messages of the event
    def count = int(:count) || (int(:attempts) ? 1 : 0)

    # @return [String, nil] "consume" or "publish": the connection of an event about consuming or
    #   publishing
    def connection = string(:connection)

    # @return [String, nil] "host:port" of the connection
    def host = string(:host)

    # @return [String, nil] the name of the {Breaker}
    def breaker = string(:breaker)

    # @return [Integer] one of Logger's levels
    def level = LEVELS.fetch(@native.level)

    # @return [Hash{Symbol => Object}] all fields that are not nil
    def to_h = READERS.to_h { |reader| [reader, public_send(reader)] }.compact

    # @return [String] one line of text
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

  # Marks listeners that need an event for each retry, from a worker too. Their presence in on_event
  # implies retry_events.
  # @api private
  module RetryListener; end
  private_constant :RetryListener
end
