# frozen_string_literal: true

module Backhop
  # The state of a worker or of a subscription, by its events.
  # @api private
  class Health
    STATES = (0...Native::BH_HEALTH_LAST).map { |state| Native.bh_health_name(state).to_sym }.freeze
    private_constant :STATES

    # @return [Native::Health]
    attr_reader :native

    # @param is_worker [Boolean] whether the texts of errors name a worker; else they name a
    #   subscription
    def initialize(is_worker: false)
      @is_worker = is_worker ? 1 : 0
      @native = Core.made(Native.bh_health_new)
    end

    # Applies an event.
    #
    # @param event [Native::Event]
    def observe(event) = @native.observe(event)

    # @return [Symbol] :starting, :ready, :reconnecting, :paused or :stopped
    def state = STATES.fetch(@native.state)

    # @return [String, nil] the text of the event that led to the state
    def reason = Core.text(@native.reason)

    # Returns the error of a wait for :ready that took too long.
    #
    # @param timeout [Numeric, String] the limit: seconds, or "20s"
    def late(timeout) = error(WaitTimeoutError, Times.milliseconds(timeout))

    # Returns the error of a wait for :ready if there is no consumer any more.
    def over = error(StateError, -1)

    private

    def error(raised, limit_ms) = Status.error(raised.status, @native.wait_error(@is_worker, limit_ms))
  end
  private_constant :Health
end
