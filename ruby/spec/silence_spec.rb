# frozen_string_literal: true

require "native"
require "vectors"

# The shared vectors of the silence, over what SWIG made: it has no class of its own.
class SilenceSequence
  CODES = (-40..0).to_h { |code| [Native.bh_status_name(code), code] }.freeze

  def initialize(timeout_ms)
    _, @silence = Native.bh_silence_new(timeout_ms)
    @now_ms = 0
  end

  # Plays a row. Returns what can be compared with it.
  def play(row)
    Vectors.only(row, "at_ms do event due_ms pause_ms is_silent text")
    @now_ms = row.fetch("at_ms", @now_ms)
    event = row.key?("do") ? Native.bh_event_name(call(*row["do"]) || Native::BH_EVENT_LAST) : ""
    due_ms = @silence.due_ms
    { "event" => (event unless event.empty?), "due_ms" => (due_ms unless due_ms.negative?),
      "pause_ms" => @silence.pause_ms, "is_silent" => @silence.is_silent == 1, "text" => @silence.text }
  end

  private

  # Returns the event to emit, if the call has one.
  def call(verb, argument = nil)
    case verb
    when "begin" then @silence.begin(@now_ms) && nil
    when "check" then @silence.check(argument ? 1 : 0, @now_ms)
    when "end" then @silence.end(CODES.fetch(argument))
    else @silence.public_send(verb) && nil
    end
  end
end

RSpec.describe "The silence" do
  cases "silence" do |given|
    Vectors.only(given, "name timeout_ms expect")
    Vectors.only(given["expect"], "history")
    sequence = SilenceSequence.new(given["timeout_ms"])
    given["expect"]["history"].each do |row|
      got = sequence.play(row)
      expected = row.slice(*got.keys)
      expect(got.slice(*expected.keys)).to eq(expected), "#{row}: #{got}"
    end
  end
end
