# frozen_string_literal: true

require "vectors"

RSpec.describe Backhop::Policy do
  def compare_delays(policy, rows)
    rows.each do |attempt, previous_ms, random, ms|
      # The core's own function: the class refuses random numbers outside their range.
      delay_ms = policy.native.delay_ms(
        Vectors.integer(attempt), Vectors.integer(previous_ms), Vectors.fraction(random)
      )
      expect(delay_ms).to eq(Vectors.integer(ms)), "attempt #{attempt}, u #{random}: #{delay_ms}"
    end
  end

  def compare_preview(policy, rows)
    rows.each do |attempt, *expected|
      times = policy.row(Vectors.integer(attempt)).to_a[1..4]
      expect(times).to eq(expected.map { |ms| ms / 1000.0 }), "attempt #{attempt}: #{times}"
    end
  end

  def ms(seconds) = (seconds * 1000).round

  cases "policy" do |given|
    Vectors.only(given, "name policy expect")
    expected = given["expect"]
    unless Vectors.status(given) == "BH_OK"
      Vectors.only(expected, "status refused_by error")
      expect(expected["refused_by"]).not_to be_empty
      next tells(refused(given) { Vectors.policy(given) }, expected.fetch("error", []))
    end

    Vectors.policy(given)
    policy = Vectors.policy(given)
    compare(
      expected,
      kind: same(-> { policy.kind }, &:to_sym),
      jitter: same(-> { policy.jitter }, &:to_sym),
      max_attempts: same(-> { policy.max_attempts }) { |value| Vectors.integer(value) },
      max_crashes: same(-> { policy.max_crashes }) { |value| Vectors.integer(value) },
      max_deferrals: same(-> { policy.max_deferrals }) { |value| Vectors.integer(value) },
      max_ms: same(-> { ms(policy.max) }) { |value| Vectors.integer(value) },
      max_age_ms: same(-> { ms(policy.max_age) }) { |value| Vectors.integer(value) },
      max_retry_after_ms: same(-> { ms(policy.max_retry_after) }) { |value| Vectors.integer(value) },
      delays: ->(rows) { compare_delays(policy, rows) },
      preview: ->(rows) { compare_preview(policy, rows) }
    )
  end

  it "takes times as any number of seconds" do
    times = [2, 2.0, Rational(2), BigDecimal("2")]
    delays = times.map { |time| described_class.new(initial: time, jitter: :none).delay(1) }
    expect(delays).to eq([2.0] * 4)
  end

  it "takes any real number as the random number of a delay" do
    policy = described_class.new(jitter: :full)
    expect([Rational(1, 4), BigDecimal("0.25")].map { |random| policy.delay(1, random: random) })
      .to all(eq(policy.delay(1, random: 0.25)))
  end

  it "refuses what is no time, with what to give", :unsigned do
    ["10", [1], Complex(1, 1), Time.now].each do |time|
      expect { described_class.new(initial: time) }.to raise_error(Backhop::PolicyError, /give seconds/)
    end
    expect { described_class.new(initial: Float::NAN) }.to raise_error(Backhop::PolicyError, /give seconds/)
  end

  it "refuses a time that the core cannot hold as one that is too long" do
    [Float::INFINITY, 10**30, -Float::INFINITY].each do |time|
      expect { described_class.new(initial: time) }.to raise_error(Backhop::PolicyError, /initial is .*: give seconds/)
    end
  end

  it "refuses a name that is none, with those that there are", :unsigned do
    expect { described_class.new(kind: :cubic) }
      .to raise_error(Backhop::PolicyError, "kind is :cubic: give one of :exponential, :linear, :fixed, :steps")
    expect { described_class.new(jitter: "full") }
      .to raise_error(Backhop::PolicyError, /jitter is "full": give one of :none/)
  end

  it "needs no kind where it has steps" do
    policy = described_class.new(steps: [1, 60], jitter: :none)
    expect(policy.kind).to eq(:steps)
    expect(policy.preview.map(&:mean)).to eq([1, 60])
  end

  it "cannot be changed" do
    steps = [1, 2]
    policy = described_class.new(steps: steps)
    steps << 3
    expect(policy).to be_frozen
    expect(policy.to_h[:steps]).to eq([1, 2]).and be_frozen
    expect(policy.to_h).to be_frozen
  end

  it "prints its preview as a table, which is data" do
    preview = described_class.new(initial: 10, factor: 3, max: 3600, jitter: 0.2, max_attempts: 4).preview
    expect(preview[1].to_a).to eq([2, 20.0, 30.0, 40.0, 40.0, 4])
    expect(preview.sum(&:mean)).to eq(130)
    expect(preview.inspect).to eq(preview.to_s)
    expect(preview.to_s.lines(chomp: true)).to eq(
      [
        "failure     lowest        mean    highest       total  rungs",
        "      1        8 s        10 s     12.5 s        10 s      3",
        "      2       20 s        30 s       40 s        40 s      4",
        "      3  1 min 3 s  1 min 30 s  2 min 5 s  2 min 10 s      4"
      ]
    )
  end

  it "shows the formula of a policy that no ladder serves" do
    preview = described_class.new(initial: 0.01, max: 0.05, kind: :fixed, max_attempts: 2).preview
    expect(preview.map(&:to_a)).to eq([[1, 0.008, 0.01, 0.012, 0.01, 0]])
  end

  it "ends the preview where attempts have no limit" do
    policy = described_class.new(max_attempts: 0)
    expect(policy.preview.size).to eq(20)
    expect(policy.preview(3).map(&:attempt)).to eq([1, 2, 3])
  end

  it "is made again by what it prints, and by what it was made of" do
    policy = described_class.new(initial: 2, max_attempts: 3)
    again = eval(policy.inspect) # rubocop:disable Security/Eval
    expect([again, described_class.new(**policy.to_h)]).to all(eq(policy).and(have_attributes(hash: policy.hash)))
    expect(policy).not_to eq(described_class.new)
  end

  it "RT13: goes to another process or Ractor as a Hash" do
    policy = described_class.new(steps: [1, 60], max_attempts: 3)
    expect(described_class.new(**Marshal.load(Marshal.dump(policy.to_h)))).to eq(policy)
    expect(Ractor.shareable?(policy.to_h)).to be(true)
    expect { Marshal.dump(policy) }.to raise_error(TypeError)
  end
end
