# frozen_string_literal: true

module Backhop
  # A message as it arrived: exchange, routing key, properties and headers. A delivery is immutable.
  class Delivery
    # AMQP's basic properties without the headers, with Bunny's names.
    # @api private
    PROPERTIES = Core.numbers("BH_PROPERTY_", :headers)
    NUMBERS = %i[delivery_mode priority timestamp].freeze
    INTEGERS = %i[int8 uint8 int16 uint16 int32 uint32 int64 timestamp].freeze
    private_constant :NUMBERS, :INTEGERS

    # @api private
    attr_reader :native

    # @param exchange [String] the exchange of basic.deliver
    # @param routing_key [String] the routing key of basic.deliver
    # @param properties [Hash, #[], nil] AMQP's basic properties by name, for example {message_id:
    #   "42"}, or Bunny::MessageProperties. nil means absent. A timestamp is a Time, or seconds
    #   since the epoch
    # @param headers [Hash, Array, nil] a Hash or an Array of pairs; nil if the message has no
    #   headers
    # @raise [InvalidArgumentError] if a name or a property is longer than 255 bytes, or AMQP has no
    #   type for a value
    def initialize(exchange: "", routing_key: "", properties: nil, headers: nil)
      @native = Core.made(Native.bh_delivery_new)
      Status.check(@native.set_address(Checks.text(exchange, "exchange"), Checks.text(routing_key, "routing_key")))
      push_properties(properties) if properties
      AMQP.push_headers(@native, headers) if headers
      freeze
    end

    # Returns a delivery that the core has filled.
    # @api private
    def self.of(native)
      allocate.tap do |delivery|
        delivery.instance_variable_set(:@native, native)
        delivery.freeze
      end
    end

    # @return [String] the exchange of this delivery. For a retry it is the exchange of the return
    #   binding
    def exchange = @native.exchange

    # @return [String] the routing key of this delivery
    def routing_key = @native.routing_key

    # Returns one basic property.
    #
    # @param name [Symbol] a name of {#properties}
    # @return [String, Integer, nil] nil if the message does not have it; a timestamp is in seconds
    #   since the epoch
    # @raise [InvalidArgumentError] if AMQP has no such property
    def property(name)
      number = Core.number(PROPERTIES, name, "the property")
      return unless @native.has_property(number) == 1

      NUMBERS.include?(name) ? @native.number(number) : @native.property(number)
    end

    # @return [Hash{Symbol => String, Integer}] the basic properties that the message has; a
    #   timestamp is in seconds since the epoch
    def properties
      PROPERTIES.keys.to_h { |name| [name, property(name)] }.compact
    end

    # @return [Boolean] true if the message has a headers table
    def headers? = @native.has_property(Native::BH_PROPERTY_HEADERS) == 1

    # Returns all headers as a new Hash. Values have Bunny's classes: String (UTF-8; byte arrays
    # binary), true, false, Integer, Float, BigDecimal, Time (in UTC), nil, Array, Hash. If two
    # headers have one name, the first counts. {#header_type} has the AMQP type.
    #
    # @return [Hash{String => Object}]
    def headers = AMQP.pull_headers(@native)

    # Returns the AMQP type of a header.
    #
    # @param name [String, Symbol]
    # @return [Symbol, nil] for example :int32; nil if there is no such header
    def header_type(name) = AMQP::TYPE_NAMES[@native.header(name.to_s).first]

    # Returns the value of a header that is a string (UTF-8), bytes (binary), a boolean, an integer
    # or a timestamp.
    #
    # @param name [String, Symbol]
    # @return [String, Integer, Boolean, nil] a timestamp is in seconds since the epoch; nil for
    #   other types and if there is no such header
    def header(name)
      number, _, string, integer = @native.header(name.to_s)
      case type = AMQP::TYPE_NAMES[number]
      when :string then string
      when :bytes then string.b
      when :boolean then integer == 1
      when :uint64 then integer % (2**64)
      else INTEGERS.include?(type) ? integer : nil
      end
    end

    # @return [Boolean] true if the headers exceed the core's limits (32 levels, 65,536 values, 1
    #   MiB): some are missing then
    def truncated? = @native.is_truncated == 1

    # @return [Integer] size of properties and headers on the wire, in bytes
    def header_bytes = @native.header_bytes

    # @return [String]
    def inspect
      "#<#{self.class} from #{exchange.inspect} by #{routing_key.inspect}, #{header_bytes} bytes of headers>"
    end

    private

    def push_properties(properties)
      unless properties.is_a?(Hash)
        return PROPERTIES.each { |name, number| push_property(name, number, properties[name]) }
      end

      properties.each { |name, value| push_property(name, PROPERTIES[name] || refuse_properties(properties), value) }
    end

    def push_property(name, number, value)
      return if value.nil?

      is_number = NUMBERS.include?(name)
      Status.check(
        is_number ? @native.set_number(number, AMQP.clamp(value.to_i)) : @native.set_property(number, value.to_s)
      )
    end

    def refuse_properties(properties)
      unknown = (properties.keys - PROPERTIES.keys).map(&:inspect).join(", ")
      raise InvalidArgumentError,
            "AMQP has no property #{unknown}: give any of #{PROPERTIES.keys.map(&:inspect).join(", ")}"
    end
  end
end
