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
    Result = Struct.new(:outcome, :error, :retry_after, :policy)

    OK = Result.new(:ok, "", 0, nil).freeze

    # Exceptions that are a handler's failure. Not among them: what ends the process (SystemExit, SignalException).
    FAILURES = [StandardError, ScriptError, NoMemoryError, SystemStackError].freeze

    UNPRINTABLE = "an exception that cannot be printed"
    MOST_CAUSES = 8
    MOST_MEMBERS = 8
    MOST_CODE = 64 # characters

    module_function

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

    # The exception in words: what it says of itself, its code, those that it holds, and what it was raised from.
    def text(exception)
      causes(exception).map { |each| one(each) }.join("; caused by ")
    rescue *FAILURES # what cannot be printed is no reason to lose a message
      name(exception)
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

      message = part { writable(exception.message.to_s) }
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

    # The name of the exception's class; of RetryAfter and Park, of what they were raised for, where that is one.
    def class_name(exception)
      case exception
      when RetryAfter then given = exception.error || exception.cause
      when Park then given = exception.reason || exception.cause
      end
      given.is_a?(Exception) && !given.equal?(exception) ? class_name(given) : writable(name(exception))
    rescue *FAILURES
      UNPRINTABLE
    end

    def part
      yield
    rescue *FAILURES
      ""
    end

    def code(exception)
      code = exception.code if exception.respond_to?(:code)
      case code
      when Integer, Symbol, String then writable(code.to_s)[0, MOST_CODE]
      else ""
      end
    end

    def members(exception)
      members = exception.respond_to?(:errors) ? exception.errors : []
      return "" unless members.is_a?(Array) && !members.empty? && members.all?(Exception)

      texts = members.first(MOST_MEMBERS).map { |each| part { "#{name(each)}: #{writable(each.message.to_s)}" } }
      texts << "#{members.size - MOST_MEMBERS} more" if members.size > MOST_MEMBERS
      texts.join(", ")
    end

    # As valid UTF-8.
    def writable(text)
      return text if text.ascii_only? && text.encoding.ascii_compatible?

      text = text.encoding == Encoding::BINARY ? text.dup.force_encoding(Encoding::UTF_8) : text.encode(Encoding::UTF_8)
      escaped(text)
    rescue EncodingError
      escaped(text.dup.force_encoding(Encoding::UTF_8))
    end

    def escaped(text) = text.scrub { |bytes| bytes.bytes.map { |byte| format("\\x%02x", byte) }.join }
  end
  private_constant :Outcomes

  # What an exception of a handler means, by the options never, only and policies.
  # @api private
  class Choice
    # Policies by classes of exceptions, or by predicates.
    def self.policies(given)
      Values.object(given, "policies", Hash).each do |key, policy|
        unless key.is_a?(Module) || key.respond_to?(:call)
          raise InvalidArgumentError, "policies has #{Values.shown(key)}: give classes of exceptions, or predicates that " \
                                      "take an exception"
        end
        Values.object(policy, "policies: that of #{Values.shown(key)}", Policy)
      end
    end

    def initialize(never, only, policies = {})
      @never = list(never, "never")
      @only = list(only, "only")
      @policies = Choice.policies(policies).dup.freeze
      @decides = !@only.empty?
    end

    # @return [Outcomes::Result] its policy is nil where it is the queue's own
    def result_of(exception)
      case exception
      when RetryAfter
        Outcomes::Result.new(:failed, Outcomes.why(exception, exception.error), exception.delay, policy_of(exception))
      when Park then Outcomes::Result.new(:permanent, Outcomes.why(exception, exception.reason), 0)
      when Drop then Outcomes::Result.new(:dropped, "", 0)
      else chosen(exception)
      end
    end

    private

    # Classes and predicates, of which one may stand alone.
    def list(given, name)
      list = given.is_a?(Array) ? given : [given].compact
      list.each do |each|
        next if each.is_a?(Module) || each.respond_to?(:call)

        raise InvalidArgumentError, "#{name} holds #{Values.shown(each)}: give classes of exceptions, or predicates that " \
                                    "take an exception"
      end
      list.dup.freeze
    end

    def chosen(exception)
      verdict = first(@never, exception)
      if verdict.nil? && @decides
        verdict = first(@only, exception)
        verdict = verdict.nil? || (verdict == true ? nil : verdict)
      end
      outcome = verdict == true ? :permanent : :failed
      return Outcomes::Result.new(outcome, Outcomes.text(exception), 0) if outcome == :permanent

      Outcomes::Result.new(outcome, Outcomes.text(exception), verdict || 0, policy_of(exception))
    end

    # The policy of the first that fits.
    def policy_of(exception)
      @policies.find { |each, _| each.is_a?(Module) ? exception.is_a?(each) : asked(each, exception) }&.last
    end

    # What the first that fits says: true, or a delay in seconds; nil where none fits.
    def first(list, exception)
      list.each do |each|
        verdict = each.is_a?(Module) ? exception.is_a?(each) : asked(each, exception)
        return verdict if verdict
      end
      nil
    end

    # A predicate that fails has nothing to say.
    def asked(predicate, exception)
      verdict = predicate.call(exception)
      return verdict ? true : false unless verdict.is_a?(Numeric)

      Times.milliseconds(verdict).positive? && verdict
    rescue *Outcomes::FAILURES => e
      Backhop.log(Logger::ERROR) { "a predicate of never, only or policies failed, and is not asked: #{Outcomes.text(e)}" }
      false
    end
  end
  private_constant :Choice
end
