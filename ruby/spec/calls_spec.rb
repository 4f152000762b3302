# frozen_string_literal: true

require "native"
require "vectors"

# The shared vectors of the calls of handlers, over what SWIG made: it has no class of its own.
class CallsSequence
  ACTIONS = %w[none ack retry reject return park drop replay defer].freeze

  attr_reader :comparisons

  def initialize(messages)
    _, @calls = Native.bh_calls_new("0123456789abcdef")
    @messages = messages
    @numbers = {}
    @now_ms = 0
    @comparisons = []
  end

  # Plays a row. Its arrival, as expected and as returned, goes into comparisons.
  def play(row)
    Vectors.only(row, "at_ms do arrival")
    @now_ms = row.fetch("at_ms", @now_ms)
    verb, name, *arguments = row["do"]
    case verb
    when "open_channel" then @numbers[name] = @calls.open_channel
    when "arrive" then @comparisons << [arrive(@numbers.fetch(name), *arguments), row["arrival"]]
    when "end" then @calls.end(@numbers.fetch(name), ACTIONS.index(arguments.first), @now_ms)
    when "lose_channel" then @calls.lose_channel(@numbers.fetch(name), arguments.first, @now_ms)
    else raise "#{verb} is not known"
    end
  end

  private

  def arrive(channel, message, redelivered, name)
    given = @messages.fetch(message)
    Vectors.only(given, "delivery queue body")
    history = Backhop::History.new(Vectors.delivery(given))
    kind, call, action = @calls.arrive(
      channel, history.native, given.fetch("queue", "orders"), given.fetch("body", "body"), redelivered ? 1 : 0, @now_ms
    )
    case kind
    when Native::BH_ARRIVAL_ACK then ["ack", ACTIONS[action]]
    when Native::BH_ARRIVAL_WAIT then ["wait", @numbers.reject { |key, _| key.start_with?("channel") }.key(call)]
    else
      @numbers[name] = call
      ["call", call.zero? ? "not kept" : "kept"]
    end
  end
end

RSpec.describe "The calls of handlers" do
  cases "calls" do |given|
    Vectors.only(given, "name messages expect")
    Vectors.only(given["expect"], "history")
    sequence = CallsSequence.new(given["messages"])
    given["expect"]["history"].each do |row|
      sequence.play(row)
      sequence.comparisons.each { |got, expected| expect(got).to eq(expected), "#{row}: #{got}" }
    end
    expect(sequence.comparisons).not_to be_empty
  end
end
