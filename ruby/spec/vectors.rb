# frozen_string_literal: true

require "json"

# Runs the shared vectors through the public classes; tests/vectors/README.md has the format.
module Vectors
  DIRECTORY = ENV["BACKHOP_VECTORS"] || File.expand_path("../../tests/vectors", __dir__)

  TYPES = %w[boolean int8 uint8 int16 uint16 int32 uint32 int64 uint64 float double decimal string bytes timestamp void
             array table].freeze
  INTEGERS = %w[int8 uint8 int16 uint16 int32 uint32 int64 uint64 timestamp].freeze
  FRACTIONS = { "nan" => Float::NAN, "inf" => Float::INFINITY, "-inf" => -Float::INFINITY }.freeze

  # A key that comes twice is an error.
  class UniqueHash < Hash
    def []=(key, value)
      raise "the key #{key} comes twice" if key?(key)

      super
    end
  end

  # For example groups: an example for every case of a noun.
  module Cases
    def cases(noun, &example)
      paths = Dir[File.join(DIRECTORY, noun, "*.json")]
      raise "there are no vectors of #{noun} in #{DIRECTORY}" if paths.empty?

      paths.each do |path|
        file = JSON.parse(File.read(path), object_class: UniqueHash)
        Vectors.only(file, "about defaults cases")
        all = file["cases"].map { |given| Vectors.merged(given, file["defaults"] || {}) }
        names = all.map { |given| given["name"] }
        raise "#{path} has no cases, or two of one name" if names.empty? || names.uniq.size < names.size

        context File.basename(path, ".json") do
          all.each { |given| it(given["name"]) { instance_exec(given, &example) } }
        end
      end
    end
  end

  # For examples: comparing.
  module Comparing
    # Runs the comparison of each key that is expected; no comparison at all fails the case.
    def compare(expected, comparisons)
      compared = expected.except("status")
      raise "the case compares nothing" if compared.empty? && !expected.key?("status")

      compared.each { |key, value| comparisons.fetch(key.to_sym).call(value) }
    end

    # A comparison by equality with what the block makes of the expected value.
    def same(get, &convert)
      lambda do |expected|
        expect(get.call).to eq(convert ? convert.call(expected) : expected)
      end
    end

    # The error that a case expects by its status.
    def refused(given)
      yield
      raise "#{given["name"]}: nothing was refused"
    rescue Backhop::Error => e
      expect(e.code).to eq(given["expect"]["status"])
      e
    end

    def tells(error, texts)
      Array(texts).each { |text| expect(error.message).to include(text) }
    end
  end

  module_function

  # Returns a case with the defaults of its file.
  def merged(given, defaults)
    only(defaults, "case headers")
    given = (defaults["case"] || {}).to_h.merge(given.to_h)
    headers = given.dig("expect", "headers")
    return given unless headers && defaults["headers"]

    given.merge("expect" => given["expect"].to_h.merge("headers" => merged_headers(headers, defaults["headers"])))
  end

  def merged_headers(entries, lists)
    entries.each_with_object([]) do |entry, merged|
      next merged.concat(lists.fetch(entry)) if entry.is_a?(String)

      merged[merged.index { |name, _| name == entry.first } || merged.size] = entry
    end
  end

  # An unknown key fails the case.
  def only(given, known)
    unknown = given.keys - known.split
    raise "unknown keys: #{unknown}" unless unknown.empty?
  end

  # SWIG's policy of a back-off or of a breaker's pauses.
  def back_off(given)
    only(given, "kind initial_ms max_ms jitter max_retry_after_ms")
    _, policy = Native.bh_policy_new
    kind = Native.const_get("BH_KIND_#{given.fetch("kind").upcase}")
    jitter = Native.const_get("BH_JITTER_#{given.fetch("jitter").upcase}")
    max_ms = given.fetch("max_ms", Native.bh_policy_defaults[3])
    status = policy.set(kind, 0, given.fetch("initial_ms", 1000), 0, 2, max_ms, "", jitter, 0, 10, 0,
                        given.fetch("max_retry_after_ms", 86_400_000), 5, 100)
    raise "the policy was refused: #{policy.error}" unless status.zero?

    policy
  end

  def status(given) = given["expect"].fetch("status", "BH_OK")

  # --- Values -------------------------------------------------------------------------------------

  def integer(value) = Integer(value)

  def fraction(value) = FRACTIONS.fetch(value) { Float(value) }

  # Milliseconds as exact seconds.
  def seconds(value) = Rational(integer(value), 1000)

  # Bytes in the vectors' notation.
  def raw(value)
    return value.b if value.is_a?(String)

    case value.keys.sort
    when %w[hex] then [value["hex"]].pack("H*")
    when %w[text times] then raw(value["text"]) * integer(value["times"])
    when %w[join] then value["join"].map { |part| raw(part) }.join
    else raise "these are no bytes: #{value}"
    end
  end

  # Bytes as the gem gives texts.
  def text(value) = raw(value).force_encoding(Encoding::UTF_8)

  # A text as the gem gives it: nil instead of "".
  def maybe(value)
    found = text(value)
    found.empty? ? nil : found
  end

  SHORT = { String => "string", TrueClass => "boolean", FalseClass => "boolean", Integer => "int64", Float => "double",
            NilClass => "void" }.freeze

  # The AMQP type of a value, and its content.
  def typed(value)
    return [SHORT.fetch(value.class), value] unless value.is_a?(Hash)
    raise "#{value} is no typed value" unless value.size == 1 && TYPES.include?(value.keys.first)

    value.first
  end

  # A typed value as the gem takes it.
  def value(given)
    return nest(given) if given.is_a?(Hash) && given.key?("nest")

    type, content = typed(given)
    Backhop::Typed.new(type.to_sym, content(type, content))
  end

  def content(type, content)
    case type
    when *INTEGERS then integer(content)
    when "string", "bytes" then raw(content)
    when "float", "double" then fraction(content)
    when "decimal" then decimal(content)
    when "array" then content.flat_map { |element| elements(element) }
    when "table" then entries(content)
    else content
    end
  end

  def decimal(content)
    only(content, "places value")
    BigDecimal(integer(content["value"])) * (BigDecimal(10)**-content["places"])
  end

  def nest(given)
    only(given, "nest of")
    type = given["of"].to_sym
    (given["nest"] - 1).times.reduce(Backhop::Typed.new(type, [])) do |inner, _|
      Backhop::Typed.new(type, type == :table ? [["n", inner]] : [inner])
    end
  end

  def elements(given)
    return [value(given)] unless given.is_a?(Hash) && given.key?("times")

    only(given, "times value")
    [value(given["value"])] * integer(given["times"])
  end

  # Headers, or the entries of a table.
  def entries(given)
    given.flat_map do |entry|
      next [[raw(entry[0]), value(entry[1])]] unless entry.is_a?(Hash)

      only(entry, "times entry")
      name = raw(entry["entry"][0])
      content = value(entry["entry"][1])
      Array.new(integer(entry["times"])) { |index| ["#{name}#{index}".b, content] }
    end
  end

  # --- Inputs -------------------------------------------------------------------------------------

  def property(name) = name.tr("-", "_").to_sym

  def delivery(given)
    given = given.fetch("delivery", {})
    only(given, "exchange routing_key properties headers")
    Backhop::Delivery.new(
      exchange: raw(given.fetch("exchange", "events")),
      routing_key: raw(given.fetch("routing_key", "order.created")),
      properties: given.fetch("properties", {}).to_h do |name, content|
        [property(name), content.is_a?(Integer) ? content : raw(content)]
      end,
      headers: given.key?("headers") ? entries(given["headers"]) : nil
    )
  end

  def policy(given)
    given = given.fetch("policy", {})
    only(given, "kind initial_ms factor max_ms steps_ms jitter ratio max_attempts max_age_ms max_retry_after_ms " \
                "max_crashes max_deferrals")
    Backhop::Policy.new(**times(given), **counts(given), **shape(given), **jitter(given))
  end

  def times(given)
    given.slice("initial_ms", "max_ms", "max_age_ms", "max_retry_after_ms")
         .to_h { |key, content| [key.delete_suffix("_ms").to_sym, seconds(content)] }
  end

  def counts(given)
    given.slice("max_attempts", "max_crashes", "max_deferrals").to_h { |key, content| [key.to_sym, integer(content)] }
  end

  def shape(given)
    fields = {}
    # Ruby's policy refuses a factor for kinds without one; the core ignores it.
    if given.key?("factor") && given.fetch("kind", "exponential") == "exponential"
      fields[:factor] = fraction(given["factor"])
    end
    fields[:steps] = given["steps_ms"].flat_map { |step| steps(step) } if given.key?("steps_ms")
    fields[:kind] = given.fetch("kind", "exponential").to_sym if given.key?("kind") || given.key?("steps_ms")
    fields
  end

  def steps(given)
    return [seconds(given)] unless given.is_a?(Hash)

    only(given, "times value")
    [seconds(given["value"])] * integer(given["times"])
  end

  def jitter(given)
    raise "ratio is for spread" if given.key?("ratio") && given["jitter"] != "spread"
    return {} unless given.key?("jitter")

    { jitter: given.key?("ratio") ? fraction(given["ratio"]) : given["jitter"].to_sym }
  end

  def topology(given, policy)
    given = given.fetch("topology", {})
    only(given, "queue strategy queue_type namespace series stripes work_queue_type work_queue_arguments policies")
    options = { policy: policy }
    options[:strategy] = property(given["strategy"]) if given.key?("strategy")
    options[:queue_type] = given["queue_type"].to_sym if given.key?("queue_type")
    options[:namespace] = raw(given["namespace"]) if given.key?("namespace")
    options[:series] = given["series"] if given.key?("series")
    options[:stripes] = given["stripes"] if given.key?("stripes")
    options[:work_queue] = given["work_queue_type"].to_sym if given.key?("work_queue_type")
    options[:work_queue_arguments] = arguments(given["work_queue_arguments"]) if given.key?("work_queue_arguments")
    options[:policies] = given["policies"].map { |further| policy({ "policy" => further }) } if given.key?("policies")
    Backhop::Topology.new(raw(given.fetch("queue", "orders")), **options)
  end

  def arguments(given)
    given.to_h { |name, content| [text(name), content.is_a?(Integer) ? content : text(content)] }
  end

  def history(given, delivery, topology)
    options = { wait_queues: given.fetch("wait_queues", []).map { |queue| raw(queue) } }
    options[:legacy_counter] = raw(given["legacy_counter"]) if given.key?("legacy_counter")
    Backhop::History.new(delivery, topology, **options)
  end
end

RSpec.configure do |config|
  config.extend Vectors::Cases
  config.include Vectors::Comparing
end
