# frozen_string_literal: true

module Backhop
  # The delay after one failure, in seconds.
  #
  # @!attribute [r] attempt
  #   @return [Integer] the number of the failure: 1, 2, ...
  # @!attribute [r] lowest
  #   @return [Float] the shortest delay, in seconds
  # @!attribute [r] mean
  #   @return [Float] the mean delay, in seconds
  # @!attribute [r] highest
  #   @return [Float] the longest delay, in seconds
  # @!attribute [r] total
  #   @return [Float] the sum of the means up to this failure, in seconds
  # @!attribute [r] rungs
  #   @return [Integer] the number of wait queues over which messages that fail together spread; 0
  #     without a ladder
  PreviewRow = Struct.new(:attempt, :lowest, :mean, :highest, :total, :rungs, keyword_init: true)

  # The delays of a policy, as PreviewRows. It prints as a table.
  class Preview
    include Enumerable

    HEAD = %w[failure lowest mean highest total rungs].freeze
    ROWS = 20
    MOST_ROWS = 10_000
    ATTEMPTS = (1..((2**53) - 1))
    private_constant :HEAD, :ROWS, :MOST_ROWS, :ATTEMPTS

    class << self
      # Returns the preview of a policy, with the wait queues of a ladder of its own. If a ladder
      # cannot serve the policy, the rows come from its formula.
      # @api private
      def of_policy(policy, failures)
        native = ladder(policy)
        new(attempts(policy, failures).map { |attempt| native ? row(policy, attempt, native) : row(policy, attempt) })
      end

      # Returns the preview of a topology's own policy.
      # @api private
      def of_topology(policy, topology, failures)
        new(attempts(policy, failures).map { |attempt| row(policy, attempt, topology) })
      end

      # Returns one row: by the rungs of the topology, if there is one, else by the policy's
      # formula.
      #
      # @param policy [Policy]
      # @param topology [Native::Topology, nil]
      # @api private
      def row(policy, attempt, topology = nil)
        check_attempt(attempt)
        fields = topology ? topology.preview(policy.native, attempt) : policy.native.preview(attempt)
        *delays, spread = fields
        lowest, mean, highest, total = delays.map { |delay_ms| Times.seconds(delay_ms) }
        PreviewRow.new(
          attempt: attempt, lowest: lowest, mean: mean, highest: highest, total: total, rungs: spread
        ).freeze
      end

      # @api private
      def check_attempt(attempt) = Checks.integer(attempt, "attempt", ATTEMPTS, PolicyError)

      private

      def attempts(policy, failures)
        most = policy.max_attempts
        failures ||= most.zero? ? ROWS : [ROWS, most - 1].min
        1..Checks.integer(failures, "failures", (0..MOST_ROWS), PolicyError)
      end

      # Returns a ladder for the policy; nil if the ladder cannot serve it.
      def ladder(policy)
        native = Core.made(Native.bh_topology_new("preview"))
        status = native.build(policy.native)
        return native if status.zero?
        return if status == StrategyError.status

        raise Status.error(status, native.error)
      end
    end

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

    # @return [PreviewRow, nil] the row at this index, from 0; nil if there is none
    def [](index) = @rows[index]

    # @return [Integer] the number of rows
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
end
