# frozen_string_literal: true

module Backhop
  # The rules for delays and limits. A policy is immutable.
  #
  # Times are seconds, as any Numeric, from 1 ms to three years.
  #
  #     policy = Backhop::Policy.new(
  #       initial: 10, factor: 3, max: 3600, jitter: 0.2, max_attempts: 8
  #     )
  #     puts policy.preview
  #     failure       lowest         mean      highest        total  rungs
  #           1          8 s         10 s       12.5 s         10 s      3
  #           2         20 s         30 s         40 s         40 s      4
  #           3    1 min 3 s   1 min 30 s    2 min 5 s   2 min 10 s      4
  #           4   3 min 20 s   4 min 30 s   6 min 40 s   6 min 40 s      4
  #           5  10 min 30 s  13 min 30 s  16 min 40 s  20 min 10 s      3
  #           6  26 min 40 s  40 min 30 s  52 min 30 s     1 h 40 s      4
  #           7  33 min 20 s  48 min 36 s  52 min 30 s   1 h 49 min      3
  class Policy
    KINDS = Core.numbers("BH_KIND_")
    JITTERS = Core.numbers("BH_JITTER_")
    DEFAULTS = Native.bh_policy_defaults.freeze
    SPREAD = 0.2
    LONGEST_MS = 100_000_000_000 # the core's limit
    TIMES = (1..LONGEST_MS)
    LIMITS = (0..LONGEST_MS)
    COUNTS = (0..1_000_000_000)
    private_constant :KINDS, :JITTERS, :DEFAULTS, :SPREAD, :LONGEST_MS, :TIMES, :LIMITS, :COUNTS

    extend Checks::Keywords

    # @api private
    attr_reader :native

    # @param initial [Numeric, nil] delay after the first failure, in seconds; default 1; not
    #   allowed with `steps`
    # @param factor [Numeric, nil] factor from one delay to the next, 1 or more; default 2; only for
    #   kind :exponential
    # @param max [Numeric, nil] upper bound of every delay, jitter included, in seconds; default
    #   300; with `steps` none
    # @param jitter [Numeric, Symbol] 0.2 spreads each delay by 20 % to either side; or :none,
    #   :equal (the upper half), :full (from 0 up), :decorrelated
    # @param max_attempts [Integer, nil] number of attempts, the first one included; 0: no limit;
    #   default 10, with `steps` one more than there are steps
    # @param kind [Symbol, nil] :exponential (default): initial * factor**(n - 1); :linear: initial
    #   * n; :fixed: initial; :steps: the list `steps`
    # @param steps [Array<Numeric>, nil] the delays in order, in seconds; implies kind :steps
    # @param max_age [Numeric] age in seconds, counted from the first failure, after which no retry
    #   starts: the message is parked; 0: no limit
    # @param max_retry_after [Numeric] upper bound of the delay of a RetryAfter, in seconds; 0
    #   ignores RetryAfter
    # @param max_crashes [Integer] number of lost consumers, as quorum queues count them, after
    #   which the message waits before its next delivery. Each further loss makes the delay longer;
    #   after 16 of them the message is parked. 0: no limit
    # @param max_deferrals [Integer] how often Throttled can defer a message; each later Throttled
    #   is a failed attempt. 0: no limit
    # @raise [PolicyError] if a field has the wrong class, is outside its range or contradicts
    #   another field
    def initialize(initial: nil, factor: nil, max: nil, jitter: SPREAD, max_attempts: nil, kind: nil, steps: nil,
                   max_age: 0, max_retry_after: 86_400, max_crashes: 5, max_deferrals: 100)
      @native = Core.made(Native.bh_policy_new)
      set(kind, initial, factor, max, steps, jitter,
          limits(max_attempts, max_age, max_retry_after, max_crashes, max_deferrals))
      check(@native.check)
      @fields = fields(initial || 1, factor || 2, steps, jitter).freeze
      freeze
    end

    # @return [Float, nil] delay after the first failure, in seconds; nil for kind :steps
    def initial = @fields[:initial]

    # @return [Float, nil] factor from one delay to the next; nil unless the kind is :exponential
    def factor = @fields[:factor]

    # @return [Array<Float>] the delays of kind :steps, in seconds; else empty
    def steps = @fields.fetch(:steps, [])

    # Returns the core's default delays before a copy is published again.
    # @api private
    def self.back_off
      allocate.tap do |policy|
        policy.instance_variable_set(:@native, Core.made(Native.bh_back_off_new))
        policy.instance_variable_set(:@fields, {}.freeze)
        policy.freeze
      end
    end

    # @return [Symbol] :exponential, :linear, :fixed or :steps
    def kind = KINDS.key(@native.read[0])

    # @return [Symbol] :none, :spread, :equal, :full or :decorrelated
    def jitter = JITTERS.key(@native.read[4])

    # @return [Integer] number of attempts, the first one included; 0: no limit
    def max_attempts = @native.limits[0]

    # @return [Float] upper bound of every delay, in seconds
    def max = Times.seconds(@native.limits[1])

    # @return [Float] age after which no retry starts, in seconds; 0: no limit
    def max_age = Times.seconds(@native.limits[2])

    # @return [Float] upper bound of the delay of a RetryAfter, in seconds; 0 ignores RetryAfter
    def max_retry_after = Times.seconds(@native.limits[3])

    # @return [Integer] number of lost consumers after which the message waits before its next
    #   delivery; 0: no limit
    def max_crashes = @native.limits[4]

    # @return [Integer] how often Throttled can defer a message; 0: no limit
    def max_deferrals = @native.limits[5]

    # Returns the delay after a failure, by the formula of the policy.
    #
    # @param attempt [Integer] number of the failure: 1, 2, ...
    # @param previous [Numeric] the delay before this one, in seconds; only jitter :decorrelated
    #   uses it
    # @param random [Numeric] a random number, from 0 to below 1
    # @return [Float] seconds
    # @raise [PolicyError] if an argument has the wrong class or is outside its range
    def delay(attempt, previous: 0, random: 0.5)
      Preview.check_attempt(attempt)
      fraction = Checks.fraction(random, "random", PolicyError)
      Times.seconds(@native.delay_ms(attempt, Times.milliseconds(previous), fraction))
    end

    # Returns the delays after one failure by the formula, before they are rounded to rungs.
    #
    # @param attempt [Integer] number of the failure: 1, 2, ...
    # @return [PreviewRow]
    # @raise [PolicyError] if attempt is not such a number
    def row(attempt) = Preview.row(self, attempt)

    # Returns the delays after each failure, as the default ladder rounds them to its rungs.
    # {Topology#preview} shows another strategy or series. If the ladder cannot serve the policy,
    # the delays come from the formula.
    #
    # @param failures [Integer, nil] number of rows, 0 to 10,000; default: all failures that are
    #   retried, at most 20
    # @return [Preview]
    # @raise [PolicyError] if failures is outside its range
    def preview(failures = nil) = Preview.of_policy(self, failures)

    # @return [Hash{Symbol => Object}] keyword arguments, defaults included, from which `new` makes
    #   an equal policy
    def to_h = @fields

    # @return [Boolean] true if the other policy has the same fields
    def ==(other) = other.is_a?(Policy) && to_h == other.to_h
    alias eql? ==

    # @return [Integer]
    def hash = @fields.hash

    # @return [String]
    def inspect = "#{self.class}.new(#{@fields.map { |name, value| "#{name}: #{value.inspect}" }.join(", ")})"

    private

    def set(kind, initial, factor, max, steps, jitter, limits)
      _, initial_ms, default_factor, max_ms = DEFAULTS
      check(@native.set(
              Core.number(KINDS, kind || (steps ? :steps : :exponential), "kind", PolicyError),
              initial.nil? ? 0 : 1, initial.nil? ? initial_ms : time(initial, "initial"),
              factor.nil? ? 0 : 1, factor.nil? ? default_factor : Checks.number(factor, "factor", PolicyError),
              max.nil? ? max_ms : time(max, "max"),
              steps_of(steps).each_with_index.map { |step, index| time(step, "step #{index + 1}") }.pack("q*"),
              *jitter_of(jitter), *limits
            ))
    end

    def jitter_of(jitter)
      return [Core.number(JITTERS, jitter, "jitter", PolicyError), SPREAD] unless jitter.is_a?(Numeric)

      [Native::BH_JITTER_SPREAD, Checks.number(jitter, "jitter", PolicyError)]
    end

    def limits(max_attempts, max_age, max_retry_after, max_crashes, max_deferrals)
      [
        max_attempts ? Checks.integer(max_attempts, "max_attempts", COUNTS, PolicyError) : DEFAULTS.last,
        time(max_age, "max_age", LIMITS), time(max_retry_after, "max_retry_after", LIMITS),
        Checks.integer(max_crashes, "max_crashes", COUNTS, PolicyError),
        Checks.integer(max_deferrals, "max_deferrals", COUNTS, PolicyError)
      ]
    end

    def time(value, name, range = TIMES) = Checks.time(value, name, range, PolicyError)

    def steps_of(steps)
      return [] if steps.nil?
      raise PolicyError, "steps is #{Text.shown(steps)}: give an Array of seconds" unless steps.is_a?(Array)
      raise PolicyError, "steps is empty: give the delays, in order, or leave it out" if steps.empty?

      steps
    end

    def fields(initial, factor, steps, jitter)
      spread = jitter.is_a?(Numeric) ? jitter.to_f : jitter
      {
        kind: kind,
        initial: (seconds(initial) unless steps),
        factor: (factor.to_f if kind == :exponential),
        steps: steps&.map { |step| seconds(step) }&.freeze,
        max: max,
        jitter: self.jitter == :none ? :none : spread,
        max_attempts: max_attempts, max_age: max_age, max_retry_after: max_retry_after, max_crashes: max_crashes,
        max_deferrals: max_deferrals
      }.compact
    end

    def seconds(value) = Times.seconds(Times.milliseconds(value))

    def check(status) = Status.check(status, @native.error)
  end
end
