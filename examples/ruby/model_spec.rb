# frozen_string_literal: true

require "backhop/bunny"
require "backhop/rspec"

# A test of a whole consumer with its client, for RSpec: from the first failure to the parked
# message.
RSpec.describe "The purge" do
  policy = Backhop::Policy.new(initial: 10, factor: 3, max: 3600, max_attempts: 8)

  # begin
  it "is parked after its last attempt", :backhop_broker do
    channel = Bunny.new(backhop_broker.url.delete_suffix("/")).start.create_channel
    attempts = []
    parked = Queue.new
    on_event = lambda do |event|
      attempts << event.attempt if event.name == :failed
      parked << event if event.name == :parked
    end
    retrier = Backhop::Bunny::Retrier.new(
      channel, queue: "purges", policy: policy, work_queue: :quorum, on_event: on_event
    )
    retrier.declare
    channel.default_exchange.publish("/index.html", routing_key: "purges")
    retrier.subscribe { raise "507 queue is full" }
    parked.pop # after more than an hour of delays, which the model skips
    expect(attempts).to eq([1, 2, 3, 4, 5, 6, 7, 8])
    expect(channel.basic_get("purges.parked").last).to eq("/index.html")
  end
  # end
end
