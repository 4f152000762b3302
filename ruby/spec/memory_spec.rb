# frozen_string_literal: true

require "everything"
require "native"
require "program"

# Objects that outlive others, threads, the garbage collector at its worst, and leaks.
RSpec.describe "Memory", :unsigned do
  let(:headers) { Everything::HEADERS }
  let(:decider) { Backhop::Decider.new(Backhop::Topology.new("orders")) }

  def decide(number)
    history = decider.read(
      exchange: "events", routing_key: "key", properties: { message_id: number.to_s }, headers: headers
    )
    decider.plan(history, IOError.new("error #{number}")).copy_headers(headers)
  end

  it "is good with a collection at every allocation", :long do
    # A program of its own has few objects, and each of many collections looks at all of them.
    program(<<~'RUBY')
      require "everything"
      expected = Everything.call
      GC.stress = true
      found = Everything.call
      GC.stress = false
      abort "got #{found}, not #{expected}" unless found == expected
    RUBY
  end

  it "is good where objects move", :long do
    skip "this Ruby does not compact" unless GC.respond_to?(:verify_compaction_references)

    held = Array.new(100) { |number| [decider.read(headers: headers), Backhop::Policy.new(max_attempts: number + 1)] }
    expected = Everything.call
    GC.verify_compaction_references(double_heap: true, toward: :empty)
    expect(Everything.call).to eq(expected)
    expect(held.map { |history, policy| [history.delivery.headers, policy.max_attempts] })
      .to eq(Array.new(100) { |number| [headers, number + 1] })
    10.times { GC.compact && decide(1) }
    expect(Everything.call).to eq(expected)
  end

  it "is good where objects move at every collection", :long do
    skip "this Ruby does not compact by itself" unless GC.respond_to?(:auto_compact=)

    expected = Everything.call
    begin
      GC.auto_compact = true
      found = Array.new(20) { Everything.call.tap { GC.start } }
    ensure
      GC.auto_compact = false
    end
    expect(found).to all(eq(expected))
  end

  it "keeps texts longer than the object that they came from" do
    delivery = Backhop::Delivery.new(exchange: "events", headers: { tenant: "acme" })
    texts = [delivery.exchange, delivery.header(:tenant)]
    delivery = nil # rubocop:disable Lint/UselessAssignment
    GC.start
    expect(texts).to eq(%w[events acme])
  end

  it "lets nobody make or copy an object of the core's without the core" do
    policy = Native.bh_policy_new.last
    expect { Native::Policy.new }.to raise_error(TypeError)
    expect { policy.dup.kind }.to raise_error(TypeError)
    expect { Native::Delivery.instance_method(:exchange).bind(policy) }.to raise_error(TypeError)
    expect { Native.bh_topology_export(policy, "/") }.to raise_error(TypeError, /bh_topology/)
  end

  it "is given back", :long do
    skip "there is no /proc/self/statm" unless File.exist?("/proc/self/statm")

    grown = program(<<~'RUBY')
      headers = { "tenant" => "acme", "x-death" => [{ "queue" => "orders", "reason" => "rejected", "count" => 3 }] }
      decider = Backhop::Decider.new(Backhop::Topology.new("orders"))
      decide = lambda do |number|
        history = decider.read(
          exchange: "events", routing_key: "key", properties: { message_id: number.to_s }, headers: headers
        )
        decider.plan(history, IOError.new("error #{number}")).copy_headers(history.delivery.headers)
        decider.read(exchange: "caf\xE9" * 20, routing_key: "\xFF".b, headers: { "nested" => [{ "name" => "\xFF".b }] })
        [-> { Backhop::Policy.new(initial: 0) },
         -> { decider.read(routing_key: "key" * 20, headers: { "name" => Object }) },
         -> { decider.read(routing_key: :key) }].each do |failing|
          failing.call
          abort "no error"
        rescue Backhop::PolicyError, Backhop::InvalidArgumentError
          next
        end
      end
      resident = lambda do
        GC.start
        File.read("/proc/self/statm").split[1].to_i * 4 # KiB
      end
      3000.times(&decide)
      before = resident.call
      20_000.times(&decide)
      puts resident.call - before
    RUBY
    expect(grown.to_i).to be < 8 * 1024
  end

  it "serves threads that decide at once on one policy and topology" do
    decider # made once
    Array.new(8) do |thread|
      Thread.new do
        (thread * 1000).upto((thread * 1000) + 500) do |number|
          expect(decide(number)).to include("backhop-id" => number.to_s, "backhop-error" => "IOError: error #{number}")
        end
      end
    end.each(&:join)
  end

  it "is read at once with the same result everywhere" do
    topology = decider.topology
    history = decider.read(headers: headers)
    stories = Array.new(8) { Thread.new { Array.new(50) { [history.deaths, topology.definitions] } } }.flat_map(&:value)
    expect(stories.uniq.size).to eq(1)
  end
end
