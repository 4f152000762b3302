# frozen_string_literal: true

RSpec.describe "Backhop.explain" do
  it "tells that a message without headers never failed" do
    expect([Backhop.explain(nil), Backhop.explain({})]).to all(eq("It never failed."))
  end

  it "tells a parked message's whole story" do
    headers = {
      "backhop-attempts" => 8, "backhop-first-failure" => 1_700_000_000_000, "backhop-delay" => 90_000,
      "backhop-id" => "5f0c", "backhop-exchange" => "cdn", "backhop-routing-key" => "purge.image",
      "backhop-error" => "HTTPError: 507 queue is full", "backhop-parked" => "exhausted"
    }
    expect(Backhop.explain(headers).lines(chomp: true)).to eq(
      [
        "It failed 8 times, first at 2023-11-14 22:13:20 UTC.",
        "The last error was: HTTPError: 507 queue is full",
        "Its last wait was 1 min 30 s.",
        "It was parked because its attempts were used up.",
        'It was first published to exchange "cdn" with routing key "purge.image".',
        "All its attempts have the id 5f0c."
      ]
    )
  end

  it "tells what the broker alone counted" do
    death = { "queue" => "work", "reason" => "expired", "count" => 3, "time" => Time.at(1_700_000_000) }
    headers = { "x-death" => [death], "x-delivery-count" => 2 }
    expect(Backhop.explain(headers, wait_queues: ["work"]).lines(chomp: true)).to eq(
      [
        "It failed 3 times (by the broker's x-death records), first at 2023-11-14 22:13:20 UTC.",
        "The broker dead-lettered it from queue work 3 times (expired), first at 2023-11-14 22:13:20 UTC.",
        "Its consumer was lost, or gave it back, 2 times while it, or a message beside it, was in hand."
      ]
    )
    expect(Backhop.explain({ "x-retries" => 1 }, legacy_counter: "x-retries"))
      .to eq("It failed once (by the counter of an earlier set-up).")
  end

  it "understands a strategy that leaves counting to the broker" do
    topology = Backhop::Topology.new(
      "orders", policy: Backhop::Policy.new(kind: :fixed, jitter: :none), strategy: :reject
    )
    death = { "queue" => "orders", "reason" => "rejected", "count" => 1 }
    expect(Backhop.explain({ "x-death" => [death] }, topology: topology))
      .to start_with("It failed once (by the broker's x-death records).")
  end

  it "names a header that cannot be trusted" do
    expect(Backhop.explain({ "backhop-attempts" => "many" })).to include("Ignored: backhop-attempts")
  end

  it "has words for every reason for parking" do
    reasons = %w[exhausted permanent too-old oversized poison]
    stories = reasons.map { |reason| Backhop.explain({ "backhop-parked" => reason }).lines(chomp: true)[1] }
    expect(stories.uniq.size).to eq(reasons.size)
    expect(reasons.zip(stories).select { |reason, story| story.include?(reason) }).to be_empty
  end

  it "is valid UTF-8 whatever the headers hold" do
    story = Backhop.explain({ "backhop-error" => "\xFF".b, "backhop-routing-key" => "\xFF", "backhop-id" => "\xFE" })
    expect(story).to be_valid_encoding
  end
end
