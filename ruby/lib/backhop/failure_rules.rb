# frozen_string_literal: true

module Backhop
  # Maps a handler's exception to an outcome, by the options never, only and policies.
  # @api private
  class FailureRules
    # Checks the option policies: a Hash from classes of exceptions, or predicates, to policies.
    def self.policies(given)
      Checks.object(given, "policies", Hash).each do |key, policy|
        unless key.is_a?(Module) || key.respond_to?(:call)
          raise InvalidArgumentError,
                "policies has #{Text.shown(key)}: give classes of exceptions, or predicates that " \
                "take an exception"
        end
        Checks.object(policy, "policies: that of #{Text.shown(key)}", Policy)
      end
    end

    # Returns classes and predicates as an Array. Accepts a single one.
    def self.list(given, name)
      list = given.is_a?(Array) ? given : [given].compact
      list.each do |each|
        next if each.is_a?(Module) || each.respond_to?(:call)

        raise InvalidArgumentError,
              "#{name} holds #{Text.shown(each)}: give classes of exceptions, or predicates that " \
              "take an exception"
      end
      list.dup.freeze
    end

    # Returns true, a delay in seconds, or a Throttled, from the first entry that matches; nil if
    # none does.
    def self.verdict(list, exception)
      list.each do |each|
        verdict = each.is_a?(Module) ? of?(exception, each) : call(each, exception)
        return verdict if verdict
      end
      nil
    end

    # Returns true if an exception is of a class. An exception's own is_a? may raise.
    def self.of?(exception, type) = type === exception # rubocop:disable Style/CaseEquality

    # Returns the predicate's verdict: true, false, a delay in seconds, or a Throttled. A predicate
    # that raises does not match.
    def self.call(predicate, exception)
      verdict = predicate.call(exception)
      return verdict if verdict.is_a?(Throttled)
      return verdict ? true : false unless verdict.is_a?(Numeric)

      Times.milliseconds(verdict).positive? && verdict
    rescue *Outcomes::FAILURES => e
      Backhop.log(Logger::ERROR) { "a predicate failed and is ignored: #{Outcomes.line(e)}" }
      false
    end

    def initialize(never, only, policies = {})
      @never = FailureRules.list(never, "never")
      @only = FailureRules.list(only, "only")
      @policies = FailureRules.policies(policies).dup.freeze
    end

    # @return [Outcomes::Result] policy is nil if no entry of `policies` matches: the queue's own
    #   policy applies
    def result_of(exception)
      case exception
      when RetryAfter
        outcome, delay, whole = wait_of(exception)
        Outcomes::Result.new(outcome, Outcomes.reason(exception), delay, policy_of(exception), whole)
      when Park then Outcomes::Result.new(:permanent, Outcomes.reason(exception), 0)
      when Drop then Outcomes::Result.new(:dropped, "", 0)
      else by_rules(exception)
      end
    end

    private

    def by_rules(exception)
      verdict = FailureRules.verdict(@never, exception) || verdict_of_only(exception)
      return Outcomes::Result.new(:permanent, Outcomes.text(exception), 0) if verdict == true

      outcome, delay, whole = verdict.is_a?(Throttled) ? wait_of(verdict) : [:failed, verdict || 0, false]
      Outcomes::Result.new(outcome, Outcomes.text(exception), delay, policy_of(exception), whole)
    end

    # Returns the outcome of a RetryAfter, its delay, and whether it opens the breaker.
    def wait_of(exception)
      is_throttled = FailureRules.of?(exception, Throttled)
      [is_throttled ? :throttled : :failed, Outcomes.delay_of(exception),
       is_throttled && Outcomes.whole_queue?(exception)]
    end

    # Returns true (park), or nil, a delay in seconds or a Throttled (retry). An exception that no
    # entry of `only` matches parks.
    def verdict_of_only(exception)
      return if @only.empty?

      verdict = FailureRules.verdict(@only, exception)
      return true if verdict.nil?

      verdict unless verdict == true
    end

    # Returns the policy of the first key that matches.
    def policy_of(exception)
      matching = @policies.find do |key, _|
        key.is_a?(Module) ? FailureRules.of?(exception, key) : FailureRules.call(key, exception)
      end
      matching&.last
    end
  end
  private_constant :FailureRules
end
