# frozen_string_literal: true

module Backhop
  # A message's story, in words, from its headers alone.
  #
  #     puts Backhop.explain({ "backhop-attempts" => 2, "backhop-delay" => 30_000, "backhop-error" => "507 queue is full" })
  #     It failed 2 times.
  #     The last error was: 507 queue is full
  #     Its last wait was 30 s.
  #
  # @param headers [Hash, nil] as a client gives them
  # @param topology [Topology, nil] where the broker alone moves messages (strategies :reject and :native), it tells what to
  #   count
  # @param legacy_counter [String, nil] as History's
  # @param wait_queues [Array<String>] as History's
  # @return [String] valid UTF-8
  def self.explain(headers, topology: nil, legacy_counter: nil, wait_queues: [])
    history = History.new(Delivery.new(headers: headers || {}), topology, legacy_counter: legacy_counter,
                                                                          wait_queues: wait_queues)
    history.native.explanation
  end
end
