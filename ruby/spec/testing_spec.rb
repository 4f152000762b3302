# frozen_string_literal: true

RSpec.describe Backhop::Testing do
  let(:policy) { Backhop::Policy.new(initial: 1, factor: 2, max: 60, jitter: :none, max_attempts: 4) }
  let(:failing) { ->(_) { raise IOError, "507 queue is full" } }

  it "hands a message to a handler that fails until it is parked" do
    rehearsal = described_class.rehearse(policy: policy, &failing)
    expect(rehearsal.map(&:number)).to eq([1, 2, 3, 4])
    expect(rehearsal.delays).to eq([1, 2, 4])
    expect(rehearsal.map(&:at)).to eq([0, 1, 3, 7])
    expect(rehearsal).to have_attributes(outcome: :parked, reason: "exhausted", size: 4)
    expect(rehearsal.to_s).to include("attempt  3 after          3 s: #<IOError: 507 queue is full>, again in 4 s")
    expect(rehearsal.to_s).to end_with("parked (exhausted)")
  end

  it "shows the handler what became of its message before" do
    seen = []
    rehearsal = described_class.rehearse("body", policy: policy, queue: "orders", exchange: "events",
                                                 routing_key: "order.created", headers: { tenant: "acme" }) do |message|
      seen << [message.attempt, message.last_error, message.exchange, message.routing_key, message.last_delay,
               message.body]
      raise Backhop::RetryAfter.new(30, "busy") if message.attempt == 1
    end
    expect(rehearsal.outcome).to eq(:acked)
    expect(seen).to eq([[1, nil, "events", "order.created", nil, "body"],
                        [2, "busy", "events", "order.created", 31.5, "body"]])
  end

  it "does not count a throttled message's waits as attempts" do
    seen = []
    policy = Backhop::Policy.new(max_attempts: 2, max_deferrals: 2)
    rehearsal = described_class.rehearse(policy: policy) do |message|
      seen << [message.attempt, message.deferrals, message.last_error]
      raise Backhop::Throttled.new(30, "429") if seen.size <= 3
    end
    expect(rehearsal).to have_attributes(outcome: :acked, delays: [31.5, 31.5, 31.5])
    expect(rehearsal.map { |attempt| attempt.plan.action }).to eq(%i[defer defer retry ack])
    expect(seen).to eq([[1, 0, nil], [1, 1, "429"], [1, 2, "429"], [2, 2, "429"]])
  end

  it "shows what a breaker does: a message that gets no permit is deferred" do
    pauses = Backhop::Policy.new(kind: :fixed, initial: 30, jitter: :none)
    breaker = Backhop::Breaker.new("billing", row_failures: 2, probe_successes: 1, pauses: pauses)
    calls = 0
    rehearsal = described_class.rehearse(policy: policy, breaker: breaker) { (calls += 1) <= 2 && raise(IOError, "no") }
    expect(rehearsal.outcome).to eq(:acked)
    expect(rehearsal.map { |attempt| [attempt.number, attempt.plan.action, attempt.breaker] })
      .to match(
        [[1, :retry, :closed], [2, :retry, :open], *[[3, :defer, :open]] * (rehearsal.size - 3), [3, :ack, :closed]]
      )
    expect(rehearsal.to_a.last.at).to be >= 31
    expect(rehearsal.to_s).to match(/^attempt  3 after .*: deferred, again in .* s, breaker open$/)
    expect(calls).to eq(3)
  end

  it "rehearses a breaker by key, whose key may fail" do
    keyed = Backhop::Breaker.new("hosts", key: ->(message) { message.headers.fetch("host") })
    keyed.open(key: "a")
    deferred = described_class.rehearse(headers: { host: "a" }, breaker: keyed, most_attempts: 2) { nil }
    expect(deferred.map { |attempt| [attempt.plan.action, attempt.breaker] }).to eq([%i[defer open]] * 2)
    expect(described_class.rehearse(headers: { host: "b" }, breaker: keyed) { nil }.outcome).to eq(:acked)
    failed = described_class.rehearse(policy: policy, breaker: keyed) { nil }
    expect(failed).to have_attributes(outcome: :parked, size: 4)
    expect(failed.errors).to all(be_a(KeyError))
  end

  it "ends at once by Park, Drop and never" do
    park = described_class.rehearse { raise Backhop::Park, "no such page" }
    expect(park).to have_attributes(outcome: :parked, reason: "permanent")
    expect(described_class.rehearse { raise Backhop::Drop }.outcome).to eq(:dropped)
    never = described_class.rehearse(never: [IOError], &failing)
    expect(never).to have_attributes(reason: "permanent", size: 1)
  end

  it "waits by the policy of the error's class, with one count for all" do
    limited = Class.new(StandardError)
    slow = Backhop::Policy.new(kind: :fixed, initial: 100, max: 100, jitter: :none, max_attempts: 3)
    busy = ->(error) { error.message == "busy" }
    policies = { limited => slow,
                 busy => Backhop::Policy.new(kind: :fixed, initial: 7, jitter: :none, max_attempts: 9) }
    errors = [IOError.new("507"), limited.new("busy"), IOError.new("busy"), IOError.new("507"), IOError.new("no")]
    rehearsal = described_class.rehearse(policy: policy, policies: policies) { raise errors.shift }
    expect(rehearsal.delays).to eq([1, 100, 7])
    expect(rehearsal).to have_attributes(outcome: :parked, reason: "exhausted", size: 4)
    limits = [IOError.new("507"), IOError.new("507"), limited.new("429")]
    rehearsal = described_class.rehearse(policy: policy, policies: policies) { raise limits.shift }
    expect(rehearsal).to have_attributes(outcome: :parked, reason: "exhausted", size: 3)
  end

  %i[reject native].each do |strategy|
    it "counts where the broker alone moves messages: #{strategy}" do
      policy = Backhop::Policy.new(initial: 5, kind: :fixed, jitter: :none, max_attempts: 3)
      rehearsal = described_class.rehearse(policy: policy, strategy: strategy, &failing)
      expect(rehearsal).to have_attributes(delays: [5, 5], reason: "exhausted")
    end

    it "counts an earlier count once: #{strategy}" do
      policy = Backhop::Policy.new(initial: 5, kind: :fixed, jitter: :none, max_attempts: 6)
      rehearsal = described_class.rehearse(
        policy: policy, strategy: strategy, headers: { "backhop-attempts" => 3 }, &failing
      )
      expect(rehearsal.map(&:number)).to eq([4, 5, 6])
    end
  end

  it "ends what would go on for ever" do
    rehearsal = described_class.rehearse(policy: Backhop::Policy.new(max_attempts: 0), most_attempts: 7, &failing)
    expect(rehearsal).to have_attributes(size: 7, outcome: :waiting)
  end

  it "hands no message to a handler that crashes its consumers" do
    rehearsal = described_class.rehearse(headers: { "x-delivery-count" => 1, "backhop-crashes" => 20 }, &failing)
    expect(rehearsal).to have_attributes(reason: "poison", errors: [])
  end

  it "has the same jitter in every run" do
    policy = Backhop::Policy.new(initial: 10, max_attempts: 6)
    delays = Array.new(2) { described_class.rehearse(policy: policy, &failing).delays }
    expect(delays.first).to eq(delays.last)
    other = described_class.rehearse(policy: policy, random: described_class::SeededRandom.new(1), &failing)
    expect(other.delays).not_to eq(delays.first)
    delays.first.zip(policy.preview) do |delay, row| # a rung below or above
      expect(delay).to be_between(row.lowest * 0.79, row.highest * 1.26)
    end
  end

  it "lets time pass as the clock says" do
    clock = described_class::Clock.new
    policy = Backhop::Policy.new(initial: 1, jitter: :none, max_age: 150)
    rehearsal = described_class.rehearse(clock: clock, policy: policy) do
      clock.advance(60)
      raise IOError
    end
    expect(rehearsal.map(&:at)).to eq([0, 61, 123, 187])
    expect(rehearsal.reason).to eq("too-old")
  end

  it "needs a handler", :unsigned do
    expect { described_class.rehearse("body") }.to raise_error(Backhop::InvalidArgumentError, /give a block/)
  end
end
