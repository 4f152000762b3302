# frozen_string_literal: true

module Backhop
  # Checks arguments before they are used. An error names the option and its units as the user knows
  # them.
  # @api private
  module Checks
    # Extends a class so that its `new` raises InvalidArgumentError for unknown or missing
    # arguments.
    module Keywords
      def new(*arguments, **options, &block)
        parameters = instance_method(:initialize).parameters
        if parameters.none? { |kind, _| kind == :keyrest }
          known = parameters.filter_map { |kind, name| name if %i[key keyreq].include?(kind) }
          unknown = options.keys - known
          missing = parameters.filter_map { |kind, name| name if kind == :keyreq } - options.keys
          Checks.refuse_keywords(self, unknown, known) unless unknown.empty?
          raise InvalidArgumentError, "#{self} needs #{missing.first}: give it" unless missing.empty?
        end
        Checks.refuse_positions(self, arguments, parameters)
        super
      end
    end

    module_function

    def refuse_keywords(owner, unknown, known)
      raise InvalidArgumentError, "#{owner} has no option #{unknown.join(", ")}: give any of #{known.join(", ")}"
    end

    def refuse_positions(owner, arguments, parameters)
      needed = parameters.filter_map { |kind, name| name if kind == :req }
      most = needed.size + parameters.count { |kind, _| kind == :opt }
      return if arguments.size.between?(needed.size, most) || parameters.any? { |kind, _| kind == :rest }

      takes = needed.empty? ? "keywords alone" : "#{needed.join(", ")} and keywords"
      raise InvalidArgumentError, "#{owner}.new takes #{takes}: it got #{arguments.size} arguments before them"
    end

    # Returns a whole number in the range, or raises `error`.
    def integer(value, name, range, error = InvalidArgumentError)
      # Not is_a?: an ActiveSupport::Duration of a whole number overwrites it.
      return value if Integer === value && range.cover?(value) # rubocop:disable Style/CaseEquality

      most = range.end ? "from #{range.begin} to #{range.end}" : "#{range.begin} or more"
      raise error, "#{name} is #{Text.shown(value)}: give a whole number, #{most}"
    end

    # Returns a real number as a Float, or raises `error`.
    def number(value, name, error = InvalidArgumentError)
      return value.to_f if value.is_a?(Numeric) && value.real?

      raise error, "#{name} is #{Text.shown(value)}: give a number"
    end

    # Returns a number from 0 to below 1 as a Float, or raises `error`.
    def fraction(value, name, error = InvalidArgumentError)
      fraction = number(value, name, error)
      return fraction if fraction >= 0 && fraction < 1

      raise error, "#{name} is #{Text.shown(value)}: give a number from 0 to below 1"
    end

    # Returns a time, as Times.read takes it, in whole milliseconds, or raises `error`.
    #
    # @param range [Range] in milliseconds
    def time(value, name, range, error = InvalidArgumentError)
      ms = Times.read(value)
      return ms if ms && range.cover?(ms)

      raise error,
            "#{name} is #{Text.shown(value)}: give seconds, from #{plain(range.begin)} to #{plain(range.end)}, or " \
            "a text with a unit, as \"30s\""
    end

    # Returns a String, or raises `error`.
    def text(value, name, error = InvalidArgumentError)
      return value if value.is_a?(String)

      raise error, "#{name} is #{Text.shown(value)}: give a String"
    end

    # Returns the name of a header that counts failures, or raises InvalidArgumentError.
    def legacy_counter(value)
      return value if text(value, "legacy_counter").bytesize.between?(1, 255)

      raise InvalidArgumentError, "legacy_counter is #{Text.shown(value)}: give a header's name, of 1 to 255 bytes"
    end

    # Returns a path as a String, or raises InvalidArgumentError. Accepts a Pathname.
    def path(value, name)
      path = value.respond_to?(:to_path) ? value.to_path : value
      raise InvalidArgumentError, "#{name} is #{Text.shown(value)}: give a path" unless path.is_a?(String)
      raise InvalidArgumentError, "#{name} is #{Text.shown(value)}: give a path, or leave it out" if path.empty?

      path
    end

    # Returns true or false, or raises InvalidArgumentError.
    def truth(value, name)
      return value if [true, false].include?(value)

      raise InvalidArgumentError, "#{name} is #{Text.shown(value)}: give true or false"
    end

    # Returns an object of a class, or raises `error`.
    def object(value, name, wanted, error = InvalidArgumentError)
      return value if value.is_a?(wanted)

      raise error, "#{name} is #{Text.shown(value)}: give a #{wanted}"
    end

    # Returns an object with a method call, or raises InvalidArgumentError.
    def callable(value, name)
      return value if value.respond_to?(:call)

      raise InvalidArgumentError, "#{name} is #{Text.shown(value)}: give a block, or an object with a method call"
    end

    # Returns an object with the methods of a Logger that Backhop calls, or raises
    # InvalidArgumentError.
    def logger(value, name)
      return value if value.respond_to?(:add) && value.respond_to?(:level)

      raise InvalidArgumentError, "#{name} is #{Text.shown(value)}: give a Logger, or an object with its add and level"
    end

    # Returns an Array of Strings, or raises InvalidArgumentError. Accepts a single String.
    def texts(value, name)
      given = value.is_a?(String) ? [value] : value
      return given if given.is_a?(Array) && given.all?(String)

      raise InvalidArgumentError, "#{name} is #{Text.shown(value)}: give a String, or an Array of Strings"
    end

    # Returns milliseconds in seconds: an Integer if possible, else a Float.
    def plain(milliseconds)
      (milliseconds % 1000).zero? ? milliseconds / 1000 : milliseconds / 1000.0
    end
    private_class_method :plain
  end
  private_constant :Checks
end
