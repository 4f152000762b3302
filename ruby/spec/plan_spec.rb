# frozen_string_literal: true

require "vectors"

RSpec.describe Backhop::Plan do
  let(:now_ms) { 1_700_000_000_000 }
  let(:keys) do
    "name delivery policy topology legacy_counter wait_queues outcome error retry_after_ms now_ms random frame_max " \
      "guard replay expect"
  end

  def bits(fraction) = [(fraction * (2**53)).to_i << 11].pack("Q>")

  def random(given)
    if given.key?("hex")
      Vectors.only(given, "hex")
      return Vectors.raw(given)
    end

    Vectors.only(given, "u pick id")
    id = Vectors.raw(given.fetch("id", { "hex" => "00112233445566778899aabbccddeeff" }))
    bits(given.fetch("u", 0.5)) + bits(given.fetch("pick", 0.5)) + id
  end

  def plan(given, history, topology)
    common = { random: random(given.fetch("random", {})) }
    common[:frame_max] = given["frame_max"] if given.key?("frame_max")
    return described_class.replay(history, topology, **common) if given["replay"]

    common[:now] = Vectors.seconds(given.fetch("now_ms", now_ms))
    return described_class.guard(history, topology, **common) if given["guard"]

    described_class.new(
      history, topology, given.fetch("outcome", "failed").to_sym,
      error: Vectors.raw(given.fetch("error", "")), retry_after: Vectors.seconds(given.fetch("retry_after_ms", 0)),
      **common
    )
  end

  def compare_kept_headers(given, plan, expected)
    names = given["delivery"]["headers"].map { |name, _| Vectors.raw(name) }.uniq
    expected = expected.map { |name| Vectors.raw(name) }
    expect(names).to include(*expected)
    expect(names.select { |name| plan.keeps_header?(name) }).to match_array(expected)
  end

  def compare_kept_properties(given, plan, expected)
    names = given["delivery"]["properties"].keys.map { |name| Vectors.property(name) }
    expect(names & plan.kept_properties).to match_array(expected.map { |name| Vectors.property(name) })
  end

  def header((name, value))
    if value.is_a?(Hash) && value.key?("copy_of")
      Vectors.only(value, "copy_of")
      return [Vectors.text(name), Backhop::Typed.new(:void, Vectors.text(value["copy_of"]))]
    end

    type, content = Vectors.typed(value)
    content =
      case type
      when "int64" then Vectors.integer(content)
      when "array" then content.map { |item| Vectors.text(item) }
      else Vectors.text(content)
      end
    [Vectors.text(name), Backhop::Typed.new(type.to_sym, content)]
  end

  # By the event: a permanent failure has the same one as a failure, and a deferral has none.
  def counts_as(given, history, topology)
    outcome = given.fetch("outcome", "failed").to_sym
    event = described_class.end_of(history, topology, outcome).to_s
    return outcome.to_s if event.empty?

    event == "failed" && outcome == :permanent ? "permanent" : event
  end

  def check_invariants(plan)
    expect(plan.publishes?).to eq(%i[retry defer park replay].include?(plan.action))
    expect(plan.headers).to be_empty unless plan.publishes?
    expect(plan.action == :park).to eq(!plan.reason.nil?)
    return unless plan.publishes?

    expect(plan.kept_properties & %i[user_id expiration delivery_mode]).to be_empty
    expect(plan.headers.map(&:first).select { |name| plan.keeps_header?(name) }).to be_empty
  end

  cases "plan" do |given|
    Vectors.only(given, keys)
    topology = Vectors.topology(given, Vectors.policy(given))
    history = Vectors.history(given, Vectors.delivery(given), topology)
    next refused(given) { plan(given, history, topology) } unless Vectors.status(given) == "BH_OK"

    plan(given, history, topology)
    plan = plan(given, history, topology)
    compare(
      given["expect"],
      action: same(-> { plan.action }, &:to_sym),
      counts_as: same(-> { counts_as(given, history, topology) }),
      attempts: same(-> { plan.attempts }) { |value| Vectors.integer(value) },
      deferrals: same(-> { plan.deferrals }) { |value| Vectors.integer(value) },
      delay_ms: same(-> { plan.delay }) { |value| Vectors.integer(value) / 1000.0 },
      retry_after_met: same(-> { plan.retry_after_met? }),
      reason: same(-> { plan.reason }) { |value| Vectors.maybe(value) },
      id: same(-> { plan.id }) { |value| Vectors.maybe(value) },
      exchange: same(-> { plan.exchange }) { |value| Vectors.text(value) },
      routing_key: same(-> { plan.routing_key }) { |value| Vectors.text(value) },
      mandatory: same(-> { plan.mandatory? }),
      on_demand: same(-> { plan.on_demand? }),
      expiration: same(-> { plan.expiration }) { |value| Vectors.maybe(value) },
      kept_properties: ->(expected) { compare_kept_properties(given, plan, expected) },
      kept_headers: ->(expected) { compare_kept_headers(given, plan, expected) },
      headers: same(-> { plan.headers }) { |expected| expected.map { |entry| header(entry) } },
      headers_in_any_order: same(-> { plan.headers.sort_by(&:first) }) do |expected|
        expected.map { |entry| header(entry) }.sort_by(&:first)
      end,
      headers_with: ->(expected) { expect(plan.headers).to include(*expected.map { |entry| header(entry) }) },
      headers_without: lambda { |names|
        expect(plan.headers.map(&:first) & names.map { |name| Vectors.text(name) }).to be_empty
      }
    )
    check_invariants(plan)
  end

  it "outlives what it was made of" do
    plan = described_class.new(Backhop::History.new(Backhop::Delivery.new(headers: { tenant: "acme" })),
                               Backhop::Topology.new("orders"), error: "507")
    GC.start
    expect(plan.copy_headers({ tenant: "acme" })).to include("tenant" => "acme", "backhop-error" => "507")
  end

  it "has the moment and the random bytes from the clock and the system" do
    topology = Backhop::Topology.new("orders")
    history = Backhop::History.new(Backhop::Delivery.new, topology)
    one, two = Array.new(2) { described_class.new(history, topology).copy_headers(nil) }
    expect(one["backhop-id"]).not_to eq(two["backhop-id"])
    now_ms = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    expect(one["backhop-first-failure"]).to be_within(60_000).of(now_ms)
  end

  it "takes a moment as a Time too" do
    topology = Backhop::Topology.new("orders")
    history = Backhop::History.new(Backhop::Delivery.new, topology)
    plan = described_class.new(history, topology, now: Time.at(1_700_000_000, 123.9, :millisecond))
    expect(plan.copy_headers(nil)["backhop-first-failure"]).to eq(1_700_000_000_123)
  end

  it "refuses an outcome that is none, and random bytes that are too few", :unsigned do
    topology = Backhop::Topology.new("orders")
    history = Backhop::History.new(Backhop::Delivery.new, topology)
    expect {
      described_class.new(history, topology, :fine)
    }.to raise_error(Backhop::InvalidArgumentError, /give one of :ok, :failed/)
    expect { described_class.new(history, topology, random: "few") }.to raise_error(Backhop::InvalidArgumentError)
  end
end
