# frozen_string_literal: true

require "spec_helper"
require "program"

RSpec.describe "A time" do
  has_durations = Gem::Specification.any? { |each| each.name == "activesupport" }

  it "RT1, RT2: may be a duration of ActiveSupport, everywhere", if: has_durations do
    said = program(<<~RUBY)
      require "active_support"
      require "active_support/core_ext/numeric/time"
      require "active_support/core_ext/integer/time"
      require "backhop/bunny"
      policy = Backhop::Policy.new(initial: 5.seconds, max: 1.hour, max_age: 1.day, max_retry_after: 1.hour)
      p [policy.initial, policy.max, policy.max_age, policy.max_retry_after]
      p Backhop::Policy.new(steps: [1.second, 0.5.seconds, 1.minute]).steps
      channel = Struct.new(:connection).new(Bunny.new)
      Backhop::Bunny::Retrier.new(channel, queue: "work", confirm_timeout: 10.seconds).drain(1.second)
      if Backhop.build_info.worker?
        Backhop::Worker.new("amqp://localhost", queue: "work", drain: 5.seconds, confirm_timeout: 1.minute)
      end
      p Backhop::RetryAfter.new(90.seconds).delay
      rehearsal = Backhop::Testing.rehearse(policy: Backhop::Policy.new(jitter: :none, max_attempts: 3)) do |message|
        raise Backhop::RetryAfter.new(1.minute) if message.attempt == 1
        raise "no"
      end
      p rehearsal.outcome, rehearsal.delays.first >= 60
      policy = Backhop::Policy.new(max_attempts: 2)
      rules = Backhop::Testing.rehearse(never: ->(_) { 1.minute }, policy: policy) { raise "no" }
      p rules.delays.first >= 60
    RUBY
    expect(said.lines(chomp: true)).to eq(
      ["[5.0, 3600.0, 86400.0, 3600.0]", "[1.0, 0.5, 60.0]", "90.0", ":parked", "true", "true"]
    )
  end

  it "RT1, RT2: is refused as a duration of ActiveSupport if it is wrong", :unsigned, if: has_durations do
    said = program(<<~RUBY)
      require "active_support"
      require "active_support/core_ext/integer/time"
      require "backhop"
      [
        -> { Backhop::Policy.new(max_attempts: 5.seconds) }, -> { Backhop::Policy.new(initial: -5.seconds) }
      ].each do |wrong|
        wrong.call
      rescue Backhop::PolicyError => e
        puts e.message[/give .*/]
      end
    RUBY
    expect(said.lines(chomp: true)).to eq(
      ["give a whole number, from 0 to 1000000000",
       'give seconds, from 0.001 to 100000000, or a text with a unit, as "30s"']
    )
  end

  it "is 0, which can mean no limit, only if 0 is given" do
    given = [0, 0.0, 0.0004, 0.0014, Rational(1, 10_000), "0.4ms"]
    ages = given.map { |age| Backhop::Policy.new(max_age: age).max_age }
    expect(ages).to eq([0, 0, 0.001, 0.001, 0.001, 0.001])
    expect { Backhop::Policy.new(max_age: -0.0004) }
      .to raise_error(Backhop::PolicyError, /max_age is -0\.0004: give seconds/)
  end

  it "may be a text with a unit" do
    expect(Backhop::Policy.new(initial: "30s", max: "2h", max_age: "1d", max_retry_after: "4 min 30 s").to_h)
      .to include(initial: 30, max: 7200, max_age: 86_400, max_retry_after: 270)
    expect { Backhop::Policy.new(initial: "30") }.to raise_error(Backhop::PolicyError, /initial is "30": give seconds/)
    expect { Backhop::Policy.new(initial: "30s\xff") }.to raise_error(Backhop::PolicyError, /initial is/)
  end
end
