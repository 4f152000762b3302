# frozen_string_literal: true

module Backhop
  # Raised by a handler: try again, and not before a delay. It is a floor under the policy's delay, capped by its
  # max_retry_after.
  #
  #     raise Backhop::RetryAfter.new(30)
  #     raise Backhop::RetryAfter.new(30, "507 queue is full")
  class RetryAfter < StandardError
    # @return [Numeric] seconds
    attr_reader :delay
    # @return [String, Exception, nil] why
    attr_reader :error

    # @param delay [Numeric] seconds; 0 or less, as of a date that has passed, is none
    # @param error [String, Exception, nil] why, for whoever reads the message's story: a text, or the exception that was
    #   met; default: the exception that this was raised from, as its cause
    def initialize(delay, error = nil)
      Times.milliseconds(delay) # what is no time is the handler's mistake, and raised there
      super("again, not before #{delay} s")
      @delay = delay
      @error = error
    end
  end

  # Raised by a handler: no attempt can succeed. The message is parked now, for a person to look at.
  #
  #     raise Backhop::Park, "no such file"
  class Park < StandardError
    # @return [String, Exception, nil] why
    attr_reader :reason

    # @param reason [String, Exception, nil] why: a text, or the exception that was met; default: the exception that this
    #   was raised from, as its cause
    def initialize(reason = nil)
      super(reason ? reason.to_s : "no attempt can succeed")
      @reason = reason
    end
  end

  # Raised by a handler: nobody needs the message any more. It is acknowledged, and no copy is kept.
  class Drop < StandardError; end

  # What an exception of a handler means.
  # @api private
  module Outcomes
    # What became of a message.
    Result = Struct.new(:outcome, :error, :retry_after)

    OK = Result.new(:ok, "", 0).freeze

    # Exceptions that are a handler's failure. Not among them: what ends the process (SystemExit, SignalException).
    FAILURES = [StandardError, ScriptError, NoMemoryError, SystemStackError].freeze

    module_function

    # The classes of never, for result_of.
    def parking(never)
      Array(never).each do |each|
        raise ::ArgumentError, "never holds #{each.inspect}: give classes of exceptions" unless each.is_a?(Module)
      end
    end

    # @param never [Array<Module>] those of one of these classes park
    def result_of(exception, never = [])
      case exception
      when RetryAfter then Result.new(:failed, why(exception, exception.error), exception.delay)
      when Park then Result.new(:permanent, why(exception, exception.reason), 0)
      when Drop then Result.new(:dropped, "", 0)
      else Result.new(never.any? { |each| exception.is_a?(each) } ? :permanent : :failed, text(exception), 0)
      end
    end

    # Why RetryAfter or Park was raised: what was given, else what it was raised from.
    def why(exception, given)
      given = exception.cause if given.nil? || given == ""
      case given
      when nil then ""
      when RetryAfter, Park then why(given, given.is_a?(Park) ? given.reason : given.error)
      when Exception then text(given)
      else writable(given.to_s)
      end
    rescue *FAILURES # what cannot be printed is no reason to lose a message
      "a reason that cannot be printed"
    end

    # The exception in words.
    def text(exception)
      name = exception.class.to_s
      message = writable(exception.message.to_s)
      message.empty? || message == name ? name : "#{name}: #{message}"
    rescue *FAILURES # what cannot be printed is no reason to lose a message
      name || "an exception that cannot be printed"
    end

    # As valid UTF-8.
    def writable(text)
      text = text.encoding == Encoding::BINARY ? text.dup.force_encoding(Encoding::UTF_8) : text.encode(Encoding::UTF_8)
      escaped(text)
    rescue EncodingError
      escaped(text.dup.force_encoding(Encoding::UTF_8))
    end

    def escaped(text) = text.scrub { |bytes| bytes.bytes.map { |byte| format("\\x%02x", byte) }.join }
  end
  private_constant :Outcomes
end
