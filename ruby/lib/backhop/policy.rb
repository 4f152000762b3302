# frozen_string_literal: true

module Backhop
  # The delay after one failure, in seconds.
  #
  # @!attribute [r] attempt
  #   @return [Integer] after which failure: 1, 2, ...
  # @!attribute [r] lowest
  #   @return [Float]
  # @!attribute [r] mean
  #   @return [Float]
  # @!attribute [r] highest
  #   @return [Float]
  # @!attribute [r] total
  #   @return [Float] sum of the means up to this attempt
  # @!attribute [r] rungs
  #   @return [Integer] over how many of the ladder's wait queues messages that fail together are spread; 0 where there is no
  #     ladder
  PreviewRow = Struct.new(:attempt, :lowest, :mean, :highest, :total, :rungs, keyword_init: true)

  # What a topology will do by its policy: PreviewRows that print as a table.
  class Preview
    include Enumerable

    HEAD = %w[failure lowest mean highest total rungs].freeze
    private_constant :HEAD

    # @api private
    def initialize(rows)
      @rows = rows.freeze
      freeze
    end

    # @yieldparam row [PreviewRow]
    # @return [Preview, Enumerator]
    def each(&block)
      return @rows.each unless block

      @rows.each(&block)
      self
    end

    # @return [PreviewRow, nil] the row of that index; the first is 0
    def [](index) = @rows[index]

    # @return [Integer] how many failures
    def size = @rows.size

    # @return [String] a table
    def to_s
      cells = [HEAD] + map do |row|
        [row.attempt.to_s, *row.to_a[1..4].map { |time| Times.duration(time) }, row.rungs.zero? ? "-" : row.rungs.to_s]
      end
      widths = cells.transpose.map { |column| column.map(&:size).max }
      cells.map { |row| row.zip(widths).map { |cell, width| cell.rjust(width) }.join("  ") }.join("\n")
    end
    alias inspect to_s
  end

  # How long to wait, how often to try, how random, when to give up. It never changes.
  #
  # Times are seconds, as any Numeric, from 1 ms to three years.
  #
  #     puts Backhop::Policy.new(initial: 10, factor: 3, max: 3600, jitter: 0.2, max_attempts: 8).preview
  #     failure       lowest         mean      highest        total  rungs
  #           1          8 s         10 s       12.5 s         10 s      3
  #           2         20 s         30 s         40 s         40 s      4
  #           3    1 min 3 s   1 min 30 s    2 min 5 s   2 min 10 s      4
  #           4   3 min 20 s   4 min 30 s   6 min 40 s   6 min 40 s      4
  #           5  10 min 30 s  13 min 30 s  16 min 40 s  20 min 10 s      3
  #           6  26 min 40 s  40 min 30 s  52 min 30 s     1 h 40 s      4
  #           7  33 min 20 s  48 min 36 s  52 min 30 s   1 h 49 min      3
  class Policy
    KINDS = {
      exponential: Native::BH_KIND_EXPONENTIAL,
      linear: Native::BH_KIND_LINEAR,
      fixed: Native::BH_KIND_FIXED,
      steps: Native::BH_KIND_STEPS
    }.freeze
    JITTERS = {
      none: Native::BH_JITTER_NONE,
      spread: Native::BH_JITTER_SPREAD,
      equal: Native::BH_JITTER_EQUAL,
      full: Native::BH_JITTER_FULL,
      decorrelated: Native::BH_JITTER_DECORRELATED
    }.freeze
    SPREAD = 0.2
    ROWS = 20
    MOST_ROWS = 10_000
    LONGEST_MS = 100_000_000_000 # the core's, as all limits of a field
    ATTEMPTS = (1..((2**53) - 1))
    TIMES = (1..LONGEST_MS)
    LIMITS = (0..LONGEST_MS)
    COUNTS = (0..1_000_000_000)
    private_constant :KINDS, :JITTERS, :SPREAD, :ROWS, :MOST_ROWS, :LONGEST_MS, :ATTEMPTS, :TIMES, :LIMITS, :COUNTS

    extend Values::Keywords

    # @api private
    attr_reader :native

    # @param initial [Numeric, nil] delay after the first failure, in seconds; default 1, of kind :steps none
    # @param factor [Numeric, nil] kind :exponential only: what each delay is multiplied by, 1 or more; default 2
    # @param max [Numeric, nil] no delay is above it, jitter included; in seconds; default 5 minutes, with steps none
    # @param jitter [Numeric, Symbol] 0.2 spreads each delay by 20 % to either side; or :none, :equal (the upper half),
    #   :full (anything below), :decorrelated
    # @param max_attempts [Integer, nil] how often a handler sees a message in all, the first time included; 0: no limit;
    #   default 10, with steps one more than steps
    # @param kind [Symbol, nil] :exponential (the default): initial * factor**(n - 1); :linear: initial * n; :fixed:
    #   initial; :steps
    # @param steps [Array<Numeric>, nil] the delays, in order; the kind is :steps then
    # @param max_age [Numeric] from the first failure, in seconds; a retry that would start later parks instead; 0: no limit
    # @param max_retry_after [Numeric] cap on what a handler may ask for with RetryAfter, in seconds; 0: requests are ignored
    # @param max_crashes [Integer] a message whose consumers were lost this often, as far as quorum queues count, waits before
    #   a handler sees it again, longer with each further loss, and is parked after 16 such waits; 0: no limit
    # @raise [PolicyError] for a field that is out of its range or of another class, and for fields that contradict each
    #   other, or of which one has no meaning beside another
    def initialize(initial: nil, factor: nil, max: nil, jitter: SPREAD, max_attempts: nil, kind: nil, steps: nil, max_age: 0,
                   max_retry_after: 86_400, max_crashes: 5)
      @native = Core.made(Native.bh_policy_new)
      set_kind(kind, steps, initial, factor)
      set_delays(initial, factor, max, steps, jitter)
      set_limits(max_attempts, max_age, max_retry_after, max_crashes)
      check(@native.check)
      @fields = fields(initial || 1, factor || 2, steps, jitter).freeze
      freeze
    end

    # @return [Float, nil] the delay after the first failure, in seconds; nil of kind :steps
    def initial = @fields[:initial]

    # @return [Float, nil] what each delay is multiplied by; nil of a kind that has none
    def factor = @fields[:factor]

    # @return [Array<Float>] the delays of kind :steps, in seconds
    def steps = @fields.fetch(:steps, [])

    # Delays before copies are published again, where nothing else is said.
    # @api private
    def self.back_off = new(initial: 0.1, factor: 2, max: 10, jitter: :equal)

    # @api private
    def self.check_attempt(attempt) = Values.integer(attempt, "attempt", ATTEMPTS, PolicyError)

    # @return [Symbol] :exponential, :linear, :fixed or :steps
    def kind = KINDS.key(@native.kind)

    # @return [Symbol] :none, :spread, :equal, :full or :decorrelated
    def jitter = JITTERS.key(@native.jitter)

    # @return [Integer] how often a handler sees a message in all; 0: no limit
    def max_attempts = @native.max_attempts

    # @return [Float] the cap in force, in seconds
    def max = Times.seconds(@native.max_ms)

    # @return [Float] from the first failure, in seconds; 0: no limit
    def max_age = Times.seconds(@native.max_age_ms)

    # @return [Float] cap on what a handler may ask for, in seconds
    def max_retry_after = Times.seconds(@native.max_retry_after_ms)

    # @return [Integer] crashes at which a message waits, before a handler sees it again; 0: no limit
    def max_crashes = @native.max_crashes

    # The delay after the attempt-th failure.
    #
    # @param attempt [Integer] 1, 2, ...
    # @param previous [Numeric] the delay before this one, in seconds, for jitter :decorrelated
    # @param random [Numeric] the random number, from 0 to below 1
    # @return [Float] seconds
    # @raise [PolicyError] for a number that is none of these
    def delay(attempt, previous: 0, random: 0.5)
      Policy.check_attempt(attempt)
      Values.object(random, "random", Numeric, PolicyError)
      Times.seconds(@native.delay_ms(attempt, Times.milliseconds(previous), random))
    end

    # @param attempt [Integer] 1, 2, ...
    # @return [PreviewRow] the delay after the attempt-th failure by the formula alone, before it waits on a rung
    # @raise [PolicyError] for a number that is none
    def row(attempt)
      Policy.check_attempt(attempt)
      PreviewRow.new(
        attempt: attempt,
        lowest: Times.seconds(@native.lowest_ms(attempt)),
        mean: Times.seconds(@native.mean_ms(attempt)),
        highest: Times.seconds(@native.highest_ms(attempt)),
        total: Times.seconds(@native.total_ms(attempt)),
        rungs: 0
      ).freeze
    end

    # The lowest, mean and highest delay after each failure, as the ladder's rungs make them, and their running total. Of
    # another strategy or series, {Topology#preview} tells. A policy that the ladder cannot serve is shown by its formula.
    #
    # @param failures [Integer, nil] how many; default: all that are retried, at most 20
    # @return [Preview]
    # @raise [PolicyError] for a number that is none, or above 10,000
    def preview(failures = nil)
      Topology.new("preview", policy: self).preview(failures)
    rescue StrategyError
      Preview.new(previewed(failures).map { |attempt| row(attempt) })
    end

    # The failures that a preview shows.
    # @api private
    def previewed(count)
      count ||= max_attempts.zero? ? ROWS : [ROWS, max_attempts - 1].min
      Values.integer(count, "failures", (0..MOST_ROWS), PolicyError)
      1..count
    end

    # @return [Hash{Symbol => Object}] what it does, defaults included: keyword arguments that make the same policy again
    def to_h = @fields

    # @return [Boolean] whether it does the same
    def ==(other) = other.is_a?(Policy) && to_h == other.to_h
    alias eql? ==

    # @return [Integer]
    def hash = @fields.hash

    # @return [String]
    def inspect = "#{self.class}.new(#{@fields.map { |name, value| "#{name}: #{value.inspect}" }.join(", ")})"

    private

    def set_kind(kind, steps, initial, factor)
      kind ||= steps ? :steps : :exponential
      check(@native.set_kind(Core.number(KINDS, kind, "kind", PolicyError)))
      if kind == :steps && initial
        raise PolicyError, "initial is given beside steps, which are all delays: leave one of them out"
      end
      return unless factor && kind != :exponential

      raise PolicyError, "factor is given, and kind #{kind} has none: leave it out, or take kind :exponential"
    end

    def set_delays(initial, factor, max, steps, jitter)
      check(@native.set_initial_ms(time(initial, "initial"))) unless initial.nil?
      check(@native.set_factor(Values.number(factor, "factor", PolicyError))) unless factor.nil?
      check(@native.set_max_ms(time(max, "max"))) unless max.nil?
      steps_of(steps).each_with_index { |step, index| check(@native.add_step_ms(time(step, "step #{index + 1}"))) }
      if jitter.is_a?(Numeric)
        check(@native.set_jitter(Native::BH_JITTER_SPREAD, Values.number(jitter, "jitter", PolicyError)))
      else
        check(@native.set_jitter(Core.number(JITTERS, jitter, "jitter", PolicyError), SPREAD))
      end
    end

    def set_limits(max_attempts, max_age, max_retry_after, max_crashes)
      check(@native.set_max_attempts(Values.integer(max_attempts, "max_attempts", COUNTS, PolicyError))) if max_attempts
      check(@native.set_max_age_ms(time(max_age, "max_age", LIMITS)))
      check(@native.set_max_retry_after_ms(time(max_retry_after, "max_retry_after", LIMITS)))
      check(@native.set_max_crashes(Values.integer(max_crashes, "max_crashes", COUNTS, PolicyError)))
    end

    def time(value, name, range = TIMES) = Values.time(value, name, range, PolicyError)

    def steps_of(steps)
      return [] if steps.nil?
      raise PolicyError, "steps is #{Values.shown(steps)}: give an Array of seconds" unless steps.is_a?(Array)
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
        max_attempts: max_attempts, max_age: max_age, max_retry_after: max_retry_after, max_crashes: max_crashes
      }.compact
    end

    def seconds(value) = Times.seconds(Times.milliseconds(value))

    def check(status) = Status.check(status, @native.error)
  end
end
