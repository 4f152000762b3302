# frozen_string_literal: true

require "spec_helper"

RSpec.describe Backhop::Retrier do
  def made(**options)
    topology = Backhop::Topology.new("work", **options.slice(:policy))
    described_class.new(
      topology, **{ mode: :create, never: [], only: [], legacy_counter: nil, wait_queues: [], confirm_timeout: 30,
                    back_off: nil, clock: Time.method(:now), random: Random.method(:urandom), **options.except(:policy) }
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

  it "refuses a confirm_timeout that is none" do
    expect { made(confirm_timeout: 0) }.to raise_error(Backhop::InvalidArgumentError, /confirm_timeout is 0/)
    expect { made(confirm_timeout: "soon") }.to raise_error(Backhop::InvalidArgumentError, /confirm_timeout is "soon"/)
  end

  it "draws random bytes for copies alone" do
    drawn = 0
    random = ->(count) { Random.bytes(count).tap { drawn += 1 } }
    decider = Backhop::Decider.new(made.topology, random: random)
    history = decider.read
    expect(decider.guard(history)).to be_nil
    expect([decider.plan(history), decider.plan(history, Backhop::Drop.new)].map(&:action)).to eq(%i[ack drop])
    expect(drawn).to eq(0)
    decider.plan(history, RuntimeError.new)
    expect(drawn).to eq(1)
  end

  it "needs a rung for demand once, and again when in doubt" do
    retrier = made(policy: Backhop::Policy.new(initial: 1, max: 1, jitter: :none, max_retry_after: 60))
    decider = Backhop::Decider.new(retrier.topology)
    plan = decider.plan(decider.read, Backhop::RetryAfter.new(30))
    expect(retrier.needed(plan).map(&:wait).uniq).to eq([31.5])
    retrier.made(plan)
    expect(retrier.needed(plan)).to be_empty
    retrier.doubt
    expect(retrier.needed(plan)).not_to be_empty
  end
end
