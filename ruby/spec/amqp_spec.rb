# frozen_string_literal: true

require "amq/protocol/client"

# Bunny's own shapes, as amq-protocol, its codec, decodes and encodes them.
RSpec.describe "Bunny's values" do
  let(:moment) { Time.utc(2023, 11, 14, 22, 13, 20) }
  let(:headers) do
    {
      "text" => "grün", "binary" => "\xFF\x00".b, "yes" => true, "no" => false, "small" => -300, "large" => 2**62,
      "share" => 0.25, "moment" => moment, "nothing" => nil, symbol: :value,
      "nested" => { "list" => [1, [nil, { deep: "\xFE".b }], "a"], "empty" => {}, "none" => [] }
    }
  end
  let(:decider) { Backhop::Decider.new(Backhop::Topology.new("orders")) }

  def encode(table) = AMQ::Protocol::Table.encode(table)

  def decode(encoded) = AMQ::Protocol::Table.decode(encoded)

  {
    "text" => :string, "\xFF".b => :string, symbol: :string, true => :boolean, false => :boolean, 1 => :int64,
    -(2**63) => :int64, 2**63 => :uint64, (2**64) - 1 => :uint64, 0.5 => :double, BigDecimal("3.14") => :decimal,
    Time.at(0) => :timestamp, nil => :void, [1] => :array, { "a" => 1 } => :table
  }.each do |value, type|
    it "have an AMQP type: #{value.inspect} is #{type}" do
      expect(Backhop::Delivery.new(headers: { "name" => value }).header_type("name")).to eq(type)
    end
  end

  it "come out as they went in" do
    ["grün", "a\0b", "", true, false, -1, (2**63) - 1, (2**64) - 1].each do |value|
      expect(Backhop::Delivery.new(headers: { name: value }).header(:name)).to eq(value)
    end
    expect(Backhop::Delivery.new(headers: { name: "\xFF\0".b }).header(:name).b).to eq("\xFF\0".b)
  end

  it "keep a decimal's digits, places and sign" do
    %w[3.14 -3.14 100 0 0.001 12e5].each do |digits|
      expect(Backhop::Delivery.new(headers: { name: BigDecimal(digits) }).headers["name"]).to eq(BigDecimal(digits))
    end
    expect {
      Backhop::Delivery.new(headers: { name: BigDecimal("NaN") })
    }.to raise_error(Backhop::InvalidArgumentError, /no decimal/)
  end

  it "that have no type in AMQP are refused by name" do
    [Object.new, 1..2, 1i, 2**64].each do |value|
      expect {
        Backhop::Delivery.new(headers: { name: value })
      }.to raise_error(Backhop::InvalidArgumentError, /header "name" holds/)
    end
  end

  it "are pushed at any depth" do
    inner = []
    100_000.times { inner = [inner] }
    delivery = Backhop::Delivery.new(headers: { "deep" => inner, "after" => 1 })
    expect(delivery).to be_truncated
    expect(delivery.header("after")).to eq(1)
  end

  it "go through a copy unchanged" do
    received = decode(encode(headers))
    plan = decider.plan(
      decider.read(exchange: "events", routing_key: "order.created", headers: received), IOError.new("507")
    )
    copy = decode(encode(plan.copy_headers(received)))
    expect(copy.slice(*received.keys)).to eq(received)
    again = decider.read(exchange: "backhop.return", routing_key: "order.created", headers: copy)
    expect(again).to have_attributes(attempts: 1, last_error: "IOError: 507", exchange: "events", problems: [])
  end

  it "that are not ASCII pass where names and routing keys are not either" do
    received = decode("\x00\x00\x00\x0F\x05na\xC3\xAFvS\x00\x00\x00\x04\xFF\xFE\xC3\xA9".b)
    history = decider.read(exchange: "\xFF".b, routing_key: "clé \xFF".b, headers: received)
    plan = decider.plan(history, IOError.new("\xC3\xA9chec".b))
    copy = decode(encode(plan.copy_headers(received)))
    expect(copy).to include("backhop-error" => "IOError: échec".b, "na\xC3\xAFv".b => "\xFF\xFE\xC3\xA9".b)
    expect(plan.routing_key.b).to eq("clé \xFF".b)
    expect(decider.read(routing_key: plan.routing_key, headers: copy))
      .to have_attributes(routing_key: "clé \xFF", problems: [])
  end

  it "make a copy that is never larger than the core reckons" do
    received = decode(encode(headers))
    copy = Backhop::Plan.new(Backhop::History.new(Backhop::Delivery.new(headers: received)), decider.topology)
                        .copy_headers(received)
    expect(encode(copy).bytesize).to be <= Backhop::Delivery.new(headers: copy).header_bytes - 2
  end

  it "that cannot be copied are saved as they were" do
    received = decode(encode({ "CC" => %w[audit log], "x-death" => [{ "count" => 1 }] }))
    copy = decider.plan(decider.read(headers: received), IOError.new).copy_headers(received)
    expect(copy).to include("backhop-cc" => %w[audit log], "BCC" => ["backhop:orders"])
    expect(copy).not_to include("CC", "x-death")
  end

  it "of properties are read, and kept as Bunny publishes them" do
    sent = { content_type: "text/plain", delivery_mode: 1, expiration: "60000", timestamp: 1_700_000_000,
             user_id: "shop", priority: 5, headers: {} }
    encoded = AMQ::Protocol::Basic.encode_properties(0, sent)[12..]
    received = AMQ::Protocol::Basic.decode_properties(encoded)
    history = decider.read(properties: received.except(:headers), headers: received[:headers])
    expect(history.delivery.properties).to eq(sent.except(:headers))
    plan = decider.plan(history, IOError.new)
    expect(plan.copy_properties(received))
      .to eq(content_type: "text/plain", delivery_mode: 2, timestamp: 1_700_000_000, priority: 5)
    expect(plan.copy_headers(received[:headers]))
      .to include("backhop-expiration" => "60000", "backhop-user-id" => "shop")
  end

  it "of a timestamp beyond every calendar are the last one" do
    delivery = Backhop::Delivery.new(properties: { timestamp: Time.at((2**64) - 1) }, headers: { t: Time.at(2**64) })
    expect([delivery.properties[:timestamp], delivery.header(:t)]).to eq([(2**63) - 1] * 2)
  end
end
