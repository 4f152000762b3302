# frozen_string_literal: true

# Calls much of the core, for tests with the garbage collector at its worst.
module Everything
  HEADERS = { "tenant" => "acme", "x-death" => [{ "queue" => "orders", "reason" => "rejected", "count" => 3 }] }.freeze

  # Returns what the core gave.
  def self.call
    policy = Backhop::Policy.new(kind: :fixed, jitter: :none, max_attempts: 3)
    topology = Backhop::Topology.new(
      "orders", policy: policy, strategy: :reject, work_queue_arguments: { "x-a" => "b" }
    )
    decider = Backhop::Decider.new(topology, legacy_counter: "x-retries", wait_queues: %w[wait])
    history = decider.read(exchange: "events", routing_key: "key", headers: HEADERS)
    plan = decider.plan(history, IOError.new("507"))
    park = decider.plan(history, Backhop::Park.new("why"))
    [policy.row(1).to_a, topology.declarations, topology.definitions, history.deaths, history.problems, plan.action,
     park.copy_headers(HEADERS).except("backhop-id", "backhop-first-failure"), history.delivery.headers,
     Backhop.explain(HEADERS, topology: topology)]
  end
end
