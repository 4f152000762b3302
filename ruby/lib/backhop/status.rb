# frozen_string_literal: true

module Backhop
  # Maps the core's statuses to exceptions.
  # @api private
  module Status
    CLASSES = {
      "BH_ERR_NO_MEMORY" => OutOfMemoryError,
      "BH_ERR_ARGUMENT" => InvalidArgumentError,
      "BH_ERR_STATE" => StateError,
      "BH_ERR_POLICY" => PolicyError,
      "BH_ERR_NAME" => InvalidNameError,
      "BH_ERR_STRATEGY" => StrategyError,
      "BH_ERR_BROKER" => BrokerError,
      "BH_ERR_FRAME" => FrameError,
      "BH_ERR_URI" => URIError,
      "BH_ERR_NO_LIBRABBITMQ" => NoLibrabbitmqError,
      "BH_ERR_CONNECTION" => ConnectionFailedError,
      "BH_ERR_TLS" => TLSError,
      "BH_ERR_ACCESS" => AccessError,
      "BH_ERR_CLASH" => ClashError,
      "BH_ERR_MISSING" => MissingError,
      "BH_ERR_PUBLISH" => PublishError,
      "BH_ERR_CANCELLED" => ConsumerCancelledError,
      "BH_ERR_TIMEOUT" => WaitTimeoutError,
      "BH_ERR_CHANNEL" => ChannelClosedError,
      "BH_ERR_FORKED" => ForkedError,
      "BH_ERR_CONTENT" => ContentError,
      "BH_ERR_FOREIGN_POLICY" => ForeignPolicyError
    }.freeze

    # The names of all failures, by status. Statuses are -1, -2 and so on, up to the first one
    # without a name.
    CODES = (1..).lazy.map { |n| [-n, Native.bh_status_name(-n)] }.take_while { |_, name| !name.empty? }.to_h.freeze
    CODES.each { |status, code| CLASSES[code]&.send(:stands_for, code, status) }

    module_function

    # Returns the exception for a failed status.
    #
    # @param detail [String] text to use instead of the core's sentence
    # @param only [Class] use the detail only for this class and its subclasses
    def error(status, detail = "", only = Error)
      raised = CLASSES.fetch(CODES[status], Error)
      text = !detail.empty? && raised <= only ? Times.sentence(detail) : Native.bh_status_text(status)
      raised.new(text.sub("set this before bh_worker_start", "set this before it is run"))
    end

    # Raises the exception of a failed status.
    def check(status, detail = "", only = Error)
      raise error(status, detail, only) unless status.zero?
    end
  end
  private_constant :Status
end
