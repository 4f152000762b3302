# frozen_string_literal: true

module Backhop
  # What arrived: exchange, routing key, properties, headers. It never changes.
  class Delivery
    # AMQP's basic properties, as Bunny spells them; headers are apart.
    # @api private
    PROPERTIES = {
      content_type: Native::BH_PROPERTY_CONTENT_TYPE,
      content_encoding: Native::BH_PROPERTY_CONTENT_ENCODING,
      delivery_mode: Native::BH_PROPERTY_DELIVERY_MODE,
      priority: Native::BH_PROPERTY_PRIORITY,
      correlation_id: Native::BH_PROPERTY_CORRELATION_ID,
      reply_to: Native::BH_PROPERTY_REPLY_TO,
      expiration: Native::BH_PROPERTY_EXPIRATION,
      message_id: Native::BH_PROPERTY_MESSAGE_ID,
      timestamp: Native::BH_PROPERTY_TIMESTAMP,
      type: Native::BH_PROPERTY_TYPE,
      user_id: Native::BH_PROPERTY_USER_ID,
      app_id: Native::BH_PROPERTY_APP_ID,
      cluster_id: Native::BH_PROPERTY_CLUSTER_ID
    }.freeze
    NUMBERS = %i[delivery_mode priority timestamp].freeze
    INTEGERS = %i[int8 uint8 int16 uint16 int32 uint32 int64 timestamp].freeze
    private_constant :NUMBERS, :INTEGERS

    # @api private
    attr_reader :native

    # @param exchange [String] where the message was published, as basic.deliver says
    # @param routing_key [String] likewise
    # @param properties [Hash, #[], nil] AMQP's basic properties by name, as {message_id: "42"}, or what Bunny gives
    #   (Bunny::MessageProperties); nil is absent. A timestamp is a Time, or seconds
    # @param headers [Hash, Array, nil] names and values, or pairs of them; nil where the message has none
    # @raise [InvalidArgumentError] for a name or a property of more than 255 bytes
    def initialize(exchange: "", routing_key: "", properties: nil, headers: nil)
      @native = Core.made(Native.bh_delivery_new)
      Status.check(@native.set_exchange(Values.text(exchange, "exchange")))
      Status.check(@native.set_routing_key(Values.text(routing_key, "routing_key")))
      push_properties(properties) if properties
      AMQP.push_headers(@native, headers) if headers
      freeze
    end

    # A delivery that the core has filled.
    # @api private
    def self.of(native)
      allocate.tap do |delivery|
        delivery.instance_variable_set(:@native, native)
        delivery.freeze
      end
    end

    # @return [String] where the message was published; of a retry, the exchange that brought it back
    def exchange = @native.exchange

    # @return [String]
    def routing_key = @native.routing_key

    # @param name [Symbol] of {#properties}
    # @return [String, Integer, nil] a basic property; nil where the message has none
    def property(name)
      number = Core.number(PROPERTIES, name, "the property")
      return unless @native.has_property(number) == 1

      NUMBERS.include?(name) ? @native.number(number) : @native.property(number)
    end

    # @return [Hash{Symbol => String, Integer}] the basic properties that the message has; timestamp in seconds since the
    #   epoch
    def properties
      PROPERTIES.keys.to_h { |name| [name, property(name)] }.compact
    end

    # @return [Boolean] whether the message has headers at all
    def headers? = @native.has_property(Native::BH_PROPERTY_HEADERS) == 1

    # All headers, as a new Hash each time. Values are as Bunny gives them: String (UTF-8, byte arrays binary), true, false,
    # Integer, Float, BigDecimal, Time (in UTC), nil, Array, Hash. Of headers with one name the first counts; {#header_type}
    # tells the AMQP type.
    #
    # @return [Hash{String => Object}]
    def headers = AMQP.pull_headers(@native)

    # @param name [String, Symbol]
    # @return [Symbol, nil] the AMQP type of a header, as :int32; nil where there is none
    def header_type(name) = AMQP::TYPE_NAMES[@native.header_type(name.to_s)]

    # @param name [String, Symbol]
    # @return [String, Integer, Boolean, nil] the value of a header that is a string (UTF-8), bytes (binary), a boolean, an
    #   integer or a timestamp (seconds); nil of any other
    def header(name)
      case type = header_type(name)
      when :string then @native.header_string(name.to_s)
      when :bytes then @native.header_string(name.to_s).b
      when :boolean then @native.header_int(name.to_s) == 1
      when :uint64 then @native.header_int(name.to_s) % (2**64)
      else INTEGERS.include?(type) ? @native.header_int(name.to_s) : nil
      end
    end

    # @return [Boolean] whether headers went beyond the core's limits (32 levels, 65,536 values, 1 MiB), so that some are
    #   missing
    def truncated? = @native.is_truncated == 1

    # @return [Integer] size of properties and headers on the wire, in bytes
    def header_bytes = @native.header_bytes

    # @return [String]
    def inspect
      "#<#{self.class} from #{exchange.inspect} by #{routing_key.inspect}, #{header_bytes} bytes of headers>"
    end

    private

    def push_properties(properties)
      return PROPERTIES.each { |name, number| push_property(name, number, properties[name]) } unless properties.is_a?(Hash)

      properties.each { |name, value| push_property(name, PROPERTIES[name] || refuse_properties(properties), value) }
    end

    def push_property(name, number, value)
      return if value.nil?

      is_number = NUMBERS.include?(name)
      Status.check(is_number ? @native.set_number(number, AMQP.clamp(value.to_i)) : @native.set_property(number, value.to_s))
    end

    def refuse_properties(properties)
      unknown = (properties.keys - PROPERTIES.keys).map(&:inspect).join(", ")
      raise InvalidArgumentError, "AMQP has no property #{unknown}: give any of #{PROPERTIES.keys.map(&:inspect).join(", ")}"
    end
  end
end
