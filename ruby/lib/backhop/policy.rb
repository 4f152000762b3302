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
  PreviewRow = Struct.new(:attempt, :lowest, :mean, :highest, :total, keyword_init: true)

  # What a policy will do: PreviewRows that print as a table.
  class Preview
    include Enumerable

    HEAD = %w[failure lowest mean highest total].freeze
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
      cells = [HEAD] + map { |row| [row.attempt.to_s, *row.to_a.drop(1).map { |time| Times.duration(time) }] }
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
  #     failure       lowest         mean      highest        total
  #           1          8 s         10 s         12 s         10 s
  #           2         24 s         30 s         36 s         40 s
  #           3   1 min 12 s   1 min 30 s   1 min 48 s   2 min 10 s
  #           4   3 min 36 s   4 min 30 s   5 min 24 s   6 min 40 s
  #           5  10 min 48 s  13 min 30 s  16 min 12 s  20 min 10 s
  #           6  32 min 24 s  40 min 30 s  48 min 36 s     1 h 40 s
  #           7       40 min       50 min          1 h   1 h 50 min
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
    private_constant :KINDS, :JITTERS, :SPREAD, :ROWS

    # @api private
    attr_reader :native

    # @param initial [Numeric] delay after the first failure, in seconds
    # @param factor [Numeric] kind :exponential only: what each delay is multiplied by, 1 or more
    # @param max [Numeric, nil] no delay is above it, jitter included; in seconds; default 5 minutes, with steps none
    # @param jitter [Numeric, Symbol] 0.2 spreads each delay by 20 % to either side; or :none, :equal (the upper half),
    #   :full (anything below), :decorrelated
    # @param max_attempts [Integer, nil] how often a handler sees a message in all, the first time included; 0: no limit;
    #   default 10, with steps one more than steps
    # @param kind [Symbol, nil] :exponential (the default): initial * factor**(n - 1); :linear: initial * n; :fixed:
    #   initial; :steps
    # @param steps [Array<Numeric>] the delays, in order; the kind is :steps then
    # @param max_age [Numeric] from the first failure, in seconds; a retry that would start later parks instead; 0: no limit
    # @param max_retry_after [Numeric] cap on what a handler may ask for with RetryAfter, in seconds; 0: requests are ignored
    # @param max_crashes [Integer] a message whose consumers were lost this often while they held it is parked before a
    #   handler sees it again, as far as quorum queues count; 0: no limit
    # @raise [PolicyError] for a field out of its range, or fields that contradict each other
    def initialize(initial: 1, factor: 2, max: nil, jitter: SPREAD, max_attempts: nil, kind: nil, steps: [], max_age: 0,
                   max_retry_after: 86_400, max_crashes: 5)
      steps = steps.to_a.dup.freeze
      @fields = {
        initial: initial, factor: factor, max: max, jitter: jitter, max_attempts: max_attempts,
        kind: kind || (steps.empty? ? :exponential : :steps), steps: steps, max_age: max_age,
        max_retry_after: max_retry_after, max_crashes: max_crashes
      }.freeze
      @native = Core.made(Native.bh_policy_new)
      set_delays
      set_limits
      check(@native.check)
      freeze
    end

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

    # @return [Integer] crashes at which a message is parked before a handler sees it again; 0: no limit
    def max_crashes = @native.max_crashes

    # The delay after the attempt-th failure.
    #
    # @param attempt [Integer] 1, 2, ...
    # @param previous [Numeric] the delay before this one, in seconds, for jitter :decorrelated
    # @param random [Numeric] the random number, from 0 to below 1
    # @return [Float] seconds
    def delay(attempt, previous: 0, random: 0.5)
      Times.seconds(@native.delay_ms(attempt, Times.milliseconds(previous), random))
    end

    # @param attempt [Integer] 1, 2, ...
    # @return [PreviewRow] the preview of the attempt-th failure
    def row(attempt)
      PreviewRow.new(
        attempt: attempt,
        lowest: Times.seconds(@native.lowest_ms(attempt)),
        mean: Times.seconds(@native.mean_ms(attempt)),
        highest: Times.seconds(@native.highest_ms(attempt)),
        total: Times.seconds(@native.total_ms(attempt))
      ).freeze
    end

    # The lowest, mean and highest delay after each failure, and their running total.
    #
    # @param failures [Integer, nil] how many; default: all that are retried, at most 20
    # @return [Preview]
    def preview(failures = nil)
      failures ||= max_attempts.zero? ? ROWS : [ROWS, max_attempts - 1].min
      Preview.new((1..failures).map { |attempt| row(attempt) })
    end

    # @return [Hash{Symbol => Object}] the keyword arguments that make the same policy again
    def to_h = @fields

    # @return [Boolean] whether it was made of the same arguments
    def ==(other) = other.is_a?(Policy) && to_h == other.to_h
    alias eql? ==

    # @return [Integer]
    def hash = @fields.hash

    # @return [String]
    def inspect = "#{self.class}.new(#{@fields.map { |name, value| "#{name}: #{value.inspect}" }.join(", ")})"

    private

    def set_delays
      kind, initial, factor, max, steps, jitter = @fields.values_at(:kind, :initial, :factor, :max, :steps, :jitter)
      check(@native.set_kind(Core.number(KINDS, kind, "kind")))
      check(@native.set_initial_ms(Times.milliseconds(initial)))
      check(@native.set_factor(factor))
      check(@native.set_max_ms(Times.milliseconds(max))) if max
      steps.each { |step| check(@native.add_step_ms(Times.milliseconds(step))) }
      if jitter.is_a?(Numeric)
        check(@native.set_jitter(Native::BH_JITTER_SPREAD, jitter))
      else
        check(@native.set_jitter(Core.number(JITTERS, jitter, "jitter"), SPREAD))
      end
    end

    def set_limits
      max_attempts, max_age, max_retry_after, max_crashes =
        @fields.values_at(:max_attempts, :max_age, :max_retry_after, :max_crashes)
      check(@native.set_max_attempts(max_attempts)) if max_attempts
      check(@native.set_max_age_ms(Times.milliseconds(max_age)))
      check(@native.set_max_retry_after_ms(Times.milliseconds(max_retry_after)))
      check(@native.set_max_crashes(max_crashes))
    end

    def check(status) = Status.check(status, @native.error)
  end
end
