# frozen_string_literal: true

module Backhop
  # A message's story, in words.
  # @api private
  module Explanation
    SOURCES = {
      legacy: " (by the counter of an earlier set-up)",
      x_death: " (by the broker's x-death records)",
      delivery_count: " (by the queue's delivery count)"
    }.freeze
    REASONS = {
      "exhausted" => "its attempts were used up",
      "permanent" => "its handler said that no attempt can succeed",
      "too-old" => "it was too old for another attempt",
      "oversized" => "its headers left no room for a retry's",
      "poison" => "its consumer was lost too often while it, or a message beside it, was in hand"
    }.freeze

    module_function

    def lines(history)
      [
        failures(history),
        ("The last error was: #{history.last_error}" if history.last_error),
        ("Its last wait was #{Times.duration(history.last_delay)}." if history.last_delay),
        ("It was parked because #{REASONS.fetch(history.parked, history.parked)}." if history.parked),
        place(history.exchange, history.routing_key),
        ("All its attempts have the id #{history.id}." if history.id),
        *history.deaths.map { |each| death(each) },
        (crashes(history.crashes) if history.crashes.positive?),
        ("It was sent back from the parked queue #{times(history.replays)}." if history.replays.positive?),
        *history.problems.map { |problem| "Ignored: #{problem}" }
      ].compact
    end

    def failures(history)
      return history.crashes.zero? ? "It never failed." : "No failure of it was reported." if history.attempts.zero?

      "It failed #{times(history.attempts)}#{SOURCES[history.source]}#{first(history.first_failure)}."
    end

    def crashes(count)
      "Its consumer was lost, or gave it back, #{times(count)} while it, or a message beside it, was in hand."
    end

    def death(death)
      "The broker dead-lettered it from queue #{death.queue} #{times(death.times)} (#{death.reason})#{first(death.time)}."
    end

    def place(exchange, routing_key)
      return if exchange.empty? && routing_key.empty?
      return "It was first published to queue #{routing_key.inspect}." if exchange.empty?

      "It was first published to exchange #{exchange.inspect} with routing key #{routing_key.inspect}."
    end

    def times(count) = count == 1 ? "once" : "#{count} times"

    def first(moment) = moment && ", first at #{moment.strftime("%Y-%m-%d %H:%M:%S UTC")}"
  end
  private_constant :Explanation

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
    Explanation.lines(history).join("\n").scrub
  end
end
