# frozen_string_literal: true

require "spec_helper"

RSpec.describe Backhop::Retrier do
  def made(**options)
    topology = Backhop::Topology.new("work", **options.slice(:policy))
    described_class.new(
      topology, **{ mode: :create, never: [], only: [], policies: {}, legacy_counter: nil, wait_queues: [],
                    back_off: nil, on_event: nil, clock: Time.method(:now), random: Random.method(:urandom),
                    **options.except(:policy) }
    )
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
