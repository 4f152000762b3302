# frozen_string_literal: true

require "vectors"

RSpec.describe Backhop::Delivery do
  def compare_properties(delivery, expected)
    expect(delivery.headers?).to eq(expected.fetch("headers", false))
    expect(delivery.properties).to eq(
      expected.except("headers").to_h do |name, content|
        [Vectors.property(name), content.is_a?(Integer) ? content : Vectors.text(content)]
      end
    )
  end

  def content(type, content)
    case type
    when "string" then Vectors.text(content)
    when "bytes" then Vectors.raw(content)
    when "boolean" then content
    else Vectors::INTEGERS.include?(type) ? Vectors.integer(content) : nil
    end
  end

  def compare_headers(delivery, expected)
    expected.each do |name, given|
      type, content = Vectors.typed(given)
      expect(delivery.header_type(Vectors.raw(name))).to eq(type.to_sym)
      expect(delivery.header(Vectors.raw(name))).to eq(content(type, content))
    end
  end

  # A typed value as the gem gives it; a word for NaN, which does not equal itself.
  def ruby(given)
    type, content = Vectors.typed(given)
    case type
    when "table" then content.reverse.to_h { |name, inner| [Vectors.text(name), ruby(inner)] } # of one name, the first
    when "array" then content.map { |inner| ruby(inner) }
    when "string" then Vectors.text(content)
    when "timestamp" then Time.at(Vectors.integer(content), in: "UTC")
    else comparable(Vectors.value(given).value)
    end
  end

  def comparable(found)
    case found
    when Hash then found.transform_values { |value| comparable(value) }
    when Array then found.map { |value| comparable(value) }
    when Float then found.nan? ? "nan" : found
    else found
    end
  end

  cases "delivery" do |given|
    Vectors.only(given, "name delivery expect")
    next refused(given) { Vectors.delivery(given) } unless Vectors.status(given) == "BH_OK"

    Vectors.delivery(given)
    delivery = Vectors.delivery(given)
    compare(
      given["expect"],
      exchange: same(-> { delivery.exchange }) { |value| Vectors.text(value) },
      routing_key: same(-> { delivery.routing_key }) { |value| Vectors.text(value) },
      properties: ->(expected) { compare_properties(delivery, expected) },
      values: same(-> { comparable(delivery.headers) }) { |values| ruby({ "table" => values }) },
      headers: ->(expected) { compare_headers(delivery, expected) },
      absent: ->(names) { names.each { |name| expect(delivery.header_type(Vectors.raw(name))).to be_nil } },
      truncated: same(-> { delivery.truncated? }),
      header_bytes: same(-> { delivery.header_bytes }) { |value| Vectors.integer(value) }
    )
  end

  it "refuses a property that AMQP lacks, by name" do
    expect {
      described_class.new(properties: { colour: "red" })
    }.to raise_error(Backhop::InvalidArgumentError, /no property :colour/)
  end

  it "gives headers in the classes that Ruby tells apart" do
    headers = { "flag" => true, "count" => 1, "share" => 0.5, "raw" => Backhop::Typed.new(:bytes, "\xFF".b),
                "big" => (2**64) - 1, "price" => BigDecimal("3.14"), "late" => Backhop::Typed.new(:timestamp, 2**62) }
    read = described_class.new(headers: headers).headers
    expect(read).to eq(headers.merge("raw" => "\xFF".b, "late" => Time.at(2**62)))
    expect(read["raw"].encoding).to eq(Encoding::BINARY)
    expect(read["late"]).to be_utc
  end

  it "refuses a name above 255 bytes" do
    expect { described_class.new(headers: { "n" * 256 => 1 }) }.to raise_error(Backhop::InvalidArgumentError)
  end

  it "cannot be changed" do
    expect(described_class.new).to be_frozen
  end
end
