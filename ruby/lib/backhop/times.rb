# frozen_string_literal: true

module Backhop
  # Times: seconds in Ruby, whole milliseconds in the core.
  # @api private
  module Times
    MOST_MS = (2**63) - 1
    DAY_MS = 86_400_000
    HOUR_MS = 3_600_000
    UNITS = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]].freeze

    module_function

    # A time in seconds as whole milliseconds; what the core cannot hold becomes the most that it can.
    def milliseconds(value)
      return value * 1000 if value.instance_of?(Integer) && value.abs < 1_000_000_000_000

      # is_a?, not ===: ActiveSupport's durations say that they are numbers
      unless value.is_a?(Numeric) && value.real?
        raise InvalidArgumentError, "a time is #{Values.shown(value)}: give seconds, as a Numeric"
      end

      ms = value * 1000
      float = ms.to_f
      raise InvalidArgumentError, "a time is not a number: give seconds, as a Numeric" if float.nan?

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
      value.is_a?(Time) ? (value.to_i * 1000) + (value.nsec / 1_000_000) : milliseconds(value)
    end

    # A sentence of the core, whose times are in milliseconds, in seconds.
    def sentence(text)
      text.gsub(/(?<name>\w+)_ms (?<is>is )?(?<ms>-?\d+)/) { "#{$~[:name]} #{$~[:is]}#{short($~[:ms].to_i)}" }
          .gsub(/(-?\d+) ms\b/) { short(::Regexp.last_match(1).to_i) }
          .gsub(/(\w+)_ms\b/) { ::Regexp.last_match(1) }
    end

    def short(milliseconds) = "#{format("%.12g", milliseconds / 1000.0)} s"

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
