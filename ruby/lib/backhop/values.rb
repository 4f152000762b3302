# frozen_string_literal: true

module Backhop
  # What users give, checked before anything is done with it: each mistake is an error of Backhop's own, in the user's names
  # and units.
  # @api private
  module Values
    # For a class whose initialize takes keywords: an unknown one, or too few arguments, are Backhop's errors too.
    module Keywords
      def new(*arguments, **options, &block)
        parameters = instance_method(:initialize).parameters
        if parameters.none? { |kind, _| kind == :keyrest }
          known = parameters.filter_map { |kind, name| name if %i[key keyreq].include?(kind) }
          unknown = options.keys - known
          missing = parameters.filter_map { |kind, name| name if kind == :keyreq } - options.keys
          Values.refuse_keywords(self, unknown, known) unless unknown.empty?
          raise InvalidArgumentError, "#{self} needs #{missing.first}: give it" unless missing.empty?
        end
        Values.refuse_positions(self, arguments, parameters)
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

      raise InvalidArgumentError, "#{owner}.new takes #{needed.empty? ? "keywords alone" : needed.join(", ")}" \
                                  "#{" and keywords" unless needed.empty?}: it got #{arguments.size} arguments before them"
    end

    # A whole number.
    def integer(value, name, range, error = InvalidArgumentError)
      return value if value.is_a?(Integer) && range.cover?(value)

      most = range.end ? "from #{range.begin} to #{range.end}" : "#{range.begin} or more"
      raise error, "#{name} is #{shown(value)}: give a whole number, #{most}"
    end

    # A number, as the core takes it.
    def number(value, name, error = InvalidArgumentError)
      return value.to_f if value.is_a?(Numeric) && value.real?

      raise error, "#{name} is #{shown(value)}: give a number"
    end

    # A time in seconds; gives whole milliseconds.
    def time(value, name, range, error = InvalidArgumentError)
      # is_a?, not ===: ActiveSupport's durations say that they are numbers
      if value.is_a?(Numeric) && value.real? && value.to_f.finite? && range.cover?(ms = Times.milliseconds(value))
        return ms
      end

      raise error, "#{name} is #{shown(value)}: give seconds, from #{plain(range.begin)} to #{plain(range.end)}"
    end

    # A text; binary or not.
    def text(value, name, error = InvalidArgumentError)
      return value if value.is_a?(String)

      raise error, "#{name} is #{shown(value)}: give a String"
    end

    # true or false.
    def truth(value, name)
      return value if [true, false].include?(value)

      raise InvalidArgumentError, "#{name} is #{shown(value)}: give true or false"
    end

    # An object of a class.
    def object(value, name, wanted, error = InvalidArgumentError)
      return value if value.is_a?(wanted)

      raise error, "#{name} is #{shown(value)}: give a #{wanted}"
    end

    # What can be called.
    def callable(value, name)
      return value if value.respond_to?(:call)

      raise InvalidArgumentError, "#{name} is #{shown(value)}: give a block, or what answers to call"
    end

    # What has a Logger's methods, as far as Backhop calls them.
    def logger(value, name)
      return value if value.respond_to?(:add) && value.respond_to?(:level)

      raise InvalidArgumentError, "#{name} is #{shown(value)}: give a Logger, or what answers to add and level as one does"
    end

    # Texts, of which one may stand alone.
    def texts(value, name)
      given = value.is_a?(String) ? [value] : value
      return given if given.is_a?(Array) && given.all?(String)

      raise InvalidArgumentError, "#{name} is #{shown(value)}: give an Array of Strings"
    end

    # Milliseconds as seconds, without a point where none is needed.
    def plain(milliseconds)
      (milliseconds % 1000).zero? ? milliseconds / 1000 : milliseconds / 1000.0
    end

    # A value in a sentence.
    def shown(value)
      text = value.inspect
      text.size > 60 ? "#{text[0, 60]}..." : text
    rescue StandardError
      "a #{value.class}"
    end
  end
  private_constant :Values
end
