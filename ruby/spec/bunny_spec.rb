# frozen_string_literal: true

require "spec_helper"
require "backhop/bunny"

# Bunny's own shapes; what needs a broker is in live/.
RSpec.describe Backhop::Bunny do
  let(:topology) { Backhop::Topology.new("work") }
  let(:decider) { Backhop::Decider.new(topology) }

  # The headers of a copy, through amq-protocol and back; its plan is for a handler that failed.
  def copied(headers, error = RuntimeError.new("no"), **properties)
    original = Bunny::MessageProperties.new(properties.merge(headers: headers).compact)
    history = decider.read(exchange: "e", routing_key: "k", properties: original, headers: headers)
    plan = decider.plan(history, error)
    written = plan.copy_headers(headers).transform_values { |value| described_class::Copy.writable(value) }
    encoded = AMQ::Protocol::Basic.encode_properties(0, plan.copy_properties(original).merge(headers: written))
    AMQ::Protocol::Basic.decode_properties(encoded[12..].b)
  end

  it "copies every kind of value that Bunny gives" do
    headers = {
      "time" => Time.at(1_767_323_045), "nothing" => nil, "true" => true, "false" => false, "integer" => -3,
      "large" => 2**62, "float" => 1.5, "text" => "gr\u00fcn".b, "binary" => "\xff\x00".b,
      "table" => { "deep" => [{ "deeper" => ["text", 1] }] }, "empty" => [], "none" => {}
    }
    expect(copied(headers)[:headers].slice(*headers.keys)).to eq(headers)
  end

  it "gives a handler headers of its own, of more levels than a stack bears" do
    arrived = 100_000.times.reduce("text") { |inner, level| level.even? ? { "deep" => inner } : [inner] }
    own = described_class::Message.duplicate(arrived)
    until own.is_a?(String)
      raise "they are the same" if own.equal?(arrived)

      own, arrived = [own, arrived].map { |each| each.is_a?(Hash) ? each["deep"] : each[0] }
    end
    expect([own, own.equal?(arrived)]).to eq(["text", false])
  end

  it "lets no listener that waits hold up the thread of an answer, and reports the answer next" do
    events = []
    retrier = double(consuming: [])
    silence = described_class.const_get(:Silence).new(retrier, 1)
    allow(retrier).to receive(:emit) do |name, **|
      events << name
      next if name == :connected

      expect(Thread.new { silence.looked(nil) }.join(10)).to be_a(Thread) # as a drain in a listener waits
    end
    silence.looking
    silence.check(false) while events.empty?
    expect(events).to eq(%i[unavailable connected])
  end

  it "copies symbols and strings as keys" do
    expect(copied({ symbol: :value, "string" => "value" })[:headers])
      .to include("symbol" => "value", "string" => "value")
  end

  it "writes decimals as doubles, as amq-protocol would cut them, and break an array that holds one" do
    headers = {
      "decimal" => BigDecimal("1.25"), "array" => [BigDecimal("-0.5"), "end of it"],
      "table" => { "d" => BigDecimal("7") }
    }
    expect(copied(headers)[:headers]).to include(
      "decimal" => 1.25, "array" => [-0.5, "end of it"], "table" => { "d" => 7.0 }
    )
  end

  it "copies symbols in arrays, whose size amq-protocol would not count" do
    expect(copied({ "array" => [:one, "the end"] })[:headers]["array"]).to eq(["one", "the end"])
  end

  it "copies a timestamp, which Bunny reads as a Time and writes as a number" do
    expect(copied({}, timestamp: Time.at(7), message_id: "m", priority: 0).except(:headers)).to eq(
      delivery_mode: 2, timestamp: Time.at(7), message_id: "m", priority: 0
    )
  end

  it "copies a message without headers" do
    expect(copied(nil)[:headers]["backhop-attempts"]).to eq(1)
  end

  it "writes an error that is not ASCII beside names that are binary" do
    copy = copied({ "k\u00fche".b => "\xfe".b }, RuntimeError.new("b\u00f6se"))
    expect(copy[:headers]["k\u00fche".b]).to eq("\xfe".b)
    expect(copy[:headers]["backhop-error"]).to eq("RuntimeError: b\u00f6se".b)
  end

  describe Backhop::Bunny::Copy do
    it "encodes a long body in several frames, and leaves it as it is" do
      history = decider.read(headers: {})
      plan = decider.plan(history, RuntimeError.new("no"))
      body = ("x" * 300_000).b
      copy = described_class.new(plan, { headers: {}, delivery_mode: 2 }, body, nil)
      channel = Bunny.new.then { |connection| Bunny::Channel.new(connection, 1) }
      frames = nil
      allow(channel.connection).to receive(:send_frameset) { |given, _| frames = given }
      allow(channel).to receive(:closed?).and_return(false)
      allow(channel.connection).to receive(:frame_max).and_return(131_072) # Bunny up to 2.24 reads the connection's
      channel.instance_variable_set(:@frame_max, 131_072)
      copy.publish(channel)
      expect(frames.sum { |frame| frame.payload.b.count("x") }).to eq(300_000)
      expect(body).to eq("x" * 300_000)
    end
  end

  it "writes settlements as amq-protocol does" do
    channel = double(connection: double(transport: nil), id: 513)
    original = described_class::Original.new(channel, (2**40) + 7)
    basic = AMQ::Protocol::Basic
    { ack: basic::Ack.encode(513, (2**40) + 7, false), drop: basic::Ack.encode(513, (2**40) + 7, false),
      reject: basic::Nack.encode(513, (2**40) + 7, false, false),
      requeue: basic::Nack.encode(513, (2**40) + 7, false, true),
      return: basic::Reject.encode(513, (2**40) + 7, true) }.each do |action, frame|
      expect(original.frame(action)).to eq(frame.encode)
    end
    expect(original.frame(:ack, 9)).to eq(basic::Ack.encode(513, 9, false).encode)
  end

  # As the broker would close the connection.
  it "gives a closed channel no settlement, also where it is closed while what to write is made ready" do
    transport = double(open?: true, write: nil)
    channel = double(connection: double(transport: transport), closed?: false)
    allow(channel).to receive(:id) do
      allow(channel).to receive(:closed?).and_return(true)
      1
    end
    original = described_class::Original.new(channel, 1)
    expect(original.settle(:ack)).to be(false)
    allow(channel).to receive(:closed?).and_return(false)
    expect(original.write(original.frame(:ack, 2))).to be(false)
    expect(transport).not_to have_received(:write)
  end

  it "takes Bunny from 2.19 on and below 4, and says so of any other" do
    %w[2.19.0 2.24.0 3.0.0 3.4.0 3.99].each { |version| described_class.check_version(version) }
    %w[2.18.0 1.7.1 4.0.0 4.0.0.pre 5.1].each do |version|
      expect { described_class.check_version(version) }
        .to raise_error(described_class::VersionError, /Bunny #{version} is loaded.*from 2.19 on and below 4.*Gemfile/)
    end
  end

  describe Backhop::Bunny::Retrier do
    def made(queue: "work", **options)
      described_class.new(Struct.new(:connection).new(Bunny.new(**options)), queue: queue)
    end

    it "wants a connection with a thread, and a queue that Bunny can declare" do
      expect { made(threaded: false) }.to raise_error(Backhop::InvalidArgumentError, /threaded: false/)
      expect { made(queue: "a\nb") }.to raise_error(Backhop::InvalidNameError, /line break/)
      expect { made(queue: "") }.to raise_error(Backhop::InvalidNameError)
    end

    it "wants a handler, has nothing pending, and takes the name of a queue", :unsigned do
      retrier = made(queue: instance_double(Bunny::Queue, name: "jobs").tap { |queue|
                              allow(queue).to receive(:is_a?).with(Bunny::Queue).and_return(true)
                            })
      expect { retrier.wrap }.to raise_error(Backhop::InvalidArgumentError, /handler/)
      expect([retrier.topology.queue, retrier.pending, retrier.drain(0)]).to eq(["jobs", 0, retrier])
      expect { retrier.drain("soon") }.to raise_error(Backhop::InvalidArgumentError)
    end
  end
end
