# frozen_string_literal: true

# The documentation shows real results.
RSpec.describe "The documentation" do
  root = File.expand_path("../..", __dir__)
  readme = File.join(root, "ruby/README.md")
  guide = File.join(root, "docs/ruby.md")
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
    text = File.read(File.join(library, "history.rb"))
    call = text[/puts (Backhop\.explain\(.*?\}\))$/m, 1].gsub(/^ *#/, "")
    story = eval(call) # rubocop:disable Security/Eval
    expect(text).to include(story.lines.map { |line| "  #     #{line}" }.join)
  end

  it "shows no Ruby that does not parse", if: File.exist?(guide) do
    blocks = File.read(guide).scan(/^```ruby\n(.*?)^```$/m).flatten
    expect(blocks).not_to be_empty
    blocks.each { |block| expect { RubyVM::InstructionSequence.compile(block) }.not_to raise_error }
  end

  it "shows the story that headers tell, in the guide too", if: File.exist?(guide) do
    headers = {
      "backhop-attempts" => 8, "backhop-first-failure" => 1_794_694_400_000, "backhop-delay" => 3_000_000,
      "backhop-error" => "HTTPError: 507 queue is full", "backhop-parked" => "exhausted", "backhop-exchange" => "cdn",
      "backhop-routing-key" => "purge.image", "backhop-id" => "5f0c"
    }
    expect(File.read(guide)).to include("\n#{Backhop.explain(headers).chomp}\n")
  end

  it "RT14: shows a table in which no delay exceeds the policy's max" do
    expect(policy.preview.map(&:highest).max).to be <= policy.max
  end
end
