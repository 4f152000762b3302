# frozen_string_literal: true

require "native"
require "vectors"

# The shared vectors of the subscription, over what SWIG made: it has no class of its own.
class SubscriptionSequence
  LOSSES = %w[consumer channel connection].freeze
  STEPS = %w[rest emit declare consume give_up].freeze
  CODES = (-40..0).to_h { |code| [Native.bh_status_name(code), code] }.freeze

  BACK_OFF = { "kind" => "linear", "initial_ms" => 100, "jitter" => "none" }.freeze

  attr_reader :comparisons

  def initialize(given)
    random = given.key?("random") ? Vectors.raw(given["random"]) : "\0" * 8
    _, @subscription = Native.bh_subscription_new(Vectors.back_off(given["policy"] || BACK_OFF), random)
    @now_ms = 0
    @comparisons = []
  end

  # Plays a row. Its expectations, beside the results, go into comparisons.
  def play(row)
    Vectors.only(row, "at_ms do may_subscribe steps due_ms is_consuming")
    @now_ms = row.fetch("at_ms", @now_ms)
    call(*row["do"]) if row.key?("do")
    play_steps(row, row.fetch("may_subscribe", true) ? 1 : 0) if row.key?("steps")
    compare(@subscription.is_consuming == 1, row["is_consuming"]) if row.key?("is_consuming")
  end

  private

  def compare(got, expected) = @comparisons << [got, expected]

  def call(verb, argument = nil)
    case verb
    when "lost" then @subscription.lost(LOSSES.index(argument), @now_ms)
    when "failed" then @subscription.failed(CODES.fetch(argument), @now_ms)
    else @subscription.public_send(verb)
    end
  end

  def play_steps(row, may_subscribe)
    steps = []
    steps << step while steps.size < 10 && next?(may_subscribe)
    compare(steps, row["steps"])
    compare(@step.last, row["due_ms"] || -1) if row.key?("due_ms")
  end

  # Keeps the next step. Returns false if it is rest.
  def next?(may_subscribe)
    @step = @subscription.next(may_subscribe, @now_ms)
    @step.first != Native::BH_SUBSCRIPTION_REST
  end

  def step
    number, event, status, delay_ms, = @step
    case kind = STEPS[number]
    when "emit" then [kind, Native.bh_event_name(event), Native.bh_status_name(status), delay_ms]
    when "give_up" then [kind, Native.bh_status_name(status)]
    else [kind]
    end
  end
end

RSpec.describe "The subscription" do
  cases "subscription" do |given|
    Vectors.only(given, "name policy random expect")
    Vectors.only(given["expect"], "history")
    sequence = SubscriptionSequence.new(given)
    given["expect"]["history"].each do |row|
      sequence.play(row)
      sequence.comparisons.each { |got, expected| expect(got).to eq(expected), "#{row}: #{got}" }
    end
    expect(sequence.comparisons).not_to be_empty
  end
end
