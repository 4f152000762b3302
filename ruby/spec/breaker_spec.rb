# frozen_string_literal: true

require "native"
require "vectors"

# The shared vectors of the breaker, over what SWIG made: its class takes the time from the clock.
class BreakerSequence
  SETTINGS = %w[window_ms least_calls failure_percent row_failures slow_ms slow_percent probe_successes probe_timeout_ms
                ramp_calls throttled_opens].freeze
  STATES = %w[closed open half-open disabled].freeze
  KINDS = %w[success failure ignored throttled].freeze
  PAUSES = { "kind" => "fixed", "initial_ms" => 10_000, "jitter" => "none" }.freeze
  VIEW = %w[state generation until_ms limit pauses window reason].freeze
  ROW = "at_ms open_until_ms close disable permit record calls kind duration_ms retry_after_ms whole_queue error " \
        "counts refused_until_ms #{VIEW.join(" ")}".freeze

  attr_reader :comparisons, :status, :error

  def initialize(given)
    Vectors.only(given.fetch("settings", {}), SETTINGS.join(" "))
    settings = SETTINGS.zip(Native.bh_breaker_defaults).to_h.merge(given.fetch("settings", {})).values_at(*SETTINGS)
    random = given.key?("random") ? Vectors.raw(given["random"]) : "\0" * 8
    pauses = given.fetch("pauses", PAUSES)
    @status, @breaker = Native.bh_breaker_new("", *settings, 0, pauses && Vectors.back_off(pauses), random)
    @error = Native.bh_breaker_settings_error("", *settings)
    @permits = {}
    @now_ms = 0
    @comparisons = []
  end

  # Plays a row, and adds its expected and real values to the comparisons.
  def play(row)
    Vectors.only(row, ROW)
    @now_ms = row.fetch("at_ms", @now_ms)
    by_hand(row)
    make_calls(row)
    if row.key?("refused_until_ms")
      generation, _, until_ms = @breaker.permit("", @now_ms)
      compare([generation, until_ms], [0, time(row["refused_until_ms"])])
    end
    found = view
    VIEW.each { |key| compare(found[key], row[key]) if row.key?(key) }
  end

  private

  def compare(got, expected) = @comparisons << [got, expected]

  def time(given) = given.nil? ? -1 : given

  def by_hand(row)
    compare(@breaker.open("", time(row["open_until_ms"]), @now_ms), 0) if row.key?("open_until_ms")
    @breaker.close("", @now_ms) if row.key?("close")
    @breaker.disable("", @now_ms) if row.key?("disable")
  end

  def make_calls(row)
    row.fetch("permit", []).each { |name| @permits[name] = granted }
    row.fetch("record", []).each { |name| record(row, @permits.fetch(name)) }
    row.fetch("calls", 0).times { record(row, granted) }
  end

  def granted
    permit = @breaker.permit("", @now_ms)
    compare(permit.first.zero?, false)
    permit
  end

  def record(row, permit)
    counted = @breaker.record("", permit[0], permit[1], KINDS.index(row.fetch("kind", "success")),
                              row.fetch("duration_ms", 0), row.fetch("retry_after_ms", 0), row["whole_queue"] ? 1 : 0,
                              row.fetch("error", ""), @now_ms)
    compare(counted == 1, row.fetch("counts", true))
  end

  def view
    state, generation, until_ms, limit, pauses, *window, _grants, reason = @breaker.read("", @now_ms)
    until_ms = nil if until_ms == -1
    VIEW.zip([STATES[state], generation, until_ms, limit, pauses, window, reason]).to_h
  end
end

RSpec.describe "The breaker" do
  cases "breaker" do |given|
    Vectors.only(given, "name settings pauses random expect")
    sequence = BreakerSequence.new(given)
    expect(Native.bh_status_name(sequence.status)).to eq(Vectors.status(given))
    if sequence.status.zero?
      Vectors.only(given["expect"], "history")
      given["expect"]["history"].each { |row| sequence.play(row) }
      got, expected = sequence.comparisons.transpose
      expect(got).to eq(expected)
    end
    expect(sequence.error).to eq(given["expect"].fetch("error", ""))
  end
end

RSpec.describe Backhop::Breaker do
  let(:message) { Backhop::Message.new("acme", Backhop::Topology.new("orders")) }
  let(:ok) { Backhop.const_get(:Outcomes)::OK }

  def failed(breaker, error = IOError.new("no"))
    rules = Backhop.const_get(:FailureRules).new([], [])
    permit = breaker.permit(message)
    breaker.record(permit, rules.result_of(error), error)
  end

  it "opens after failures in a row, and tells why" do
    breaker = described_class.new("billing", row_failures: 3)
    expect(breaker).to have_attributes(name: "billing", state: :closed, reason: nil)
    3.times { failed(breaker) }
    expect(breaker.state).to eq(:open)
    expect(breaker.reason).to match(/3 .*IOError/)
    expect(breaker.inspect).to eq('#<Backhop::Breaker "billing" open>')
    expect(breaker.permit(message)).not_to be_granted
  end

  it "probes after its pause, and closes" do
    pauses = Backhop::Policy.new(kind: :fixed, initial: 0.001, jitter: :none)
    breaker = described_class.new("billing", row_failures: 1, probe_successes: 1, pauses: pauses)
    failed(breaker)
    sleep 0.01
    permit = breaker.permit(message)
    expect([permit.granted?, breaker.state]).to eq([true, :half_open])
    breaker.record(permit, ok, nil)
    expect(breaker.state).to eq(:closed)
  end

  it "counts the failures of the downstream alone" do
    breaker = described_class.new("billing", row_failures: 2, errors: [IOError, ->(error) { error.message == "busy" }])
    4.times { failed(breaker, KeyError.new("gone")) }
    expect(breaker.state).to eq(:closed)
    failed(breaker, Backhop::RetryAfter.new(5, IOError.new("no")))
    failed(breaker, KeyError.new("busy"))
    expect(breaker.state).to eq(:open)
  end

  it "opens for as long as a message is throttled, if that is for the whole queue" do
    breaker = described_class.new("billing")
    failed(breaker, Backhop::Throttled.new(30, "429"))
    expect(breaker.state).to eq(:closed)
    failed(breaker, Backhop::Throttled.new(30, "429", whole_queue: true))
    expect(breaker.state).to eq(:open)
    expect(breaker.permit(message).delay).to be_between(29, 36)
  end

  it "is opened, closed and disabled by hand" do
    breaker = described_class.new("billing", row_failures: 1)
    breaker.open
    expect(breaker.state).to eq(:open)
    breaker.close
    expect(breaker.state).to eq(:closed)
    breaker.open("30s")
    expect(breaker.permit(message).delay).to be_between(29, 30)
    breaker.disable
    expect(breaker.state).to eq(:disabled)
    expect(breaker.permit(message)).to be_granted
  end

  it "has a breaker for each key" do
    breaker = described_class.new("hosts", row_failures: 1, key: ->(message) { message.body.to_sym })
    failed(breaker)
    expect([breaker.state_of("acme"), breaker.state_of(:other)]).to eq(%i[open closed])
    breaker.close(key: "acme")
    breaker.open(5, key: 7)
    expect([breaker.state_of(:acme), breaker.state_of("7")]).to eq(%i[closed open])
    expect(breaker.inspect).to eq('#<Backhop::Breaker "hosts" by key>')
  end

  it "refuses a key where there is none, and none where there is one", :unsigned do
    keyed = described_class.new("hosts", key: ->(_) {})
    expect { keyed.state }.to raise_error(Backhop::StateError, /breaker "hosts" is by key: give a key to open/)
    expect { keyed.state_of(1.5) }
      .to raise_error(Backhop::InvalidArgumentError, /the key of breaker "hosts" is 1.5: give/)
    expect { keyed.permit(message) }.to raise_error(Backhop::InvalidArgumentError, /is nil/)
    expect { keyed.disable }.to raise_error(Backhop::StateError, /by key/)
    expect { described_class.new("a").open(key: "b") }.to raise_error(Backhop::StateError, /not by key/)
  end

  it "refuses a strategy with which no message can wait, if it is by key" do
    keyed = described_class.new("hosts", key: :body.to_proc)
    policy = Backhop::Policy.new(kind: :fixed, initial: 1, jitter: :none)
    topology = Backhop::Topology.new("orders", policy: policy, strategy: :reject)
    expect { Backhop::Worker.new("amqp://localhost", topology: topology, breaker: keyed) }
      .to raise_error(Backhop::StrategyError, /breaker "hosts" is by key.*strategy :reject.*take strategy :ladder/)
    expect(described_class.of(described_class.new("billing"), topology)).to be_a(described_class)
  end

  it "has a name of 64 bytes at most" do
    expect { described_class.new("n" * 65) }.to raise_error(Backhop::InvalidArgumentError, /name/)
  end
end
