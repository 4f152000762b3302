# frozen_string_literal: true

require "vectors"

RSpec.describe Backhop::History do
  # Milliseconds since the epoch, -1 for nil.
  def ms(moment) = moment ? (moment.to_r * 1000).to_i : -1

  def compare_death(death, record)
    compare(
      record,
      queue: same(-> { death.queue }) { |value| Vectors.text(value) },
      reason: same(-> { death.reason }) { |value| Vectors.text(value) },
      exchange: same(-> { death.exchange }) { |value| Vectors.text(value) },
      original_expiration: same(-> { death.original_expiration }) { |value| Vectors.maybe(value) },
      times: same(-> { death.times }) { |value| Vectors.integer(value) },
      first_time_s: same(-> { death.time&.to_i || -1 }) { |value| Vectors.integer(value) },
      routing_keys: same(-> { death.routing_keys }) { |keys| keys.map { |key| Vectors.text(key) } }
    )
  end

  def compare_deaths(history, expected)
    expect(history.deaths.size).to eq(expected.size)
    history.deaths.zip(expected) { |death, record| compare_death(death, record) }
  end

  def compare_place(place, expected)
    compare(expected, place.members.to_h { |name| [name, same(-> { place[name] }) { |value| Vectors.text(value) }] })
  end

  def compare_problems(history, expected)
    return if expected == "any"

    names = expected.map { |name| Vectors.text(name) }
    expect(history.problems.reject { |problem| problem.start_with?(*names) }).to be_empty
    names.each { |name| expect(history.problems).to include(start_with(name)) }
  end

  cases "history" do |given|
    Vectors.only(given, "name delivery policy topology legacy_counter wait_queues expect")
    raise "a policy needs a topology" if given.key?("policy") && !given.key?("topology")

    delivery = Vectors.delivery(given)
    topology = given.key?("topology") ? Vectors.topology(given, Vectors.policy(given)) : nil
    Vectors.history(given, delivery, topology)
    history = Vectors.history(given, delivery, topology)
    compare(
      { "problems" => [] }.merge(given["expect"]),
      attempts: same(-> { history.attempts }) { |value| Vectors.integer(value) },
      source: same(-> { history.source }) { |value| Vectors.property(value) },
      first_failure_ms: same(-> { ms(history.first_failure) }) { |value| Vectors.integer(value) },
      last_delay_ms: same(-> { history.last_delay }) { |value| value == -1 ? nil : Vectors.integer(value) / 1000.0 },
      last_error: same(-> { history.last_error }) { |value| Vectors.maybe(value) },
      id: same(-> { history.id }) { |value| Vectors.maybe(value) },
      exchange: same(-> { history.exchange }) { |value| Vectors.text(value) },
      routing_key: same(-> { history.routing_key }) { |value| Vectors.text(value) },
      parked: same(-> { history.parked }) { |value| Vectors.maybe(value) },
      delivery_count: same(-> { history.delivery_count }) { |value| Vectors.integer(value) },
      acquired_count: same(-> { history.acquired_count }) { |value| Vectors.integer(value) },
      crashes: same(-> { history.crashes }) { |value| Vectors.integer(value) },
      deferrals: same(-> { history.deferrals }) { |value| Vectors.integer(value) },
      replays: same(-> { history.replays }) { |value| Vectors.integer(value) },
      deaths: ->(expected) { compare_deaths(history, expected) },
      death_count: same(-> { history.deaths.size }),
      first_death: ->(expected) { compare_place(history.first_death, expected) },
      last_death: ->(expected) { compare_place(history.last_death, expected) },
      problems: ->(expected) { compare_problems(history, expected) }
    )
  end

  it "outlives what it was read from" do
    history = described_class.new(Backhop::Delivery.new(headers: { "backhop-attempts" => 3 }),
                                  Backhop::Topology.new("orders"))
    GC.start
    expect(history.attempts).to eq(3)
  end
end
