# frozen_string_literal: true

require "spec_helper"

RSpec.describe Backhop::Retrier do
  def made(**options)
    topology = Backhop::Topology.new("work", **options.slice(:policy))
    described_class.new(
      topology, **{ mode: :create, never: [], only: [], policies: {}, legacy_counter: nil, wait_queues: [], back_off: nil,
                    on_event: nil, clock: Time.method(:now), random: Random.method(:urandom), **options.except(:policy) }
    )
  end

  it "waits about twice as long each time, from 100 ms up to 10 s, or as back_off says" do
    retrier = made
    expect(Array.new(50) { retrier.back_off(1) }).to all(be_between(0.05, 0.1))
    expect(Array.new(50) { retrier.back_off(4) }).to all(be_between(0.4, 0.8))
    expect(Array.new(50) { retrier.back_off(10_000) }).to all(be_between(5, 10))
    back_off = Backhop::Policy.new(kind: :fixed, initial: 3, jitter: :none, max_attempts: 1)
    expect(made(back_off: back_off).back_off(7)).to eq(3)
  end

  it "has the default policy, and its topology" do
    expect(made.policy.preview.to_s).to eq(Backhop::Policy.new.preview.to_s)
    expect(made.topology.queue).to eq("work")
  end

  it "draws random bytes for copies alone" do
    drawn = 0
    random = ->(count) { Random.bytes(count).tap { drawn += 1 } }
    decider = Backhop::Decider.new(made.topology, random: random)
    history = decider.read(properties: { message_id: "42" })
    expect(decider.guard(history)).to be_nil
    expect([decider.plan(history), decider.plan(history, Backhop::Drop.new)].map(&:action)).to eq(%i[ack drop])
    expect(drawn).to eq(0)
    decider.plan(history, RuntimeError.new)
    expect(drawn).to eq(1)
  end

  it "T5: assigns an id to a message without one, for its events and its copy, and no two the same" do
    decider = Backhop::Decider.new(made.topology)
    histories = Array.new(2) { decider.read }
    expect(histories.map(&:id)).to eq([nil, nil])
    assigned = histories.map(&:event_id)
    expect(assigned).to all(match(/\A\h{32}\z/))
    expect(assigned.uniq).to eq(assigned)
    expect(histories.map { |each| decider.plan(each, RuntimeError.new).id }).to eq(assigned)
    expect(decider.read(properties: { message_id: "42" }).event_id).to eq("42")
  end
end
