# frozen_string_literal: true

require "bigdecimal"

module Backhop
  # A header's value with an AMQP type that its Ruby class does not imply, for example
  # Typed.new(:int8, 3).
  #
  # Types: :boolean, :int8, :uint8, :int16, :uint16, :int32, :uint32, :int64, :uint64, :float,
  # :double, :decimal, :string, :bytes, :timestamp (seconds since the epoch), :void, :array (an
  # Array of values), :table (a Hash, or pairs of name and value).
  class Typed
    # @return [Symbol] the AMQP type
    attr_reader :type
    # @return [Object] the value
    attr_reader :value

    # @param type [Symbol] one of the types above
    # @param value [Object] a value of this type
    def initialize(type, value)
      @type = type
      @value = value
      freeze
    end

    # @return [Boolean] true if type and value are equal
    def ==(other) = other.is_a?(Typed) && type == other.type && value == other.value
    alias eql? ==

    # @return [Integer]
    def hash = [type, value].hash

    # @return [String]
    def inspect = "#<#{self.class} #{type} #{value.inspect}>"
  end

  # Converts header values between Ruby and the core.
  #
  # A client decodes headers into Ruby values, which lose a part of the AMQP type. They are pushed
  # to the core as:
  #
  # | Ruby           | is pushed as                                                             |
  # |----------------|--------------------------------------------------------------------------|
  # | String, Symbol | string                                                                   |
  # | true, false    | boolean                                                                  |
  # | Integer        | int64, above it uint64: the widest, so no copy is too large for the core |
  # | Float          | double                                                                   |
  # | BigDecimal     | decimal                                                                  |
  # | Time           | timestamp                                                                |
  # | nil            | void                                                                     |
  # | Hash, Array    | table, array                                                             |
  # | Typed          | its own type                                                             |
  #
  # A copy gets the client's Ruby values back, so the client chooses the types again. With Bunny
  # (amq-protocol 2.3) integers become int64, and negative int32 are read as positive. 32-bit floats
  # become doubles, byte arrays become strings, and decimals lose the digits after the point. The
  # worker keeps all types.
  # @api private
  module AMQP
    TYPES = Core.numbers("BH_TYPE_")
    TYPE_NAMES = Core.names("BH_TYPE_")

    INT64 = (-(2**63)..((2**63) - 1))
    UINT64 = (0..((2**64) - 1))

    module_function

    # Pushes headers of any depth, without recursion.
    #
    # @param headers [Hash, Array] names and values
    # @raise [InvalidArgumentError] if AMQP has no type for a value
    def push_headers(native, headers)
      outer = []
      entries = headers.to_a
      index = 0
      loop do
        while index < entries.size
          name, value = entries[index]
          index += 1
          next unless (inner = push(native, name.to_s, value))

          outer << entries << index
          entries = inner
          index = 0
        end
        return if outer.empty?

        Status.check(native.end)
        index = outer.pop
        entries = outer.pop
      end
    end

    # Pushes a value. For a table or an array it returns the values to push next, else nil.
    def push(native, name, value)
      status =
        case value
        when String then native.push_string(name, Native::BH_TYPE_STRING, value)
        when Integer then push_integer(native, name, value)
        when Hash then return begin_table(native, name, value)
        when Array then return begin_array(native, name, value)
        when true, false then native.push_int(name, Native::BH_TYPE_BOOLEAN, value ? 1 : 0)
        when Time then native.push_int(name, Native::BH_TYPE_TIMESTAMP, clamp(value.to_i))
        when nil then native.push_void(name)
        when Float then native.push_float(name, Native::BH_TYPE_DOUBLE, value)
        when Symbol then native.push_string(name, Native::BH_TYPE_STRING, value.to_s)
        when BigDecimal then native.push_decimal(name, *places_and_digits(value))
        when Typed then return push_typed(native, name, value)
        else raise InvalidArgumentError, "header #{name.inspect} holds a #{value.class}, for which AMQP has no type"
        end
      Status.check(status)
      nil
    end

    def begin_table(native, name, value)
      Status.check(native.begin_table(name))
      value.to_a
    end

    def begin_array(native, name, value)
      Status.check(native.begin_array(name))
      value.map { |item| ["", item] }
    end

    def push_integer(native, name, value)
      return native.push_int(name, Native::BH_TYPE_INT64, value) if INT64.cover?(value)
      return native.push_int(name, Native::BH_TYPE_UINT64, signed(value)) if UINT64.cover?(value)

      raise InvalidArgumentError, "header #{name.inspect} holds #{value}, for which AMQP has no integer"
    end

    def push_typed(native, name, typed)
      value = typed.value
      case typed.type
      when :table then return begin_table(native, name, value)
      when :array then return begin_array(native, name, value)
      end

      tag = Core.number(TYPES, typed.type, "a type")
      Status.check(
        case typed.type
        when :string, :bytes then native.push_string(name, tag, value)
        when :float, :double then native.push_float(name, tag, value)
        when :decimal then native.push_decimal(name, *places_and_digits(value))
        when :void then native.push_void(name)
        when :boolean then native.push_int(name, tag, value ? 1 : 0)
        else native.push_int(name, tag, signed(value))
        end
      )
      nil
    end

    # Returns the int64 with the same 64 bits as a uint64.
    def signed(value) = value >= 2**63 && value < 2**64 ? value - (2**64) : value

    # Returns seconds limited to int64: a Time can be later.
    def clamp(seconds) = seconds.clamp(INT64)

    def places_and_digits(value)
      raise InvalidArgumentError, "a header holds #{value}, for which AMQP has no decimal" unless value.finite?

      sign, digits, _, exponent = value.split
      places = [digits.size - exponent, 0].max
      [places, sign * digits.to_i * (10**[exponent - digits.size, 0].max)]
    end

    # Returns headers of any depth as Ruby values. If two headers have one name, the first counts.
    #
    # @return [Hash{String => Object}]
    def pull_headers(native)
      count = native.value_count
      headers = {}
      outer = []
      inside = headers
      last = count
      count.times do |index|
        last, inside = outer.pop while index == last

        type, name, string, integer, number, places, after = native.value(index)
        value = pull(type, string, integer, number, places)
        if inside.is_a?(Array)
          inside << value
        else
          inside[name] = value unless inside.key?(name)
        end
        next unless value.is_a?(Hash) || value.is_a?(Array)

        outer << [last, inside]
        last = after
        inside = value
      end
      headers
    end

    def pull(type, string, integer, number, places)
      case type
      when Native::BH_TYPE_STRING then string
      when Native::BH_TYPE_BYTES then string.b
      when Native::BH_TYPE_TABLE then {}
      when Native::BH_TYPE_ARRAY then []
      when Native::BH_TYPE_VOID then nil
      when Native::BH_TYPE_FLOAT, Native::BH_TYPE_DOUBLE then number
      when Native::BH_TYPE_BOOLEAN then integer == 1
      when Native::BH_TYPE_UINT64 then integer % (2**64)
      when Native::BH_TYPE_DECIMAL then BigDecimal(integer) * (BigDecimal(10)**-places)
      when Native::BH_TYPE_TIMESTAMP then Time.at(integer, in: "UTC")
      else integer
      end
    end
  end
  private_constant :AMQP
end
