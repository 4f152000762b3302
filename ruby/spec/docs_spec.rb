# frozen_string_literal: true

# What the documentation shows is what happens.
RSpec.describe "The documentation" do
  readme = File.expand_path("../README.md", __dir__)
  recipes = Dir[File.expand_path("../../examples/ruby/recipes/*.rb", __dir__)]
  library = $LOADED_FEATURES.grep(%r{/backhop/policy\.rb\z}).first.delete_suffix("/policy.rb")
  policy = Backhop::Policy.new(initial: 10, factor: 3, max: 3600, jitter: 0.2, max_attempts: 8)

  it "shows the table that its policy prints", if: File.exist?(readme) do
    expect(File.read(readme)).to include("\n#{policy.preview}\n")
  end

  it "shows it at the policy too" do
    shown = policy.preview.to_s.lines.map { |line| "  #     #{line}" }.join
    expect(File.read(File.join(library, "policy.rb"))).to include(shown)
  end

  it "shows the story that headers tell" do
    text = File.read(File.join(library, "explanation.rb"))
    call = text[/puts (Backhop\.explain\(.*\))$/, 1]
    story = eval(call) # rubocop:disable Security/Eval
    expect(text).to include(story.lines.map { |line| "  #     #{line}" }.join)
  end

  it "shows no Ruby that does not parse", if: File.exist?(readme) do
    blocks = File.read(readme).scan(/^```ruby\n(.*?)^```$/m).flatten
    expect(blocks).not_to be_empty
    blocks.each { |block| expect { RubyVM::InstructionSequence.compile(block) }.not_to raise_error }
  end

  recipes.each do |recipe|
    it "shows the recipe #{File.basename(recipe)}", if: File.exist?(readme) do
      region = File.read(recipe)[/^# README: begin\n(.*)^# README: end$/m, 1]
      expect(File.read(readme)).to include("```ruby\n#{region}```\n")
    end
  end

  it "RT14: shows a table in which no delay exceeds the policy's max" do
    expect(policy.preview.map(&:highest).max).to be <= policy.max
  end
end
