# frozen_string_literal: true

module Backhop
  # Raise this in a handler to retry the message after a delay of your choice. The policy's delay
  # applies if it is longer; the policy's max_retry_after caps your delay.
  #
  #     raise Backhop::RetryAfter.new(30)
  #     raise Backhop::RetryAfter.new(30, "507 queue is full")
  class RetryAfter < StandardError
    # @return [String, Exception, nil] the reason
    attr_reader :error

    # @param delay [Numeric, String, Time, nil] the shortest delay: seconds, a text as "30s", a
    #   time, or the value of HTTP's header Retry-After, a date too. With 0, nil (a missing header),
    #   a malformed header or a time in the past, the policy's delay counts
    # @param error [String, Exception, nil] the reason, which the copy carries in a header; default:
    #   the exception's cause
    # @raise [InvalidArgumentError] if the delay is a negative number or none of these
    def initialize(delay, error = nil)
      @delay = RetryAfter.seconds(delay)
      super("again, not before #{Times.duration(@delay)}")
      @error = error
    end

    # @return [Numeric] the shortest delay, in seconds, 0 or more; 0 if a subclass did not call this
    #   constructor
    def delay = @delay || 0

    # Returns a delay in seconds.
    # @api private
    def self.seconds(delay)
      return 0 if delay.nil?
      return [delay.to_time - Time.now, 0].max if delay.is_a?(Time) || (defined?(DateTime) && delay.is_a?(DateTime))

      # A header is written by others: it must not change what becomes of the message.
      ms = Times.read(delay) || (delay.is_a?(String) && Native.bh_retry_after_ms(delay, Times.since_epoch(Time.now)))
      return Times.seconds(ms) if ms && !ms.negative?

      raise InvalidArgumentError,
            "the delay of RetryAfter is #{Text.shown(delay)}: give seconds of 0 or more, a text as " \
            "\"30s\", a Time, or the value of HTTP's header Retry-After"
    end
  end

  # Raise this in a handler if the downstream is busy. The message waits, and this is no attempt.
  # After the policy's max_deferrals, and with the strategies :reject and :native, it is a failed
  # attempt, as RetryAfter.
  #
  #     raise Backhop::Throttled.new(response["Retry-After"], "429")
  #     raise Backhop::Throttled.new(30, "503", whole_queue: true) # also opens the breaker for 30 s
  class Throttled < RetryAfter
    # @param delay [Numeric, String, Time, nil] see {RetryAfter#initialize}; likewise error
    # @param whole_queue [Boolean] whether the breaker opens for that time, so that no handler gets
    #   a message. Without a breaker only this message waits
    # @raise [InvalidArgumentError] see {RetryAfter#initialize}, or whole_queue is neither true nor
    #   false
    def initialize(delay, error = nil, whole_queue: false)
      super(delay, error)
      @whole_queue = Checks.truth(whole_queue, "whole_queue")
    end

    # @return [Boolean] whether the breaker opens for that time
    def whole_queue? = @whole_queue || false
  end

  # Raise this in a handler if no attempt can succeed. The message is parked now.
  #
  #     raise Backhop::Park, "no such file"
  class Park < StandardError
    # @return [String, Exception, nil] the reason
    attr_reader :reason

    # @param reason [String, Exception, nil] the reason, which the copy carries in a header;
    #   default: the exception's cause
    def initialize(reason = nil)
      super(reason ? reason.to_s : "no attempt can succeed")
      @reason = reason
    end
  end

  # Raise this in a handler to acknowledge a message without handling it. No copy is kept.
  class Drop < StandardError; end

  # Turns a handler's exception into text.
  # @api private
  module Outcomes
    # The decision for one attempt: outcome, error text, delay in seconds, policy (nil: the queue's
    # own), and whether a throttled outcome opens the breaker.
    Result = Struct.new(:outcome, :error, :retry_after, :policy, :whole_queue)

    OK = Result.new(:ok, "", 0, nil, false).freeze

    # Exceptions that count as a failure of the handler. SystemExit and SignalException end the
    # process instead.
    FAILURES = [StandardError, ScriptError, NoMemoryError, SystemStackError].freeze

    # Classes without a text of the application. A subclass may have one. Its initialize may not
    # call theirs.
    OWN = [RetryAfter, Throttled, Park].freeze

    UNPRINTABLE = "an exception that cannot be printed"
    MOST_CAUSES = 8
    MOST_MEMBERS = 8
    MOST_CODE = 64 # characters

    module_function

    # Returns the reason of a RetryAfter or Park: its argument, else the text of its cause. A
    # subclass can have a text of its own.
    def reason(exception)
      given = given_to(exception)
      given = exception.cause if given.nil? || given == ""
      case given
      when nil then OWN.include?(exception.class) ? "" : text(exception)
      when RetryAfter, Park then reason(given)
      when Exception then text(given)
      else Text.utf8(given.to_s)
      end
    rescue *FAILURES # the message must not be lost because its reason cannot be printed
      "a reason that cannot be printed"
    end

    # Returns the exception as text: class, message, code, members and causes.
    def text(exception)
      causes(exception).map { |each| one(each) }.join("; caused by ")
    rescue *FAILURES # the message must not be lost because its error cannot be printed
      name(exception)
    end

    # Returns the same as one line for a log.
    def line(exception) = Text.line(text(exception))

    # Returns the argument of a RetryAfter or Park.
    def given_to(exception)
      case exception
      when Park then exception.reason
      else exception.error
      end
    rescue *FAILURES # of a subclass
      nil
    end

    # Returns the delay of a RetryAfter, in seconds.
    def delay_of(exception)
      RetryAfter.seconds(exception.delay)
    rescue *FAILURES # of a subclass
      0
    end

    # Returns true if a Throttled opens the breaker.
    def whole_queue?(exception)
      exception.whole_queue? == true
    rescue *FAILURES # of a subclass
      false
    end

    def causes(exception)
      chain = []
      while exception && chain.size < MOST_CAUSES && chain.none? { |each| each.equal?(exception) }
        chain << exception
        exception = exception.cause
      end
      chain
    end

    def one(exception)
      name = name(exception)
      return name if name == UNPRINTABLE

      message = part { Text.utf8(exception.message.to_s) }
      text = message.empty? || message == name ? name : "#{name}: #{message}"
      code = part { code(exception) }
      text += " (code #{code})" unless code.empty? || text.include?(code)
      members = part { members(exception) }
      members.empty? ? text : "#{text}; with #{members}"
    end

    def name(exception)
      exception.class.to_s
    rescue *FAILURES
      UNPRINTABLE
    end

    # Returns the name of the exception's class. For RetryAfter and Park it is the class of the
    # reason, if that is an exception.
    def class_name(exception)
      given = reason_of(exception)
      given ? class_name(given) : Text.utf8(name(exception))
    rescue *FAILURES
      UNPRINTABLE
    end

    # Returns the exception that is the reason of a RetryAfter or Park; nil if there is none.
    def reason_of(exception)
      case exception
      when RetryAfter, Park then given = given_to(exception) || exception.cause
      end
      case given
      when Exception then given unless given.equal?(exception)
      end
    end

    def part
      yield
    rescue *FAILURES
      ""
    end

    def code(exception)
      code = exception.code if exception.respond_to?(:code)
      case code
      when Integer, Symbol, String then Text.utf8(code.to_s)[0, MOST_CODE]
      else ""
      end
    end

    # Returns the exceptions that an exception holds in `errors`, as text.
    def members(exception)
      members = exception.respond_to?(:errors) ? exception.errors : []
      return "" unless members.is_a?(Array) && !members.empty? && members.all?(Exception)

      texts = members.first(MOST_MEMBERS).map { |each| part { "#{name(each)}: #{Text.utf8(each.message.to_s)}" } }
      texts << "#{members.size - MOST_MEMBERS} more" if members.size > MOST_MEMBERS
      texts.join(", ")
    end
  end
  private_constant :Outcomes
end
