# frozen_string_literal: true

require "spec_helper"

RSpec.describe Backhop::Declaring do
  let(:policy) { Backhop::Policy.new(initial: 1, jitter: :none, max: 2, max_retry_after: 0) }
  let(:topology) { Backhop::Topology.new("work", policy: policy) }
  let(:taken) { [] }

  def refusal(code, text = "text") = described_class::Refusal.new(code, text)

  # Takes every step; the block says how a declaration is refused.
  def create
    described_class.create(topology) do |declaration, passive|
      taken << [declaration.name, passive]
      yield declaration if block_given?
    end
  end

  def verify(&refuse) = described_class.verify(topology) { |declaration, passive| refuse.call(declaration, passive) }

  it "creates everything but what is for demand alone" do
    create
    names = topology.declarations.reject(&:on_demand?).map(&:name)
    expect(taken).to eq(names.map { |name| [name, false] })
  end

  it "says what is in the way, and the way out" do
    text = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'work.parked' in vhost '/': received the value " \
           "'quorum' of type 'longstr' but current is none"
    expect { create { |each| refusal(406, text) if each.name == "work.parked" } }.to raise_error(
      Backhop::ClashError,
      'queue "work.parked" exists with x-queue-type = none, and quorum is needed (once it is empty and unused, delete it ' \
      "and declare again, or choose another name for the work queue)"
    )
    expect { create { |each| refusal(406, "cut") if each.name == "backhop.return" } }.to raise_error(
      Backhop::ClashError, /other arguments \(cut\).*choose another namespace/
    )
  end

  it "names a work queue that is missing, and a permission" do
    expect { create { |each| refusal(404) if each.name == "work" } }.to raise_error(
      Backhop::MissingError, 'the work queue "work" does not exist: declare it first, or have it declared with ' \
                             "work_queue: :quorum"
    )
    expect { create { refusal(403, "ACCESS_REFUSED") } }.to raise_error(
      Backhop::AccessError, /ACCESS_REFUSED; grant the permission, or import topology.definitions/
    )
    expect { create { refusal(541, "INTERNAL") } }.to raise_error(Backhop::ChannelClosedError, /541 INTERNAL/)
  end

  it "says which plugin is missing" do
    delayed = Backhop::Topology.new("work", policy: policy, strategy: :delayed_exchange)
    expect do
      described_class.create(delayed) do |each, _|
        refusal(503, "COMMAND_INVALID - invalid exchange type 'x-delayed-message'") if each.type == "x-delayed-message"
      end
    end.to raise_error(Backhop::BrokerError, /rabbitmq_delayed_message_exchange, or use the strategy ladder/)
  end

  it "verifies by looking, then by declaring what is there" do
    steps = []
    verify do |declaration, passive|
      steps << [declaration.name, passive]
      nil
    end
    expect(steps).to start_with(["backhop.unroutable", true], ["backhop.unroutable", false])
    expect(steps.last).to eq(["work", true])
  end

  it "lists all that is missing and different in one error" do
    expect do
      verify do |declaration, passive|
        next refusal(404) if passive && %w[work backhop.return].include?(declaration.name)

        refusal(406, "cut") if !passive && declaration.name == "work.parked"
      end
    end.to raise_error(
      Backhop::ClashError,
      /\Aqueue "work.parked" exists.*; missing: exchange "backhop.return", the work queue "work"; declare makes/
    )
  end

  it "is content where the permission to declare is missing, and all is there" do
    expect { verify { |_, passive| passive ? nil : refusal(403) } }.not_to raise_error
  end

  describe "of rungs on demand" do
    let(:policy) { Backhop::Policy.new(initial: 1, jitter: :none, max: 2, max_retry_after: 4) } # 2.5, 3.15 and 4 s
    let(:on_demand) { topology.declarations.select(&:on_demand?) }

    it "takes one to be there that it may not declare, and nothing else" do
      described_class.create(topology, on_demand) do |declaration, _|
        taken << declaration
        refusal(403)
      end
      expect(taken).to eq(on_demand.first(1))
      [406, 404, 541].each do |code|
        expect { described_class.create(topology, on_demand) { refusal(code) } }.to raise_error(Backhop::Error)
      end
      expect { described_class.create(topology) { refusal(403) } }.to raise_error(Backhop::AccessError)
    end

    it "misses none where they can be made" do
      verify { |declaration, passive| refusal(404) if passive && declaration.on_demand? }
    end

    it "counts those that are missing where nobody makes them" do
      lacking = lambda do |names, declaration, passive|
        next refusal(403) unless passive

        refusal(404) if declaration.on_demand? ? declaration.wait > 3 : names.include?(declaration.name)
      end
      expect { verify(&lacking.curry[[]]) }.to raise_error(
        Backhop::MissingError, "missing: 2 rungs that a handler's RetryAfter can need; import topology.definitions, " \
                               "or set max_retry_after: 0, which needs none"
      )
      expect { verify(&lacking.curry[["work"]]) }.to raise_error(
        Backhop::MissingError, 'missing: the work queue "work", 2 rungs that a handler\'s RetryAfter can need; ' \
                               "declare makes what is missing, or import topology.definitions"
      )
    end

    it "looks at all, and finds one that is different" do
      last = on_demand.reject { |each| each.what == :binding }.last
      expect do
        verify do |declaration, passive|
          if declaration == last
            refusal(406, "cut") unless passive
          elsif declaration.on_demand?
            refusal(404)
          end
        end
      end.to raise_error(Backhop::ClashError, /\A#{last.what} "#{last.name}" exists with other arguments \(cut\)/)
    end
  end
end
