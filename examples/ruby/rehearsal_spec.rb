# frozen_string_literal: true

require "backhop"

# A test of a handler and its policy, for RSpec.
RSpec.describe "The purge" do
  policy = Backhop::Policy.new(initial: 10, factor: 3, max: 3600, max_attempts: 8)

  def purge(_page) = raise("507 queue is full")

  # begin
  it "is retried while the queue is full, and then parked" do
    rehearsal = Backhop::Testing.rehearse("/index.html", policy: policy) { |message| purge(message.body) }
    expect(rehearsal.outcome).to eq(:parked)
    expect(rehearsal.size).to eq(8)
    puts rehearsal # attempt by attempt; no broker, no waiting
  end
  # end
end
