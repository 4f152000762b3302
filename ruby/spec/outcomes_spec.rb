# frozen_string_literal: true

require "date"

RSpec.describe "An exception of a handler" do
  outcomes = Backhop.const_get(:Outcomes)
  choice = Backhop.const_get(:FailureRules)

  define_method(:result) do |exception, never = [], only = []|
    choice.new(never, only).result_of(exception).to_a.first(3)
  end

  # Returns the exception of a block.
  def raised
    yield
  rescue StandardError => e
    e
  end

  it "is a failure with its name and text" do
    expect(result(IOError.new("507 queue is full"))).to eq([:failed, "IOError: 507 queue is full", 0])
    expect(result(KeyError.new)).to eq([:failed, "KeyError", 0])
  end

  it "parks where its class, a parent of it or a module of it is in never" do
    tag = Module.new
    expect(result(FloatDomainError.new("bad"), [RangeError]).first).to eq(:permanent)
    expect(result(IOError.new("bad").extend(tag), [tag]).first).to eq(:permanent)
    expect(result(IOError.new("bad"), [RangeError]).first).to eq(:failed)
  end

  it "is refused in never where it is no class", :unsigned do
    [-> { Backhop::Decider.new(Backhop::Topology.new("work"), never: ["KeyError"]) },
     -> { Backhop::Testing.rehearse(never: "KeyError") { nil } },
     -> { Backhop::Worker.new("amqp://localhost", queue: "work", never: ["KeyError"]) }].each do |made|
      expect(&made).to raise_error(Backhop::InvalidArgumentError, /never holds "KeyError": give classes/)
    end
  end

  it "asks for a floor by RetryAfter" do
    expect(result(Backhop::RetryAfter.new(30))).to eq([:failed, "", 30])
    expect(result(Backhop::RetryAfter.new(1.5, "busy"))).to eq([:failed, "busy", 1.5])
    expect(result(raised { raise Backhop::RetryAfter, 30 })).to eq([:failed, "", 30])
  end

  it "waits without an attempt by Throttled" do
    expect(result(Backhop::Throttled.new(30))).to eq([:throttled, "", 30])
    expect(result(Backhop::Throttled.new("7", "429"))).to eq([:throttled, "429", 7])
    expect(result(Backhop::Throttled.new(nil, IOError.new("busy")))).to eq([:throttled, "IOError: busy", 0])
    expect([Backhop::Throttled.new(1), Backhop::Throttled.new(1, whole_queue: true)].map(&:whole_queue?))
      .to eq([false, true])
  end

  it "is raised where a RetryAfter is given what is no time", :unsigned do
    [-1, Float::NAN, true, [], Object.new].each do |value|
      expect { Backhop::RetryAfter.new(value) }
        .to raise_error(Backhop::InvalidArgumentError, /give seconds/), value.inspect
    end
  end

  it "RT10: asks for a floor as HTTP gives it, a date too, by a text or a time" do
    expect(["120", " 0 ", nil, "30s", "1.5m", Time.now - 5].map { |each| Backhop::RetryAfter.new(each).delay })
      .to eq([120, 0, 0, 30, 90, 0])
    http = [Time.now + 30, Time.now - 30].map { |time| time.getutc.strftime("%a, %d %b %Y %H:%M:%S GMT") }
    expect(http.map { |each| Backhop::RetryAfter.new(each).delay }).to match([be_between(0.001, 30), 0])
    expect(["soon", "-1", "", "1s 5", "1.5"].map { |each| Backhop::RetryAfter.new(each).delay }).to all(eq(0))
    expect([Time.now + 30, (Time.now + 30).to_datetime].map { |each| Backhop::RetryAfter.new(each).delay })
      .to all(be_between(0.001, 30))
    expect(Backhop::RetryAfter.new("120").message).to eq("again, not before 2 min")
  end

  # P4-2
  it "is of a subclass whose initialize calls no other, or whose methods raise" do
    bare = Module.new { def initialize(page) = @page = page }
    wordy = Module.new { def message = "no page #{@page}" }
    broken =
      Module.new { %i[reason error delay whole_queue?].each { |name| define_method(name) { raise "unreadable" } } }
    of = lambda do |kind, *modules|
      made = stub_const("Mine", Class.new(kind) { modules.reverse_each { |each| include(each) } })
      made.prepend(broken) if modules.include?(broken)
      made.new("/a")
    end
    { Backhop::Park => :permanent, Backhop::RetryAfter => :failed, Backhop::Throttled => :throttled }
      .each do |kind, outcome|
      expect(result(of.call(kind, bare))).to eq([outcome, "Mine", 0])
      expect(result(of.call(kind, bare, wordy))).to eq([outcome, "Mine: no page /a", 0])
      expect(result(of.call(kind, bare, wordy, broken))).to eq([outcome, "Mine: no page /a", 0])
      expect(choice.new([], []).result_of(of.call(kind, bare, broken)).whole_queue).to be_falsy
      expect(outcomes.class_name(of.call(kind, bare, broken))).to eq("Mine")
    end
    throttled = ->(_) { of.call(Backhop::Throttled, bare, broken) }
    expect(result(IOError.new("503"), throttled)).to eq([:throttled, "IOError: 503", 0])
    expect([of.call(Backhop::RetryAfter, bare).delay, of.call(Backhop::Throttled, bare).whole_queue?]).to eq([0, false])
  end

  it "parks by Park and drops by Drop" do
    expect(result(raised { raise Backhop::Park, "no such file" })).to eq([:permanent, "no such file", 0])
    expect(result(raised { raise Backhop::Drop })).to eq([:dropped, "", 0])
  end

  it "has as its reason what it was raised from" do
    park = raised do
      raise KeyError, "gone"
    rescue KeyError
      raise Backhop::Park
    end
    expect(result(park)).to eq([:permanent, "KeyError: gone", 0])
  end

  it "has as its reason an exception that it is given" do
    expect(result(Backhop::Park.new(KeyError.new("gone")))).to eq([:permanent, "KeyError: gone", 0])
    expect(result(Backhop::RetryAfter.new(5, IOError.new("busy")))).to eq([:failed, "IOError: busy", 5])
    expect(result(Backhop::Park.new(Backhop::Park.new("why")))).to eq([:permanent, "why", 0])
  end

  it "is named where it cannot be printed" do
    mute = Class.new(StandardError) { def message = raise("no") }
    stub_const("Mute", mute)
    expect(result(mute.new)).to eq([:failed, "Mute", 0])
    expect(result(StandardError.new(BasicObject.new))).to eq([:failed, "StandardError", 0])
  end

  it "is named where what fails to print it is no StandardError" do
    abstract = Class.new(StandardError) { def message = raise(NotImplementedError, "subclass must define") }
    endless = Class.new(StandardError) { def message = message }
    stub_const("Abstract", abstract)
    stub_const("Endless", endless)
    expect([abstract, endless].map { |each| result(each.new)[1] }).to eq(%w[Abstract Endless])
    nameless = Class.new(StandardError) { def self.to_s = raise("no") }
    expect(result(nameless.new)[1]).to eq("an exception that cannot be printed")
  end

  it "has a reason that need not be printable", :unsigned do
    mute = Class.new { def to_s = raise(NotImplementedError) }.new
    [mute, BasicObject.new].each do |reason|
      expect(result(Backhop::RetryAfter.new(1, reason))).to eq([:failed, "a reason that cannot be printed", 1])
    end
  end

  it "has a text that is valid UTF-8, whatever its own is" do
    texts = ["caf\xC3\xA9".b, "caf\xE9", "café".encode(Encoding::ISO_8859_1), "café".encode(Encoding::UTF_16LE),
             "\xFF".b]
    expect(texts.map { |text| result(IOError.new(text))[1] }).to eq(
      ["IOError: café", "IOError: caf\\xe9", "IOError: café", "IOError: café", "IOError: \\xff"]
    )
    expect(result(Backhop::Park.new("caf\xE9"))[1]).to eq("caf\\xe9")
  end

  it "is one that can be retried, and never what ends the process" do
    expect(outcomes::FAILURES).to include(StandardError, ScriptError)
    [SystemExit, SignalException, Interrupt].each do |each|
      expect(outcomes::FAILURES.any? { |failure| each <= failure }).to be(false)
    end
  end

  it "parks where a predicate of never says so, or none of only does; a predicate may give a delay" do
    busy = ->(error) { error.message == "busy" && 30 }
    expect(result(IOError.new("gone"), ->(error) { error.message == "gone" }).first).to eq(:permanent)
    expect(result(IOError.new("here"), ->(error) { error.message == "gone" }).first).to eq(:failed)
    expect(result(IOError.new("busy"), [busy]).values_at(0, 2)).to eq([:failed, 30])
    expect(result(IOError.new("x"), [], IOError).first).to eq(:failed)
    expect(result(KeyError.new("x"), [], [IOError, busy]).first).to eq(:permanent)
    expect(result(KeyError.new("busy"), [], [IOError, busy]).values_at(0, 2)).to eq([:failed, 30])
    expect(result(EOFError.new("x"), [EOFError], [IOError]).first).to eq(:permanent)
  end

  it "is retried where a predicate fails, or gives no delay" do
    expect(result(IOError.new("x"), ->(_) { raise "oops" }).first).to eq(:failed)
    [0, -1, Float::NAN, nil, false]
      .each { |answer| expect(result(IOError.new("x"), ->(_) { answer }).first).to eq(:failed) }
  end

  it "R4-5: is retried, parked or matched if its own is_a? raises" do
    broken = Class.new(IOError) { def is_a?(_) = raise("no") }
    expect(result(broken.new("x")).first).to eq(:failed)
    expect(result(broken.new("x"), [IOError]).first).to eq(:permanent)
    expect(result(broken.new("x"), [], [KeyError]).first).to eq(:permanent)
    expect(Backhop::Testing.rehearse("", policy: Backhop::Policy.new(max_attempts: 2)) { raise broken, "x" }.reason)
      .to eq("exhausted")
  end

  it "keeps what it says of itself: its cause, its code, those that it holds; and ends" do
    coded = Class.new(StandardError) { def code = 429 }
    many = Class.new(StandardError) { def errors = Array.new(10) { |i| KeyError.new(i.to_s) } }
    stub_const("Coded", coded)
    stub_const("Many", many)
    error = raised do
      raise Coded, "slow down"
    rescue Coded
      raise IOError, "failed"
    end
    expect(result(error)[1]).to eq("IOError: failed; caused by Coded: slow down (code 429)")
    expect(result(Many.new("all"))[1]).to eq(
      "Many: all; with #{Array.new(8) { |i| "KeyError: #{i}" }.join(", ")}, 2 more"
    )
    circle = IOError.new("round")
    circle.define_singleton_method(:cause) { self }
    expect(result(circle)[1]).to eq("IOError: round")
  end
end
