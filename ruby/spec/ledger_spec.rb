# frozen_string_literal: true

require "native"
require "vectors"

# The shared vectors of the ledger, over what SWIG made: it has no class of its own.
class LedgerSequence
  ACTIONS = %w[none ack retry reject return park drop replay defer].freeze
  ENDINGS = %w[orderly cut error missing].freeze
  STATES = %w[none arrived taken settled due sent waiting confirmed abandoned acknowledged rejected given-back].freeze
  STEPS = %w[rest emit ack nack reject give_back open declare publish].freeze
  CODES = (-40..0).to_h { |code| [Native.bh_status_name(code), code] }.freeze

  BACK_OFF = { "kind" => "fixed", "initial_ms" => 100, "jitter" => "none" }.freeze

  attr_reader :comparisons

  def initialize(given)
    random = given.key?("random") ? Vectors.raw(given["random"]) : "\0" * 8
    _, @ledger = Native.bh_ledger_new(Vectors.back_off(given["policy"] || BACK_OFF), random)
    @numbers = {}
    @now_ms = 0
    @comparisons = []
  end

  # Plays a row. Its expectations, beside the results, go into comparisons.
  def play(row)
    Vectors.only(row, "at_ms do status may_publish step steps due_ms states counts copies")
    @now_ms = row.fetch("at_ms", @now_ms)
    compare(call(*row["do"]), CODES.fetch(row.fetch("status", "BH_OK"))) if row.key?("do")
    play_steps(row, row.fetch("may_publish", true) ? 1 : 0)
    row.fetch("states", {}).each { |name, state| compare(STATES[@ledger.state(@numbers.fetch(name))], state) }
    row.fetch("counts", {}).each { |state, count| compare(@ledger.count(STATES.index(state)), count) }
    compare(@ledger.due_ms == -1 ? nil : @ledger.due_ms, row["due_ms"]) if row.key?("due_ms")
    compare(@ledger.copies, row["copies"]) if row.key?("copies")
  end

  private

  def compare(got, expected) = @comparisons << [got, expected]

  def play_steps(row, may_publish)
    compare(step(@ledger.next(@now_ms, may_publish)), row["step"]) if row.key?("step")
    return unless row.key?("steps")

    steps = []
    while steps.size < 200 && (step = @ledger.next(@now_ms, may_publish)).first != Native::BH_STEP_REST
      steps << step(step)
    end
    compare(steps, row["steps"])
  end

  def number(name) = name.is_a?(Integer) ? name : @numbers.fetch(name)

  def keep(name, (status, number))
    compare(number.zero?, status != 0)
    @numbers[name] = number if status.zero?
    status
  end

  def call(verb, *arguments)
    first = arguments.first
    case verb
    when "open_channel", "open_publisher" then keep(first, @ledger.public_send(verb))
    when "arrive" then keep(arguments[2], @ledger.arrive(number(first), arguments[1]))
    when "acknowledge", "give_back" then @ledger.public_send(verb, number(first))
    when "abandon" then @ledger.abandon(number(first), @now_ms)
    when "settle"
      @ledger.settle(number(first), ACTIONS.index(arguments[1]), arguments[2], arguments[3] || "id", "events",
                     "order.created")
    when "set_restores"
      @ledger.set_restores(first ? 1 : 0)
      0
    when /\Aset_/ then @ledger.public_send(verb, *arguments)
    else
      tell(verb, first, arguments)
      0
    end
  end

  def tell(verb, first, arguments)
    case verb
    when "close_channel", "lose_channel" then compare(@ledger.public_send(verb, number(first)), arguments[1])
    when "publisher_failed" then @ledger.publisher_failed(CODES.fetch(first), @now_ms)
    when "close_publisher"
      compare(@ledger.close_publisher(number(first), ENDINGS.index(arguments[1]), @now_ms) == 1, arguments[2])
    when "disconnect" then @ledger.disconnect(ENDINGS.index(first), @now_ms)
    when "confirm"
      @ledger.confirm(number(first), arguments[1], arguments[2] ? 1 : 0, arguments[3] == false ? 0 : 1, @now_ms)
    when "return"
      Native.bh_ledger_return(@ledger, number(first), arguments[1], "events", arguments[2] || "order.created")
    when "block" then @ledger.block(first ? 1 : 0, @now_ms)
    when "rung" then @ledger.rung(first, CODES.fetch(arguments[1]), @now_ms)
    when "forget_rungs" then @ledger.public_send(verb)
    else raise "#{verb} is not known"
    end
  end

  def step(step)
    number, entry, channel, publisher, tag, multiple, event, status, delay_ms, count = step
    names = { 0 => "" }.merge(@numbers.invert)
    case kind = STEPS[number]
    when "emit"
      [kind, Native.bh_event_name(event), names.fetch(entry), Native.bh_status_name(status), delay_ms, count]
    when "ack" then [kind, names.fetch(channel), tag, multiple == 1]
    when "open" then [kind]
    when "declare" then [kind, delay_ms]
    when "publish" then [kind, names.fetch(entry), names.fetch(publisher), tag]
    else [kind, names.fetch(channel), tag, names.fetch(entry)]
    end
  end
end

RSpec.describe "The ledger" do
  cases "ledger" do |given|
    Vectors.only(given, "name policy random expect")
    Vectors.only(given["expect"], "history")
    sequence = LedgerSequence.new(given)
    given["expect"]["history"].each do |row|
      sequence.play(row)
      sequence.comparisons.each { |got, expected| expect(got).to eq(expected), "#{row}: #{got}" }
    end
    expect(sequence.comparisons).not_to be_empty
  end
end
