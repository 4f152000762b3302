# frozen_string_literal: true

module Backhop
  # Times: seconds in Ruby, whole milliseconds in the core.
  # @api private
  module Times
    MOST_MS = (2**63) - 1
    UNITS = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]].freeze

    module_function

    # A time in seconds as whole milliseconds; what the core cannot hold becomes the most that it can.
    def milliseconds(value)
      return value * 1000 if value.instance_of?(Integer) && value.abs < 1_000_000_000_000

      # is_a?, not ===: ActiveSupport's durations say that they are numbers
      raise TypeError, "a time is #{value.inspect}: give seconds, as a Numeric" unless value.is_a?(Numeric) && value.real?

      ms = value * 1000
      float = ms.to_f
      raise ::ArgumentError, "a time is not a number: give seconds, as a Numeric" if float.nan?

      return ms.round if float.abs < MOST_MS

      float.positive? ? MOST_MS : -MOST_MS
    end

    # Milliseconds of the core in seconds.
    def seconds(milliseconds) = milliseconds / 1000.0

    # Milliseconds since the epoch as a Time in UTC; nil for -1.
    def moment(milliseconds)
      Time.at(milliseconds / 1000, milliseconds % 1000, :millisecond, in: "UTC") unless milliseconds.negative?
    end

    # A moment, a Time or seconds since the epoch, in milliseconds since the epoch.
    def since_epoch(value)
      value.is_a?(Time) ? (value.to_r * 1000).floor : milliseconds(value)
    end

    # Seconds for people: "0.25 s", "12 s", "4 min 30 s", "2 h", "3 d 4 h".
    def duration(value)
      return format("%.3g s", value) if value < 60

      left = value.round
      parts = UNITS.filter_map do |size, unit|
        count, left = left.divmod(size)
        "#{count} #{unit}" unless count.zero?
      end
      parts.first(2).join(" ")
    end
  end
  private_constant :Times
end
