# frozen_string_literal: true

require "vectors"

RSpec.describe Backhop::Topology do
  def declaration(given)
    Vectors.only(given, "exchange queue binding type source routing_key arguments wait_ms on_demand")
    what = (given.keys & %w[exchange queue binding]).then { |(only)| only }
    Backhop::Declaration.new(
      what: what.to_sym, name: Vectors.text(given[what]), type: given["type"],
      source: Vectors.text(given.fetch("source", "")), routing_key: Vectors.text(given.fetch("routing_key", "")),
      arguments: Vectors.arguments(given.fetch("arguments", [])), wait: given.fetch("wait_ms", 0) / 1000.0,
      on_demand: given.fetch("on_demand", false)
    )
  end

  def compare_declarations(topology, expected)
    expect(topology.declarations).to eq(expected.map { |given| declaration(given) })
    names = expected.map { |given| given.fetch("arguments", []).map { |name, _| Vectors.text(name) } }
    expect(topology.declarations.map { |each| each.arguments.keys }).to eq(names)
  end

  def declared(topology, on_demand:)
    waits =
      topology.declarations.select { |each| each.what == :queue && each.wait.positive? && each.on_demand? == on_demand }
    waits.map { |each| (each.wait * 1000).round }.uniq # stripes share a rung
  end

  def compare_preview(topology, rows)
    rows.each do |attempt, *times, rungs|
      expect(topology.row(attempt).to_a).to eq([attempt, *times.map { |ms| ms / 1000.0 }, rungs])
    end
  end

  def compare_shares(topology, rows)
    rows.each do |attempt, rung, share|
      expect(topology.shares(attempt).fetch(rung / 1000.0, 0)).to be_within(0.0005).of(share)
    end
  end

  def compare_rungs(topology, expected)
    expect(topology.rungs.map { |rung| (rung * 1000).round }).to eq(expected)
    expect(declared(topology, on_demand: false)).to eq(expected)
  end

  def compare_brokers(topology, rows)
    rows.each do |product, version, status, *texts|
      checked = -> { topology.check_broker(Vectors.raw(product), Vectors.raw(version)) }
      next checked.call if status == "BH_OK"

      tells(refused("expect" => { "status" => status }, &checked), texts)
    end
  end

  def compare_definitions(topology, expected)
    Vectors.only(expected, "vhost json status")
    definitions = -> { topology.definitions(vhost: Vectors.raw(expected.fetch("vhost", "/"))) }
    return refused("expect" => expected, &definitions) if expected.key?("status")

    expect(JSON.parse(definitions.call)).to eq(expected["json"])
  end

  cases "topology" do |given|
    Vectors.only(given, "name policy topology expect")
    expected = given["expect"]
    unless Vectors.status(given) == "BH_OK"
      Vectors.only(expected, "status refused_by error")
      next tells(refused(given) { Vectors.topology(given, Vectors.policy(given)) },
                 Array(expected["error"]).map { |words| { "100" => "0.1 s" }.fetch(words, words).delete_suffix("_ms") })
    end

    policy = Vectors.policy(given)
    Vectors.topology(given, policy)
    topology = Vectors.topology(given, policy)
    compare(
      expected,
      queue: same(-> { topology.queue }) { |value| Vectors.text(value) },
      strategy: same(-> { topology.strategy }) { |value| Vectors.property(value) },
      parked_queue: same(-> { topology.parked_queue }) { |value| Vectors.text(value) },
      worst_lateness_ms: same(-> { (topology.worst_lateness * 1000).round }),
      rungs: ->(rungs) { compare_rungs(topology, rungs) },
      on_demand_rungs: same(-> { declared(topology, on_demand: true) }),
      declarations: ->(declarations) { compare_declarations(topology, declarations) },
      brokers: ->(rows) { compare_brokers(topology, rows) },
      preview: ->(rows) { compare_preview(topology, rows) },
      shares: ->(rows) { compare_shares(topology, rows) },
      definitions: ->(definitions) { compare_definitions(topology, definitions) }
    )
  end

  it "has the default policy where it is given none" do
    expect(described_class.new("orders").policy).to eq(Backhop::Policy.new)
  end

  it "keeps its policy alive" do
    topology = described_class.new("orders", policy: Backhop::Policy.new(max_attempts: 2))
    GC.start
    expect(Backhop::Plan.new(Backhop::History.new(Backhop::Delivery.new), topology).action).to eq(:retry)
  end

  it "refuses a series and a strategy that are none, with those that there are", :unsigned do
    expect { described_class.new("orders", series: 7) }
      .to raise_error(Backhop::InvalidArgumentError, /series is 7: give one of 5, 10, 20, 40/)
    expect {
      described_class.new("orders", strategy: :hope)
    }.to raise_error(Backhop::InvalidArgumentError, /give one of :ladder/)
  end

  it "cannot be changed" do
    topology = described_class.new("orders")
    expect([topology, topology.declarations, *topology.declarations.flat_map { |each| [each, each.arguments] }])
      .to all(be_frozen)
  end
end
