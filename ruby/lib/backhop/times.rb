# frozen_string_literal: true

module Backhop
  # Converts times: Ruby's API takes and returns seconds, the core whole milliseconds.
  # @api private
  module Times
    MOST_MS = (2**63) - 1
    HOUR_MS = 3_600_000
    GIVE = 'give seconds, as a Numeric, or a text with a unit, as "30s"'

    module_function

    # Returns a time as whole milliseconds, limited to the range of the core's int64; nil if the
    # value is no time. Only 0 becomes 0, which can mean no limit: a shorter time than 1 ms becomes
    # 1 ms.
    #
    # @param value [Object] seconds, as any Numeric or an ActiveSupport::Duration; or a text with a
    #   unit, as "30s"
    def read(value)
      return value * 1000 if Integer === value && value.abs < 1_000_000_000_000 # rubocop:disable Style/CaseEquality
      return span(value) if value.is_a?(String)

      # ActiveSupport's durations overwrite is_a? and instance_of?, and stay durations in
      # calculations. So `to_f` comes first.
      whole(value.to_f * 1000) if value.is_a?(Numeric) && value.real?
    end

    # Returns seconds as whole milliseconds, as {read}. Raises InvalidArgumentError if the value is
    # no time.
    def milliseconds(value)
      read(value) || raise(InvalidArgumentError, "a time is #{Text.shown(value)}: #{GIVE}")
    end

    # Returns the milliseconds of a text as "30s" or "4 min 30 s"; nil if it is no time.
    def span(text)
      ms = Native.bh_duration_ms(text)
      ms unless ms.negative?
    end
    private_class_method :span

    def whole(float_ms)
      return if float_ms.nan?
      return float_ms <=> 0 if float_ms.abs < 0.5
      return float_ms.round if float_ms.abs < MOST_MS

      float_ms.positive? ? MOST_MS : -MOST_MS
    end
    private_class_method :whole

    # Returns the core's milliseconds in seconds.
    def seconds(milliseconds) = milliseconds / 1000.0

    # Returns milliseconds since the epoch as a Time in UTC; nil if negative.
    def moment(milliseconds)
      Time.at(milliseconds / 1000, milliseconds % 1000, :millisecond, in: "UTC") unless milliseconds.negative?
    end

    # Returns a Time, or seconds since the epoch, as milliseconds since the epoch.
    def since_epoch(value)
      value.is_a?(Time) ? (value.to_i * 1000) + (value.nsec / 1_000_000) : milliseconds(value)
    end

    # Returns the monotonic clock in ms, as the ledger and the log take it.
    def monotonic_ms = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)

    # Returns the monotonic clock in us.
    def monotonic_us = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

    # Returns an error text of the core with its milliseconds converted to seconds.
    def sentence(text)
      text.gsub(/(?<name>\w+)_ms (?<is>is )?(?<ms>-?\d+)/) { "#{$~[:name]} #{$~[:is]}#{short($~[:ms].to_i)}" }
          .gsub(/(-?\d+) ms\b/) { short(::Regexp.last_match(1).to_i) }
          .gsub(/(\w+)_ms\b/) { ::Regexp.last_match(1) }
    end

    def short(milliseconds) = "#{format("%.12g", milliseconds / 1000.0)} s"

    # Returns seconds as text: "0.25 s", "12 s", "4 min 30 s", "2 h", "3 d 4 h".
    def duration(value) = Native.bh_duration_text(milliseconds(value))
  end
  private_constant :Times
end
