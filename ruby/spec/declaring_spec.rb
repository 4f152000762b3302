# frozen_string_literal: true

require "vectors"

RSpec.describe Backhop::Declaring do
  # Returns the steps, as a vector has them, and the error in the end.
  def execute(given)
    topology = Vectors.topology(given, Vectors.policy(given))
    options = { dialect: given.fetch("dialect", "c").to_sym, makes_rungs: given.fetch("makes_rungs", false) }
    mode = given.fetch("mode", "create").to_sym
    steps = []
    declaring = described_class.new(topology, **options)
    execute = lambda do |each, action|
      steps << [action.to_s, each.what.to_s, each.name, each.arguments.to_a]
      refusal = given.fetch("refusals", []).find { |refused| refused.first(3) == steps.last.first(3) }
      refusal && described_class::Refusal.new(*refusal.last(2))
    end
    return [steps, declaring.look(mode, &execute)] if given["look"]

    declaring.run(mode, given.fetch("rung_ms", 0), &execute)
    refusal, code, text, of = given["then"]
    [steps, refusal && declaring.diagnosis(refusal.tr("-", "_"), code, text, of: of)]
  rescue Backhop::Error => e
    [steps, e]
  end

  cases "topology/declaring" do |given|
    Vectors.only(given, "name policy topology dialect mode look rung_ms makes_rungs refusals then expect")
    Vectors.only(given["expect"], "status text error steps")
    steps, error = execute(given)
    compare(given["expect"].slice("status", "steps", "text", "error"),
            steps: ->(rows) { expect(steps.zip(rows).map { |step, row| step.first(row ? row.size : 4) }).to eq(rows) },
            text: ->(text) { expect(error ? error.message : "").to eq(text) },
            error: ->(texts) { tells(error, texts) })
    expect(error ? error.code : "BH_OK").to eq(given["expect"]["status"]) if given["expect"].key?("status")
  end
end
