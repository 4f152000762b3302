# frozen_string_literal: true

module Backhop
  # Returns the history of a message as text, from its headers.
  #
  #     puts Backhop.explain({
  #       "backhop-attempts" => 2, "backhop-delay" => 30_000, "backhop-error" => "507 queue is full"
  #     })
  #     It failed 2 times.
  #     The last error was: 507 queue is full
  #     Its last wait was 30 s.
  #
  # @param headers [Hash, nil] the headers, as a client returns them
  # @param topology [Topology, nil] needed for the strategies :reject and :native: their retries
  #   count by the broker's headers
  # @param legacy_counter [String, nil] see {History#initialize}; likewise wait_queues
  # @return [String] valid UTF-8
  # @raise [InvalidArgumentError] if a header has a value that AMQP cannot hold
  def self.explain(headers, topology: nil, legacy_counter: nil, wait_queues: [])
    history = History.new(Delivery.new(headers: headers || {}), topology, legacy_counter: legacy_counter,
                                                                          wait_queues: wait_queues)
    history.native.explanation
  end
end
